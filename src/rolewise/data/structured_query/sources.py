"""Alpaca-shaped rows from files and from the hub: an instruction, perhaps an input, and an output.

Besides Alpaca's own names, Dolly's (`context`, `response`), Super-NaturalInstructions' (one file a task: `Definition`
and `Instances`) and Self-Instruct's seeds (`instances` in a row) are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rolewise.data.strict_json import Flaw, json_rows

INPUT_NAMES = ("input", "context")
"""What corpora call the data."""
_OUTPUT_NAMES = ("output", "response")


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row of an instruction corpus."""

    instruction: str
    input: str
    """The data; empty when the instruction stands alone."""
    output: str
    place: str
    """Where it stands, for error messages: file:line or file[index]."""
    index: int
    """Its number in the source, from 0."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two rows the same: instruction and input, up to case and white space."""
        return _squeezed(self.instruction), _squeezed(self.input)


@dataclass(frozen=True, kw_only=True)
class BadExample:
    """A row that cannot be used, and why."""

    problem: str
    """The error, with its place."""


def read_examples(source: str, *, split: str = "train", answered: bool = True) -> Iterator[Example | BadExample]:
    """Read a source row by row; a row that cannot be used comes out as a `BadExample`.

    Args:
        source: a file (a JSON array, JSONL, or one Super-NaturalInstructions task), or the name of a hub dataset.
        split: the split of a hub dataset.
        answered: whether a row with an empty output is a bad one.

    Raises:
        FileNotFoundError: when `source` is no file here and no name of a dataset either.
        ValueError: when a file is not text or no JSON, is empty, or its rows have no field for the input at all.
    """
    number = 0
    with_input = False
    problems = 0
    fields: list[str] = []
    for place, value in source_values(source, split):
        for where, row in unfolded_rows(place, value):
            if isinstance(row, BadExample):
                problems += 1
                yield row
                continue
            with_input = with_input or any(name in row for name in INPUT_NAMES)
            fields = fields or sorted(map(str, row))
            try:
                yield example_of(row, where, number, answered)
            except ValueError as error:
                problems += 1
                yield BadExample(problem=f"{where}: {error}")
            number += 1
    if number == 0 and problems == 0:
        raise ValueError(f"{source} holds no rows; it must be a JSON array, JSONL or a task with Instances")
    if number and not with_input:
        raise ValueError(
            f'{source}: no row has the field "input" (nor "context"); the fields are {", ".join(map(repr, fields))}: '
            'rename the one that holds the data, or add "input": "" where there is none'
        )


def example_of(row: Mapping[str, Any], place: str, index: int, answered: bool) -> Example:
    """An Alpaca-shaped row as an example; it raises what `read_examples` gives as a bad one."""
    instruction = _text(row, ("instruction",), row.get("instruction"))
    given = next((row[name] for name in INPUT_NAMES if row.get(name) is not None), "")
    data = _text(row, INPUT_NAMES, given, empty=True)
    output = _text(
        row, _OUTPUT_NAMES, next((row[name] for name in _OUTPUT_NAMES if name in row), None), empty=not answered
    )
    return Example(instruction=instruction, input=data if data.strip() else "", output=output, place=place, index=index)


def _text(row: Mapping[str, Any], names: tuple[str, ...], value: Any, *, empty: bool = False) -> str:
    if isinstance(value, str) and (empty or value.strip()):
        return value
    if value is None:
        name = " or ".join(f'"{name}"' for name in names)
        raise ValueError(f"no {name}; the fields are {', '.join(map(repr, sorted(map(str, row)))) or 'none'}")
    name = next(name for name in names if row.get(name) is value)
    if isinstance(value, str):
        raise ValueError(f'"{name}" is empty')
    what = f"{type(value).__name__} {_short(value)}"
    raise ValueError(f'"{name}" must be text{"" if empty else " that is not empty"}, not {what}')


def unfolded_rows(place: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any] | BadExample]]:
    """The rows in one JSON value: itself, or the instances of a task."""
    if isinstance(value, BadExample):
        yield place, value
        return
    if not isinstance(value, dict):
        yield place, BadExample(problem=f"{place}: a row must be a JSON object, not {type(value).__name__}")
        return
    row = cast("dict[str, Any]", value)
    name = next((name for name in ("Instances", "instances") if name in row), None)
    if name is None:
        yield place, row
        return
    instruction, instances = row.get("Definition", row.get("instruction")), row[name]
    if isinstance(instruction, list) and instruction:
        instruction = cast("list[Any]", instruction)[0]
    if not isinstance(instances, list):
        yield place, BadExample(problem=f'{place}: "{name}" must be a list, not {type(instances).__name__}')
        return
    for number, instance in enumerate(cast("list[Any]", instances)):
        where = f"{place}.{name}[{number}]"
        if not isinstance(instance, dict):
            yield where, BadExample(problem=f"{where}: an instance must be a JSON object")
            continue
        fields = cast("dict[str, Any]", instance)
        output: Any = fields.get("output")
        if isinstance(output, list):  # several right answers; the first stands for them
            output = cast("list[Any]", output)[0] if output else None
        yield where, {"instruction": instruction, "input": fields.get("input", ""), "output": output}


def source_values(source: str, split: str) -> Iterator[tuple[str, Any]]:
    """The values of a file (JSON or JSONL) or of a hub data set, each with its place; no shape is asked for yet.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is a directory, or not text.
    """
    from rolewise.training.rows import rows_from_hub

    if not source.strip():
        raise ValueError("a source is empty; name a file or a hub dataset")
    path = Path(source).expanduser()
    if path.is_dir():
        raise ValueError(f"{source!r} is a directory; name the .json or .jsonl files in it")
    if not path.is_file():
        if path.suffix in (".json", ".jsonl") or source.startswith((".", "/", "~")) or source.count("/") > 1:
            raise FileNotFoundError(f"no data at {source!r}: the file does not exist (and it is no hub dataset's name)")
        yield from rows_from_hub(source, split)
        return
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    for place, value in json_rows(source, text):
        yield place, BadExample(problem=f"{place}: {value.problem}") if isinstance(value, Flaw) else value


def _squeezed(text: str) -> str:
    return " ".join(text.casefold().split())


def _short(value: object, length: int = 60) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= length else text[: length - 1] + "…")
