"""The library of attacks for the page: what there is, and what one of them writes into a conversation."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from rolewise.attacks import PAYLOADS, Delimiters, attack_info, attack_names, payload_named
from rolewise.attacks.conversations import attack_conversation, conversation_rng
from rolewise.attacks.registry import closed
from rolewise.samples import Injection, Payload
from rolewise.serving.playground.protocol import AttackRequest, NamedPayload

GROUPS = {
    "in_domain": "Structured Query, in domain",
    "ood": "Structured Query, out of domain",
    "secalign": "SecAlign",
    "custom": "Registered here",
}

ROW = "row-0"
"""What `rolewise attack` calls the only conversation of a file; the name is part of its seed."""


def attacks() -> list[dict[str, Any]]:
    """Every registered attack, group by group."""
    found = [attack_info(name) for name in attack_names()]
    return [
        {
            "name": info.name,
            "group": title,
            "summary": info.summary,
            "roles": list(info.roles),
            "positions": list(info.positions),
            "forges": info.forges,
        }
        for domain, title in GROUPS.items()
        for info in found
        if info.domain == domain
    ]


def payloads() -> list[dict[str, str]]:
    """Every registered payload."""
    return [{"name": name, "text": payload.text, "witness": payload.witness} for name, payload in PAYLOADS.items()]


def attacked(request: AttackRequest, real: Delimiters) -> dict[str, Any]:
    """What `rolewise attack` writes for the conversation up to the target.

    Args:
        request: the conversation, and the attack.
        real: the delimiters of the model's own template.

    Returns:
        The target's new text, the same in parts (the host's own, and injected ones), where the injections really
        stand, the payload's witness, and the command.

    Raises:
        ValueError: when the attack cannot be made; it says why.
    """
    if request.target >= len(request.messages):
        raise ValueError(f"target={request.target} is no message; there are {len(request.messages)}")
    role = request.messages[request.target].role
    if role == "system":
        raise ValueError("nobody injects into the system message; take the user's or one of data")
    payload = _payload(request)
    messages, sample = attack_conversation(
        request.plain()[: request.target + 1],
        request.attack,
        conversation_rng(request.seed, ROW, request.attack),
        payload=payload,
        forged_answer=request.forged_answer,
        id=ROW,
        role=role,
        position=request.position,
        real=real,
    )
    text = messages[-1]["content"]
    return {
        "text": text,
        "parts": _parts(request.messages[request.target].content, text, sample.injections),
        "positions": [one.position for one in sample.injections],
        "witness": payload.witness,
        "command": _command(request, role),
    }


def _parts(host: str, text: str, injections: Sequence[Injection]) -> list[dict[str, Any]]:
    """`text` in stretches of the host's own and injected ones. A search would find the first of several alike."""
    parts: list[dict[str, Any]] = []
    at = 0
    for one in injections:
        start = _start(host, text, one)
        end = start + len(one.text)
        parts += [{"text": text[at:start], "injected": False}, {"text": text[start:end], "injected": True}]
        at = end
    return [part for part in [*parts, {"text": text[at:], "injected": False}] if part["text"]]


def _start(host: str, text: str, one: Injection) -> int:
    if one.position == "begin":
        return 0
    start = len(text) - len(one.text)
    if one.position == "end":
        return start
    while (start := text.rindex(one.text, 0, start + len(one.text))) >= 0:
        tail = text[start + len(one.text) :]
        if host.endswith(tail) and closed(host.removesuffix(tail)) == text[:start]:
            break
        start -= 1
    return start


def _payload(request: AttackRequest) -> Payload:
    asked = request.payload
    if isinstance(asked, NamedPayload):
        return payload_named(asked.name)
    return Payload(text=asked.text, witness=asked.witness)


def _command(request: AttackRequest, role: str) -> str:
    """How to write the same with the command line, for the messages up to the target."""
    asked = request.payload
    words = ["rolewise", "attack", "chat.json", "-o", "attacked.jsonl", "--attack", request.attack]
    if isinstance(asked, NamedPayload):
        words += ["--payload", asked.name]
    else:
        words += ["--payload", asked.text, "--witness", asked.witness]
    words += ["--role", "user"] * (role == "user")
    words += ["--position", request.position] if request.position else []
    words += ["--seed", str(request.seed)] if request.seed else []
    words += ["--forged-answer", request.forged_answer] if request.forged_answer is not None else []
    return shlex.join([*words, "--model", request.model])
