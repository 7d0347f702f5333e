"""Rows of a source as records: read, checked, cut to one turn, without duplicates and without rows of the test sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rolewise.data.hierarchy.recipe import Source
from rolewise.data.hierarchy.records import Message, Outcome, Record, Reject, in_drawn_order
from rolewise.data.structured_query import sources as alpaca
from rolewise.data.structured_query.sources import BadExample, Example
from rolewise.messages import parse_messages

BAD, DUPLICATE, TESTED, SIZE, OVER = "unusable", "duplicate", "in a test set", "too short or long", "over max_rows"
"""Why a row of a source is left out."""

_NO_DATA = ("no input", "noinput", "<noinput>", "none", "n/a", "not applicable")
"""What some rows of Alpaca have for an input where there is none."""
_SHAREGPT = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


def read_source(
    name: str, source: Source, seed: int, tested: set[tuple[str, str]], seen: set[tuple[str, ...]]
) -> list[Outcome]:
    """The rows of a source in a drawn order, and those that were left out.

    A row's id is `name[number]`, or `name[file:number]` where there are several paths.

    Args:
        name: the source's.
        source: what to read.
        seed: of the order.
        tested: the keys of test rows (`keys_of_tests`).
        seen: the keys of the rows that other sources have; grows.

    Raises:
        FileNotFoundError, ImportError: when a path is no file here and no data set on the hub that can be read.
        ValueError: when a file is not what its name says.
    """
    found: list[Outcome] = []
    for path, label in zip(source.path, _labels(source.path), strict=True):
        usable: list[Record] = []
        within = f"{label}:" if len(source.path) > 1 else ""
        for outcome in _read(path, f"{name}[{within}{{}}]", source):
            if isinstance(outcome, Record):
                outcome = _checked(outcome, source, tested, seen)
            if isinstance(outcome, Record):
                usable.append(outcome)
            else:
                found.append(outcome)
        drawn = in_drawn_order(usable, seed, "source")
        most = len(drawn) if source.max_rows is None else source.max_rows
        found += drawn[:most]
        found += [Reject(id=record.id, reason=OVER) for record in drawn[most:]]
    records = in_drawn_order([one for one in found if isinstance(one, Record)], seed, "source")
    return [*records, *(one for one in found if isinstance(one, Reject))]


def keys_of_tests(paths: Sequence[str]) -> set[tuple[str, str]]:
    """The keys of the rows in test files, which no training row may have.

    Files are Alpaca-shaped (AlpacaEval), or lists of secret system messages (`{"id", "instruction"}`).

    Raises:
        FileNotFoundError, ValueError: when a file cannot be read; a row that cannot be read might be among the
            training rows, so it is not passed over.
    """
    found: set[tuple[str, str]] = set()
    for path in paths:
        if not Path(path).expanduser().is_file():
            raise FileNotFoundError(f"no test file at {path!r} (drop_test); name one, or take it out of the recipe")
        found |= set(_keys_of_test(path))
    return found


def _keys_of_test(path: str) -> Iterator[tuple[str, str]]:
    for place, value in alpaca.source_values(path, "train"):
        if isinstance(value, dict) and not {"input", "context", "Instances", "instances"} & value.keys():
            value = {**cast("dict[str, Any]", value), "input": ""}
        for where, row in alpaca.unfolded_rows(place, value):
            if isinstance(row, BadExample):
                raise ValueError(f"{row.problem} (a test row, drop_test)")
            try:
                yield alpaca.example_of({"output": "", **row}, where, 0, answered=False).key
            except ValueError as error:
                raise ValueError(f"{where}: {error} (a test row, drop_test)") from None


def _labels(paths: Sequence[str]) -> list[str]:
    """Names of the paths that say nothing of this machine's directories."""
    names = [Path(path).name if Path(path).expanduser().is_file() else path for path in paths]
    labels: list[str] = []
    for number, name in enumerate(names):
        before = names[:number].count(name)
        labels.append(f"{name}#{before + 1}" if before else name)
    return labels


def _read(path: str, id: str, source: Source) -> Iterator[Outcome]:
    """The rows of one path; `{}` in `id` is the place of their number, from 0."""
    pairs = _parquet(path) if path.endswith(".parquet") else alpaca.source_values(path, source.split)
    number, instructions, with_input = 0, 0, 0
    for place, value in pairs:
        if isinstance(value, dict) and _conversation_key(cast("dict[str, Any]", value)):
            yield _conversation(cast("dict[str, Any]", value), id.format(number), source)
            number += 1
            continue
        for where, row in alpaca.unfolded_rows(place, value):
            if not isinstance(row, BadExample):
                instructions += 1
                with_input += any(name in row for name in alpaca.INPUT_NAMES)
            yield _instruction(row, where, id.format(number))
            number += 1
    if number == 0:
        raise ValueError(f"{path} holds no rows; it must be a JSON array, JSONL, Parquet or a task with Instances")
    if instructions and not with_input:
        raise ValueError(
            f'{path}: no row has the field "input" (nor "context"), so data would be lost if it has another name; '
            'rename it, or add "input": "" where there is none'
        )


def _parquet(path: str) -> Iterator[tuple[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(f"{path!r} is Parquet, read by pyarrow: in your clone, pip install -e '.[train]'") from error
    number = 0
    try:
        for batch in parquet.ParquetFile(Path(path).expanduser()).iter_batches(1024):
            for row in batch.to_pylist():
                yield f"{path}[{number}]", row
                number += 1
    except FileNotFoundError:
        raise FileNotFoundError(f"no data at {path!r}: the file does not exist") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no Parquet file that can be read: {' '.join(str(error).split())[:160]}") from error


def _instruction(row: Any, where: str, id: str) -> Outcome:
    """A row of instruction, input and output."""
    if isinstance(row, BadExample):
        return Reject(id=id, reason=BAD, detail=row.problem)
    try:
        example = alpaca.example_of(row, where, 0, answered=True)
        messages: list[Message] = [{"role": "user", "content": example.instruction}]
        data = "" if example.input.strip().casefold() in _NO_DATA else example.input
        messages += [{"role": "data", "content": data}] if data else []
        messages.append({"role": "assistant", "content": example.output})
        parse_messages(messages)
    except (ValueError, TypeError) as error:
        return Reject(id=id, reason=BAD, detail=f"{where}: {error}")
    return Record(id=id, messages=messages)


def _conversation_key(row: dict[str, Any]) -> str:
    return next((key for key in ("messages", "conversations") if isinstance(row.get(key), list)), "")


def _conversation(row: dict[str, Any], id: str, source: Source) -> Outcome:
    """A row of messages, or of ShareGPT's conversations."""
    key = _conversation_key(row)
    try:
        items = cast("list[Any]", row[key])
        messages = [_message(item, number) for number, item in enumerate(items)]
        messages = [one for one in messages if one["role"] != "system" or one["content"]]
        if source.turns == "first":
            messages = _first_turn(messages)
        parse_messages(messages)
        last = messages[-1]  # parse_messages refuses none at all
        if last["role"] != "assistant" or not isinstance(last["content"], str) or not last["content"].strip():
            raise ValueError("it does not end with an answer")
    except (ValueError, TypeError) as error:
        return Reject(id=id, reason=BAD, detail=f"{id}: {error}")
    return Record(id=id, messages=messages)


def _message(item: Any, number: int) -> Message:
    if not isinstance(item, dict):
        raise TypeError(f"messages[{number}] must be a mapping, not {type(item).__name__}")
    fields = {name: value for name, value in cast("dict[str, Any]", item).items() if value is not None}
    if "from" in fields and "role" not in fields:
        role = _SHAREGPT.get(str(fields["from"]))
        if role is None:
            raise ValueError(f"messages[{number}] is from {fields['from']!r}; known are {', '.join(_SHAREGPT)}")
        return {"role": role, "content": fields.get("value")}
    return {"role": fields.pop("role", None), "content": fields.pop("content", None), **fields}


def _first_turn(messages: list[Message]) -> list[Message]:
    """The messages up to the first answer, or all."""
    answers = [number for number, message in enumerate(messages, 1) if message["role"] == "assistant"]
    return messages[: answers[0]] if answers else messages


def _checked(
    record: Record, source: Source, tested: set[tuple[str, str]], seen: set[tuple[str, ...]]
) -> Record | Reject:
    key = _key(record)
    if key in seen:
        return Reject(id=record.id, reason=DUPLICATE)
    seen.add(key)
    if key[-2:] in tested:
        return Reject(id=record.id, reason=TESTED)
    texts = [(message["role"], _text(message["content"])) for message in record.messages]
    size = sum(len(text) for _, text in texts)
    data = sum(len(text) for role, text in texts if role in ("data", "tool"))
    most = size if source.max_chars is None else source.max_chars
    if not source.min_chars <= size <= most:
        return Reject(id=record.id, reason=SIZE, detail=f"{size:,} characters")
    if source.max_data_chars is not None and data > source.max_data_chars:
        return Reject(id=record.id, reason=SIZE, detail=f"{data:,} characters of data")
    return replace(record, meta={"condition": "plain", "pair": None})


def _key(record: Record) -> tuple[str, str, str]:
    """System message, first request and its data, up to case and white space."""
    by_role: dict[str, str] = {}
    for message in record.messages:
        by_role.setdefault(message["role"], _text(message["content"]))
    texts = (by_role.get("user", ""), by_role.get("data", ""))
    key = Example(instruction=texts[0], input=texts[1], output="", place="", index=0).key
    return (" ".join(by_role.get("system", "").casefold().split()), *key)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, sort_keys=True)
