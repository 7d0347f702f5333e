"""SEP files: a question in the instruction, or in the data, and the witness that shows that it was answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rolewise.evaluation.outcomes import CEILING, CLEAN

ATTACK = "sep"
"""The condition with the question in the data."""

_FIELDS = ("system_prompt_clean", "prompt_instructed", "system_prompt_instructed", "prompt_clean", "witness")


def load_sep(path: Path) -> list[dict[str, Any]]:
    """The rows of a SEP file (a JSON array or JSONL).

    Raises:
        ValueError: when the file is not JSON, a row lacks a field or has one that is not text, or stands twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
        rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(x) for x in text.split("\n") if x]
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is neither a JSON array nor JSONL: {error}") from error
    seen: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(f"{path}[{number}] must be an object, not {type(row).__name__}")
        for field in _FIELDS:
            value: Any = row.get(field)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{path}[{number}] needs text under {field!r}; a SEP row has {', '.join(_FIELDS)}")
        key = tuple(row[field] for field in _FIELDS)
        if key in seen:
            raise ValueError(f"{path}[{number}] repeats row {seen[key]}; leave one of the two out")
        seen[key] = number
    if not rows:
        raise ValueError(f"{path} has no rows")
    return [dict(row) for row in rows]


def sep_conditions(rows: Iterable[Mapping[str, Any]], *, instruction_role: str = "user") -> Iterator[dict[str, Any]]:
    """Each row clean, with the question in the data, and with the question in the instruction (the ceiling).

    Raises:
        ValueError: when `instruction_role` is neither user nor system.
    """
    if instruction_role not in ("user", "system"):
        raise ValueError(f"instruction_role={instruction_role!r} must be 'user' or 'system'")
    for number, row in enumerate(rows):
        for condition, domain, instruction, data in (
            (CLEAN, CLEAN, row["system_prompt_clean"], row["prompt_clean"]),
            (ATTACK, "in_domain", row["system_prompt_clean"], row["prompt_instructed"]),
            (CEILING, CEILING, row["system_prompt_instructed"], row["prompt_clean"]),
        ):
            yield {
                "messages": [{"role": instruction_role, "content": instruction}, {"role": "data", "content": data}],
                "meta": {
                    "id": f"sep-{number}",
                    "condition": condition,
                    "domain": domain,
                    "payload": {"text": "", "witness": row["witness"], "kind": "sep"},
                    "injections": [],
                    "data_chars": len(row["prompt_clean"]),
                    "info": row.get("info", {}),
                },
            }
