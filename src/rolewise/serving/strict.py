"""A request's JSON, read strictly and in linear time: the first flaw ends it.

`rolewise.data.strict_json` reads files, and goes on to the next row; here nobody waits for what follows a flaw.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, cast


class Allowance:
    """How many values may still come.

    Args:
        values: objects, arrays, strings, numbers and so on; keys count with their values.
    """

    def __init__(self, values: int) -> None:
        self._values = self._left = values

    def take(self, values: int) -> None:
        """Some have come.

        Raises:
            ValueError: when there are too many.
        """
        self._left -= values
        if self._left < 0:
            raise ValueError(f"more than the {self._values} values that this server takes; send fewer")


def read_json(data: bytes | str, *, max_depth: int, allowance: Allowance) -> Any:
    """One JSON value.

    Args:
        data: UTF-8, if it is bytes.
        max_depth: how many objects and arrays may be nested.
        allowance: from which its values are taken.

    Raises:
        ValueError: when it is no JSON, holds a key twice, NaN, a number that cannot be kept or a lone surrogate, is
            nested too deeply, or has too many values.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error.msg} at line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    # Half a pair can only come from an escape: UTF-8 has none.
    _check(value, max_depth, allowance, surrogates="\\u" in text)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:80]!r} stands there twice; keep one of them")
            seen.add(key)
    return found


def _integer(digits: str) -> int:
    if len(digits) > 40:  # no field takes that many, and converting them takes the square of their number
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _number(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number too large to be kept; write it as text")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; write null, or leave it out")


def _check(value: Any, max_depth: int, allowance: Allowance, *, surrogates: bool) -> None:
    """Depth, number, and halves of surrogate pairs; without recursion, as what is checked may be deep."""
    level: list[Any] = [value]
    depth = 0
    while level:
        allowance.take(len(level))
        nested: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                fields = cast("dict[str, Any]", one)
                if surrogates:
                    for key in fields:
                        _check_text(key)
                nested += fields.values()
            elif isinstance(one, list):
                nested += cast("list[Any]", one)
            elif surrogates and isinstance(one, str):
                _check_text(one)
        if depth == max_depth and any(isinstance(one, dict | list) for one in level):
            raise _too_deep(max_depth)
        level, depth = nested, depth + 1


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the lone surrogate {text[error.start]!a} at character {error.start} of a text, which no tokenizer "
                "can encode; send the whole character, or leave it out"
            ) from None


def _too_deep(limit: int) -> ValueError:
    return ValueError(f"nested more than {limit} levels deep; flatten it")
