"""Some rows of each stage as one page for people: self-contained, without scripts, and with everything escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from rolewise.data.hierarchy.pipeline import Made
from rolewise.data.hierarchy.recipe import Recipe
from rolewise.data.hierarchy.walk import Count
from rolewise.data.teacher import Prompt
from rolewise.display import safe_text
from rolewise.messages import MESSAGE_ROLES, Role

_NAMES = {Role.SYSTEM: "system", Role.USER: "user", Role.DATA: "data", Role.OUTPUT: "output"}


def review_page(made: Made, count: int, recipe: Recipe) -> str:
    """The page.

    Args:
        made: the rows.
        count: how many to show, spread evenly over the stages; twins stand beside each other, and count.
        recipe: what they were made of.
    """
    style = (files("rolewise.data.hierarchy") / "review.css").read_text(encoding="utf-8")
    policy = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    groups = sample_by_stage(made.rows, count)
    shown = sum(map(len, groups.values()))
    lead = f"{shown:,} of {len(made.rows):,} rows, drawn from each stage; seed {recipe.seed}."
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" '
            f"content=\"default-src 'none'; style-src 'sha256-{policy}'\">",
            f"<title>Rows to review</title><style>{style}</style></head><body>",
            f"<h1>Rows to review: {_text(recipe.place)}</h1>",
            f'<p class="note">{escape(lead)}</p>',
            "<nav><ul>",
            *(f'<li><a href="#{_text(name)}">{_text(name)}</a></li>' for name in groups),
            "</ul></nav>",
            *_counts(made.counts),
            *(line for name, rows in groups.items() for line in _stage(name, rows, made.prompts.get(name))),
            "</body></html>",
            "",
        ]
    )


def sample_by_stage(rows: Sequence[dict[str, Any]], count: int) -> dict[str, list[dict[str, Any]]]:
    """About `count` rows, as evenly over the stages as can be, pairs whole.

    The first rows of each stage are taken, as rows come in a drawn order.
    """
    units: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for number, row in enumerate(rows):
        pair = row["meta"]["pair"]
        key = f"row {number}" if pair is None else f"pair {pair}"
        units.setdefault(row["meta"]["stage"], {}).setdefault(key, []).append(row)
    queues = {stage: iter(found.values()) for stage, found in sorted(units.items())}
    chosen: dict[str, list[dict[str, Any]]] = {stage: [] for stage in queues}
    left = count
    while left > 0 and queues:
        for stage in list(queues):
            unit = next(queues[stage], None)
            if unit is None:
                del queues[stage]
            elif left > 0:
                chosen[stage] += sorted(unit, key=lambda row: row["meta"]["condition"] == "twin")
                left -= len(unit)
    return {stage: found for stage, found in chosen.items() if found}


def _counts(counts: Sequence[Count]) -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr><th>step</th><th>what</th><th class="number">in</th>'
    yield '<th class="number">out</th><th>rejected</th></tr></thead><tbody>'
    for count in counts:
        reasons = ", ".join(f"{reason}: {number:,}" for reason, number in sorted(count.rejected.items()))
        yield (
            f"<tr><th>{_text(count.name)}</th><td>{_text(count.what)}</td>"
            f'<td class="number">{count.taken:,}</td><td class="number">{count.made:,}</td>'
            f"<td>{_text(reasons)}</td></tr>"
        )
    yield "</tbody></table></div>"


def _stage(name: str, rows: Sequence[dict[str, Any]], prompt: Prompt | None) -> Iterator[str]:
    yield f'<h2 id="{_text(name)}">{_text(name)}</h2>'
    if prompt is not None:
        text = "\n\n".join(f"# {role}\n{text}" for role, text in prompt.turns)
        yield f"<details><summary>The prompt: {_text(prompt.name)}, version {prompt.version}</summary>"
        yield f"<pre>{_text(text)}</pre></details>"
    for row in rows:
        yield from _row(row)


def _row(row: dict[str, Any]) -> Iterator[str]:
    meta = row["meta"]
    yield f"<article><h3>{_text(meta['condition'])} · {_text(meta['id'])}</h3>"
    for message in row["messages"]:
        for role, text in _parts(message):
            label = message["role"] if role == _NAMES.get(MESSAGE_ROLES[message["role"]]) else f"{role} part"
            yield f'<div class="message {role}"><b>{_text(label)}</b><p>{_text(text)}</p></div>'
    told = json.dumps(meta, ensure_ascii=False, indent=1)
    yield f"<details><summary>meta</summary><pre>{_text(told)}</pre></details></article>"


def _parts(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(role, text) of each part of a message; what is not text is shown as JSON."""
    role = _NAMES[MESSAGE_ROLES[message["role"]]]
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield ("data" if part.get("type") == "data" else role), part["text"]
        elif part is not None:
            yield role, part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)
    if others := {name: value for name, value in message.items() if name not in ("role", "content")}:
        yield role, json.dumps(others, ensure_ascii=False)


def _text(text: Any) -> str:
    """Escaped, with what is invisible made visible, but for line breaks and tabs."""
    lines = str(text).replace("\t", "    ").split("\n")
    return "\n".join(escape(safe_text(line)) for line in lines)
