"""Rows of JSON files as they are, with what JSON's reader would let through or trip over named row by row."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

MAX_DEPTH = 200
"""How deep a row may be nested: what is read must be written again, by code that recurses."""


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """What stands in place of a row, or of a value in it, that cannot be used."""

    problem: str


def json_value(text: str) -> Any:
    """One JSON value as it is, or the first `Flaw` in it (see `json_rows`)."""
    return _checked(_parsed(text))


def json_rows(
    name: str, text: str, *, single: Callable[[list[Any]], bool] = lambda values: False
) -> Iterator[tuple[str, Any]]:
    """The rows of a JSON array, of JSONL, or of one JSON value, each with its place: file:line, or file[index].

    A row that is no JSON, holds a key twice, NaN, a number of too many digits or a lone surrogate, or is nested too
    deeply, comes out as a `Flaw`.

    Args:
        name: the file's, for the places.
        text: what is in it.
        single: whether an array that is not empty is one row, not rows.

    Raises:
        ValueError: when the file is empty, or is no JSON as a whole.
    """
    if not text.strip():
        raise ValueError(f"{name} is empty; it must hold JSON or JSONL")
    document = _parsed(text)
    if isinstance(document, _Unread):
        # Only line feeds separate rows: str.splitlines would also split at separators inside strings.
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or not _starts_jsonl(text, lines[0][1]):
            several = "Extra data" in document.problem
            remedy = "; each of several values needs a line of its own, or an array around them all" if several else ""
            raise ValueError(f"{name}:{document.line}: {document.problem}{remedy}")
        for number, line in lines:
            yield f"{name}:{number}", _checked(_parsed(line))
    elif isinstance(document, list) and not (document and single(cast("list[Any]", document))):
        for index, value in enumerate(cast("list[Any]", document)):
            yield f"{name}[{index}]", _checked(value)
    else:
        yield f"{name}:1", _checked(document)


def _starts_jsonl(text: str, line: str) -> bool:
    """Whether the first line is a row: not the first line of one JSON value over several lines."""
    return line.strip() != "{" and (text.lstrip()[0] == "{" or not isinstance(_parsed(line), _Unread))


@dataclass(frozen=True, kw_only=True)
class _Unread(Flaw):
    """Text that cannot be read at all."""

    line: int = 1


def _parsed(text: str) -> Any:
    """The value, with a `Flaw` in place of what is wrong inside it."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant)
    except json.JSONDecodeError as error:
        return _Unread(problem=f"not valid JSON ({error.msg} at column {error.colno})", line=error.lineno)
    except RecursionError:
        return _Unread(problem=f"nested more than {MAX_DEPTH} levels deep; flatten it, or leave the row out")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | Flaw:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen = set[str]()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))
    return Flaw(problem=f"the key {twice!r} stands there twice; keep one of them")


def _integer(digits: str) -> int | Flaw:
    try:
        return int(digits)
    except ValueError:  # Python converts no more than so many
        return Flaw(problem=f"a number of {len(digits):,} digits, more than {sys.get_int_max_str_digits():,}")


def _constant(name: str) -> Flaw:
    return Flaw(problem=f"{name} is no JSON; write null, or leave it out")


def _checked(row: Any) -> Any:
    """The row, or the first flaw in it with its path."""
    if isinstance(row, _Unread):
        return row
    left: list[tuple[Any, str, int]] = [(row, "", 0)]
    while left:  # no recursion: rows come nested as deeply as they like
        value, where, depth = left.pop()
        problem = ""
        if isinstance(value, Flaw):
            problem = value.problem
        elif isinstance(value, str):
            problem = _unpaired(value)
        elif isinstance(value, float) and not math.isfinite(value):
            problem = "a number too large to be kept; write it as text"
        elif isinstance(value, dict | list) and depth == MAX_DEPTH:
            where, problem = "", f"nested more than {MAX_DEPTH} levels deep; flatten it, or leave the row out"
        elif isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            left += [(item, f"{where}.{key}" if where else key, depth + 1) for key, item in reversed(fields.items())]
            problem = next(filter(None, map(_unpaired, fields)), "")
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            left += [(item, f"{where}[{at}]", depth + 1) for at, item in reversed(list(enumerate(items)))]
        if problem:
            return Flaw(problem=f"{where[:80]!a}: {problem}" if where else problem)
    return row


def _unpaired(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            found = f"the lone surrogate {text[error.start]!a} at character {error.start}"
            return f"{found}, which no file can hold; write the whole character, or leave it out"
    return ""
