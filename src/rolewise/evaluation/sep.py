"""SEP files: a question in the instruction, or in the data, and the witness that shows that it was answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from rolewise.data.strict_json import Flaw, json_rows
from rolewise.evaluation.outcomes import CEILING, CLEAN

ATTACK = "sep"
"""The condition with the question in the data."""

_FIELDS = ("system_prompt_clean", "prompt_instructed", "system_prompt_instructed", "prompt_clean", "witness")


def load_sep(path: Path) -> list[dict[str, Any]]:
    """The rows of a SEP file (a JSON array or JSONL).

    Raises:
        ValueError: when the file is not JSON, a row lacks a field or has one that is not text, or stands twice; with
            the row's place.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    rows: list[dict[str, Any]] = []
    seen: dict[tuple[str, ...], str] = {}
    for place, row in json_rows(str(path), text):
        if isinstance(row, Flaw):
            raise ValueError(f"{place}: {row.problem}")
        if not isinstance(row, dict):
            raise ValueError(f"{place} must be an object, not {type(row).__name__}")
        fields = cast("dict[str, Any]", row)
        for field in _FIELDS:
            value: Any = fields.get(field)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{place} needs text under {field!r}; a SEP row has {', '.join(_FIELDS)}")
        key = tuple(fields[field] for field in _FIELDS)
        if (first := seen.setdefault(key, place)) != place:
            raise ValueError(f"{place} repeats {first}; leave one of the two out")
        rows.append(fields)
    if not rows:
        raise ValueError(f"{path} has no rows")
    return rows


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
