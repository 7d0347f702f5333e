"""What goes from step to step: a conversation with its history, or the reason why there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from rolewise.data.structured_query.sources import Example

Message = dict[str, Any]
"""A chat message, as training reads it."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A conversation of one turn: the paper's schema. What is empty is not there."""

    system: str = ""
    user: str
    data: str = ""
    answer: str

    @property
    def messages(self) -> list[Message]:
        """The turn as chat messages."""
        parts = {"system": self.system, "user": self.user, "data": self.data, "assistant": self.answer}
        return [{"role": role, "content": text} for role, text in parts.items() if text or role == "user"]

    @property
    def key(self) -> tuple[str, str]:
        """What makes two requests the same: instruction and data, up to case and white space."""
        return Example(instruction=self.user, input=self.data, output="", place="", index=0).key


@dataclass(frozen=True, kw_only=True)
class Record:
    """A conversation between two steps."""

    id: str
    """Where it comes from: a source's row, or the number of a generated one. Rows of a pair share it."""
    messages: list[Message]
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    """Whatever is known of how it was made."""

    @property
    def turn(self) -> Turn | None:
        """Its parts, where it is a single turn of texts: system, user, data, assistant, each at most once."""
        order = ("system", "user", "data", "assistant")
        roles = [message["role"] for message in self.messages]
        plain = all(isinstance(message["content"], str) for message in self.messages)
        if not plain or roles != [role for role in order if role in roles] or not {"user", "assistant"} <= set(roles):
            return None
        text = {message["role"]: message["content"] for message in self.messages}
        return Turn(
            system=text.get("system", ""), user=text["user"], data=text.get("data", ""), answer=text["assistant"]
        )

    @property
    def row(self) -> dict[str, Any]:
        """What is written as a line."""
        return {"messages": self.messages, "meta": {"id": self.id, **self.meta}}

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Record:
        """The record that a line was written from."""
        meta = dict(row["meta"])
        return cls(id=meta.pop("id"), messages=row["messages"], meta=meta)

    def made(self, turn: Turn, condition: str, **more: Any) -> Record:
        """A row made from this one."""
        return replace(self, messages=turn.messages, meta={**self.meta, "condition": condition, "pair": None, **more})


@dataclass(frozen=True, kw_only=True)
class Reject:
    """A row that a step could not use."""

    id: str
    reason: str
    """In a few words, always the same ones, for counting."""
    detail: str = ""
    """What it was in this row."""
    raw: str = ""
    """What a teacher wrote, if it did."""
    settled: bool = True
    """False where asking again might help: the server was away, or the budget was spent."""


Outcome = Record | Reject


def generator(seed: int, *names: str) -> Random:
    """The generator of a row's draws: of its own, so that other rows do not change it."""
    return Random(":".join(["rolewise-hierarchy", str(seed), *names]))


def in_drawn_order(records: Iterable[Record], seed: int, name: str) -> list[Record]:
    """The records in an order that the seed draws; what else there is does not change the order of two of them."""

    def place(record: Record) -> tuple[bytes, str]:
        condition = str(record.meta.get("condition", ""))
        text = "\0".join((str(seed), name, record.id, condition))
        return hashlib.sha256(text.encode()).digest(), record.id

    return sorted(records, key=place)
