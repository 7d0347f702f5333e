"""`rolewise attacks`: what attacks there are, each with an example."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, Any, Literal

import tyro

from rolewise.attacks import (
    MAIN_ATTACKS,
    NAMED_DELIMITERS,
    PAYLOADS,
    AttackInfo,
    Delimiters,
    attack_info,
    attack_names,
    make_attack,
    payload_named,
)
from rolewise.commands.arguments import parse
from rolewise.samples import Sample

TEACH = """List the prompt injections, each with what it does to one short text.

Line breaks and other control characters of the examples are shown as \\n, \\t, \\b. Completions forge the delimiters of
--template; rolewise attack takes them from any model's chat template. --payloads lists the payloads by name.

examples:
  rolewise attacks
  rolewise attacks --domain ood --template delimiter
  rolewise attacks --json | jq -r '.[].name'
  rolewise attacks --payloads
"""

SAMPLE = Sample(
    id="example",
    instruction="Who sings tonight?",
    data="Anna sings tonight. Ben plays the flute.",
    answer="Anna",
)
"""What the examples are on."""

TemplateName = Literal["chatml", "text", "delimiter"]


@dataclass(frozen=True, kw_only=True)
class AttacksConfig:
    """What `rolewise attacks` prints."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a JSON list in place of text."""
    domain: Literal["in_domain", "ood", "secalign", "custom"] | None = None
    """Only the attacks of one set; by default all."""
    role: Literal["data", "user"] = "data"
    """Whose text carries the injection in the examples."""
    template: TemplateName = "chatml"
    """Which template's delimiters the examples forge."""
    payload: str = "hacked"
    """The payload of the examples, by name."""
    payloads: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """List the payloads in place of the attacks."""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(AttacksConfig, arguments, command="attacks", teach=TEACH)
    payload_named(config.payload)
    if config.payloads:
        _print_payloads(as_json=config.json)
        return 0
    chosen = [
        info for info in map(attack_info, attack_names(config.role)) if config.domain in (None, info.domain)
    ]  # fmt: skip
    rows = [_described(info, config) for info in chosen]
    if config.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    domain = ""
    for row in rows:
        if row["domain"] != domain:
            domain = row["domain"]
            print(("\n" if row is not rows[0] else "") + f"# {domain}")
        print(f"{row['name']}  ({', '.join(row['roles'])}; {', '.join(row['positions'])}): {row['summary']}")
        print(f"    {_visible(row['example'])}")
    print("\n" + "; ".join([f"{len(rows)} attacks", *_notes(rows)]))
    print("next: rolewise attack FILE --attack NAME -o OUT")
    return 0


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """Which of the listed are the main ones, and whose the near misses are."""
    names = {row["name"] for row in rows}
    notes = [f"the main four are {', '.join(MAIN_ATTACKS)}"] if names >= set(MAIN_ATTACKS) else []
    return notes + ["the names of the close_* are StruQ's"] * any("_close_" in name for name in names)


def _described(info: AttackInfo, config: AttacksConfig) -> dict[str, Any]:
    sample = replace(SAMPLE, payload=payload_named(config.payload))
    real: Delimiters = NAMED_DELIMITERS[config.template]
    attacked = make_attack(info.name, role=config.role, real=real)(sample, Random(f"example:{info.name}"))
    return {
        "name": info.name,
        "domain": info.domain,
        "roles": list(info.roles),
        "positions": list(info.positions or ("begin", "middle", "end")),
        "summary": info.summary,
        "example": attacked.data if config.role == "data" else attacked.instruction,
    }


def _print_payloads(*, as_json: bool) -> None:
    if as_json:
        rows = [{"name": name, "text": p.text, "witness": p.witness} for name, p in PAYLOADS.items()]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for name, payload in PAYLOADS.items():
        print(f"{name}: {payload.text}  (witness: {payload.witness})")


def _visible(text: str) -> str:
    """One line: control characters escaped as in JSON, long runs of one counted."""
    escaped = json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"')
    return re.sub(r"(\\[bnrt])\1{11,}", lambda run: f"{run[1]}…({len(run[0]) // 2} times)", escaped)
