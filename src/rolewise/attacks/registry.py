"""The register of attacks, and the options that they share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, get_args

from rolewise.attacks.vocabulary import CHATML, TEXT, Delimiters, Split
from rolewise.samples import Injection, Position, Sample
from rolewise.unknown import unknown_name

AttackRole = Literal["data", "user"]
Domain = Literal["in_domain", "ood", "secalign", "custom"]

Attack = Callable[[Sample, Random], Sample]
"""A pure function: the same sample and the same state of the generator give the same attacked sample."""


@dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """How and where an attack injects."""

    role: AttackRole = "data"
    """Whose text carries the injection. In the user turn, carrying it out is right."""
    position: Position | None = None
    """Where in that text; None is the attack's own place, which is the end for all but a few."""
    split: Split = "test"
    """Which vocabulary of sentences and foreign delimiters is drawn from; the two share nothing."""
    real: Delimiters = CHATML
    """The delimiters of the attacked model's own template, as an attacker can type them."""
    forged: Literal["reference", "decoy"] = "reference"
    """The answer that completion attacks fabricate: the right one (as StruQ does), or `Sample.decoy`, which
    keeps a model in training from learning to copy the forged answer."""
    sentence: int | None = None
    """Which of the split's sentences `ignore` and its kin use (SecAlign's variants); None draws one."""
    struq_compat: bool = False
    """Repeat the accidents of StruQ's code on which its published numbers depend (docs/reference/attacks.md)."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("role", self.role, get_args(AttackRole)),
            ("position", self.position, (*get_args(Position), None)),
            ("split", self.split, get_args(Split)),
            ("forged", self.forged, ("reference", "decoy")),
        ):
            if value not in allowed:
                raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
        if self.struq_compat:  # StruQ forges the text delimiters, whatever the attacked model's template is
            object.__setattr__(self, "real", TEXT)


Wrap = Callable[[Sample, Random, AttackOptions], tuple[str, str]]
"""What an attack writes: the string between the host text and the payload, and the payload as injected."""


@dataclass(frozen=True, kw_only=True)
class AttackInfo:
    """A registered attack."""

    name: str
    summary: str
    """One line for people."""
    wrap: Wrap
    roles: tuple[AttackRole, ...] = field(default=("data", "user"))
    domain: Domain = "custom"
    """The set that it is reported with."""
    positions: tuple[Position, ...] = ()
    """Where it stands, always: the same string at each of these. Empty: the option `position` decides."""
    forges: bool = False
    """Whether it writes an answer of the assistant, so that it needs one."""


_ATTACKS: dict[str, AttackInfo] = {}


def register_attack(
    name: str,
    *,
    summary: str,
    roles: tuple[AttackRole, ...] = ("data", "user"),
    domain: Domain = "custom",
    positions: tuple[Position, ...] = (),
    forges: bool = False,
) -> Callable[[Wrap], Wrap]:
    """Register the decorated function as the attack `name`.

    The function takes (sample, rng, options) and returns two strings: what stands between the host text and the
    payload, and the payload itself. Placing them in the host text is done here, once for all attacks.

    Raises:
        ValueError: when the name is taken.
    """

    def add(wrap: Wrap) -> Wrap:
        if name in _ATTACKS:
            raise ValueError(f"an attack named {name!r} is registered already; choose another name")
        _ATTACKS[name] = AttackInfo(
            name=name,
            summary=summary,
            wrap=wrap,
            roles=roles,
            domain=domain,
            positions=positions,
            forges=forges,
        )
        return wrap

    return add


def attack_names(role: AttackRole | None = None) -> list[str]:
    """The names of the registered attacks, in the order of registration; only those for `role` if given."""
    return [info.name for info in _ATTACKS.values() if role is None or role in info.roles]


def attack_info(name: str) -> AttackInfo:
    """The registered attack `name`.

    Raises:
        ValueError: when there is none, naming the nearest.
    """
    if name not in _ATTACKS:
        raise unknown_name("attack", name, _ATTACKS)
    return _ATTACKS[name]


def make_attack(name: str, **options: Any) -> Attack:
    """The attack `name` as a pure function of (sample, rng).

    Args:
        name: one of `attack_names()`.
        options: the fields of `AttackOptions`.

    Raises:
        ValueError: for an unknown name, an option out of range, a role that the attack does not have, or a position
            for an attack that has its own; the returned function raises it for a sample without a payload.
    """
    info, chosen = attack_info(name), AttackOptions(**options)
    if chosen.role not in info.roles:
        raise ValueError(f"attack {name!r} has no role {chosen.role!r}; it has {', '.join(info.roles)}")
    if info.positions and chosen.position is not None:
        raise ValueError(
            f"position={chosen.position!r}, but attack {name!r} always stands at {' and '.join(info.positions)}; "
            "leave the position out"
        )
    positions: tuple[Position, ...] = info.positions or (chosen.position or "end",)

    def attack(sample: Sample, rng: Random) -> Sample:
        if sample.payload is None:
            raise ValueError(f"sample {sample.id!r} has no payload to inject; set Sample.payload first")
        text = sample.data if chosen.role == "data" else sample.instruction
        before, payload = info.wrap(sample, rng, chosen)
        records: list[Injection] = []
        for position in reversed(positions):  # from the back: what stands at the end follows the host's own text
            text, injected, found = _place(text, before, payload, position, rng)
            records.insert(0, Injection(attack=name, role=chosen.role, position=found, text=injected))
        changed = {"data": text} if chosen.role == "data" else {"instruction": text}
        return replace(sample, **changed, injections=(*sample.injections, *records))

    return attack


_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])[ \t]+|[ \t]*\n\s*")


def _place(host: str, before: str, payload: str, position: Position, rng: Random) -> tuple[str, str, Position]:
    """The host text with the injection in it, the injection, and where it really stands.

    The text before the injection loses white space at its end and is closed with a full stop first. A middle
    position is drawn among the gaps between sentences or lines; a single sentence has none, and takes the
    injection at its end (as text that begins with a line break may at its begin). At the begin, white space that would
    set the payload apart stands behind it.
    """
    head, tail = host, ""
    if position == "begin":
        apart = before if not before.strip() else " "
        head, tail = "", f"{apart}{host}" if host else ""
    elif position == "middle":
        gaps = list(_BETWEEN_SENTENCES.finditer(host.rstrip()))
        if gaps:
            gap = rng.choice(gaps).start()
            head, tail = host[:gap], host[gap:]
        position = "end" if not gaps else "middle" if head.strip() else "begin"
    head = closed(head)
    injected = (before if head else before.lstrip(" \n\t")) + payload
    return head + injected + tail, injected, position


def closed(text: str) -> str:
    """`text` without white space at its end, ending in a punctuation mark: a full stop is added if needed."""
    text = text.rstrip()
    return text if not text or text[-1] in ".!?:;\"')]}>" else text + "."
