"""Attacks on conversations as they stand, in place of samples."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, cast

from rolewise.attacks.payloads import HACKED
from rolewise.attacks.registry import attack_info, make_attack
from rolewise.messages import MESSAGE_ROLES
from rolewise.roles import Role
from rolewise.samples import Payload, Sample

_ROLES = {"data": Role.DATA, "user": Role.USER}


class NoTextError(ValueError):
    """Nobody with the role has text to inject into."""


def conversation_rng(seed: int, id: str, attack: str) -> Random:
    """The source from which an attack on a conversation draws: the same wherever it is made, whatever is beside it."""
    return Random(f"rolewise-attack:{seed}:{id}:{attack}")


def attack_conversation(
    messages: Sequence[Mapping[str, Any]],
    attack: str,
    rng: Random,
    *,
    payload: Payload = HACKED,
    forged_answer: str | None = None,
    id: str = "conversation",
    **options: Any,
) -> tuple[list[dict[str, Any]], Sample]:
    """Inject a payload into the last data of a conversation, or into its last user turn.

    Args:
        messages: a conversation (see `rolewise.messages.parse_messages`); it is not changed.
        attack: one of `attack_names()`.
        rng: the source of what the attack draws.
        payload: what is injected.
        forged_answer: the answer that completions forge; None takes the assistant's in the conversation.
        id: names the conversation in errors.
        options: the fields of `AttackOptions`; `role` says whose text carries the injection.

    Returns:
        The attacked messages, and the sample that was attacked, whose `injections` say what was written where.

    Raises:
        NoTextError: a ValueError, when nobody with that role has text.
        ValueError: when a completion finds no answer to forge, besides what `make_attack` raises.
    """
    made = make_attack(attack, **options)
    role = options.get("role", "data")
    changed = [dict(copy.deepcopy(message)) for message in messages]
    place = _last(changed, _ROLES[role])
    if place is None:
        raise NoTextError(f"no {role} message with text to inject into")
    asked = place if role == "user" else _last(changed[: place[0] + 1], Role.USER)
    answer = forged_answer
    if answer is None:
        later = _last(changed[place[0] :], Role.OUTPUT, first=True)
        answer = None if later is None else _text(changed[place[0] :], later)
    if answer is None and attack_info(attack).forges:
        raise ValueError(
            f"attack {attack!r} forges an answer, and the conversation has none: add the assistant's message, or give "
            "a forged answer"
        )
    host = _text(changed, place)
    sample = Sample(
        id=id,
        instruction="" if asked is None else _text(changed, asked),
        data=host if role == "data" else "",
        answer=answer or "",
        payload=payload,
    )
    attacked = made(sample, rng)
    _write(changed, place, attacked.data if role == "data" else attacked.instruction)
    return changed, attacked


_Place = tuple[int, int | None]
"""A message, and the part of its content where that is a list."""


def _last(messages: list[dict[str, Any]], role: Role, *, first: bool = False) -> _Place | None:
    """Where the last (or first) text with this role stands."""
    found: list[_Place] = []
    for index, message in enumerate(messages):
        own, content = MESSAGE_ROLES[message["role"]], message.get("content")
        if isinstance(content, str):
            if own is role and (content or role is Role.DATA):
                found.append((index, None))
        elif isinstance(content, list):
            for number, part in enumerate(cast("list[Mapping[str, Any]]", content)):
                if (Role.DATA if part["type"] == "data" else own) is role:
                    found.append((index, number))
    if not found:
        return None
    return found[0] if first else found[-1]


def _text(messages: list[dict[str, Any]], place: _Place) -> str:
    content = messages[place[0]]["content"]
    return content if place[1] is None else content[place[1]]["text"]


def _write(messages: list[dict[str, Any]], place: _Place, text: str) -> None:
    if place[1] is None:
        messages[place[0]]["content"] = text
    else:
        messages[place[0]]["content"][place[1]]["text"] = text
