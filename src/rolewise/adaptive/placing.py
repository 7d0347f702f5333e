"""Where an adaptive attack's text goes: at the end of the data, or of the user turn."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from rolewise.attacks.registry import closed
from rolewise.messages import MESSAGE_ROLES
from rolewise.roles import Role
from rolewise.samples import Injection, Sample

Carrier = Literal["data", "user"]
"""Whose text carries the attack."""

_ROLES: dict[str, Role] = {"data": Role.DATA, "user": Role.USER}


def check_carrier(role: str) -> Carrier:
    """`role` when it is one.

    Raises:
        ValueError: when it is not.
    """
    if role not in _ROLES:
        raise ValueError(f"role={role!r} must be one of {', '.join(map(repr, get_args(Carrier)))}")
    return cast("Carrier", role)


def with_text(sample: Sample, text: str, role: Carrier, attack: str) -> Sample:
    """The sample with `text` at the end of its data, or of its instruction, recorded as an injection."""
    host = closed(sample.data if role == "data" else sample.instruction)
    whole = f"{host} {text}" if host else text
    changed = {"data": whole} if role == "data" else {"instruction": whole}
    record = Injection(attack=attack, role=role, position="end", text=text)
    return replace(sample, **changed, injections=(*sample.injections, record))


class Host:
    """The last text of a conversation that has a role, to whose end something is appended.

    White space at its end goes: with a suffix behind it, a tokenizer would read it in another way.

    Raises:
        ValueError: when nobody with that role has text.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], role: Carrier) -> None:
        self._messages = [dict(message) for message in copy.deepcopy(list(messages))]
        self._place = _last(self._messages, _ROLES[role])
        if self._place is None:
            raise ValueError(f"no {role} message with text whose end could carry a suffix; give the conversation one")
        self.text = self._read().rstrip()

    def with_suffix(self, suffix: str) -> list[dict[str, Any]]:
        """The conversation with `suffix` behind the text."""
        return self.holding(self.text + suffix)

    def holding(self, text: str) -> list[dict[str, Any]]:
        """The conversation with `text` in place of the text."""
        changed = copy.deepcopy(self._messages)
        index, part = cast("_Place", self._place)
        if part is None:
            changed[index]["content"] = text
        else:
            changed[index]["content"][part]["text"] = text
        return changed

    def _read(self) -> str:
        index, part = cast("_Place", self._place)
        content = self._messages[index]["content"]
        return content if part is None else content[part]["text"]


_Place = tuple[int, int | None]
"""A message, and the part of its content where that is a list."""


def _last(messages: Sequence[Mapping[str, Any]], role: Role) -> _Place | None:
    found: _Place | None = None
    for index, message in enumerate(messages):
        own, content = MESSAGE_ROLES[message["role"]], message.get("content")
        if isinstance(content, str):
            if own is role:
                found = index, None
        elif isinstance(content, list):
            for number, part in enumerate(cast("list[Mapping[str, Any]]", content)):
                if (Role.DATA if part["type"] == "data" else own) is role:
                    found = index, number
    return found
