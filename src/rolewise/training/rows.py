"""Read training rows: conversations or Alpaca-shaped rows, from JSONL, JSON or a hub dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from rolewise.data.strict_json import Flaw, json_rows, json_value
from rolewise.hub import unreachable
from rolewise.messages import REASONING_FIELDS

RowFormat = Literal["auto", "conversations", "alpaca"]

_CONVERSATION_KEYS = frozenset({"messages", "tools", "documents", "meta"})
_ALPACA_KEYS = ("instruction", "input", "output")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One training conversation."""

    messages: list[dict[str, Any]]
    """OpenAI-style messages, at least one of them the assistant's."""
    tools: list[Any] | None = None
    """Tool descriptions, if the conversation has any."""
    documents: list[Any] | None = None
    """Documents, for templates that take them."""
    place: str
    """Where the row stands, for error messages: file:line."""


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """A row that cannot be used, and why."""

    problem: str
    """The error, with its place."""


def read_rows(source: str, *, split: str = "train", form: RowFormat = "auto") -> Iterator[Row | BadRow]:
    """Read rows one by one; a row that cannot be used comes out as a `BadRow`, for the caller to raise or count.

    Args:
        source: a file of JSONL, or of one JSON array; or the name of a hub dataset, when no such file exists.
        split: the split of a hub dataset.
        form: the shape of a row; "auto" takes it from the row's keys.

    Raises:
        FileNotFoundError: when `source` is no file here and no name of a dataset either.
        ValueError: when a file is not text, or is a JSON document other than an array.
        ImportError: when a hub dataset is named and `datasets` is not installed.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        raise ValueError(f"{source!r} is a directory; name a .jsonl or .json file in it")
    if path.is_file():
        pairs: Iterable[tuple[str, Any]] = _from_file(path)
        strict = True
    elif path.suffix or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise FileNotFoundError(f"no data at {source!r}: the file does not exist (and it is no hub dataset's name)")
    else:
        pairs, strict = rows_from_hub(source, split), False
    for place, value in pairs:
        if isinstance(value, Flaw):
            yield BadRow(problem=f"{place}: {value.problem}")
            continue
        try:
            yield parse_row(value, place=place, form=form, strict=strict)
        except (ValueError, TypeError) as error:
            yield BadRow(problem=f"{place}: {error}")


def parse_row(value: Any, *, place: str, form: RowFormat = "auto", strict: bool = True) -> Row:
    """One row from its JSON value.

    Args:
        value: {"messages": [...], "tools": [...]?, "documents": [...]?, "meta": anything?}, or
            {"instruction": ..., "input": ...?, "output": ...}: instruction -> user, input -> data (dropped when
            empty), output -> assistant, as Structured Query has it.
        place: where the row stands.
        form: the shape to expect.
        strict: whether a conversation may have no keys but those above.

    Raises:
        ValueError: naming the key that is missing, unknown or of another kind.
    """
    if not isinstance(value, dict):
        hint = '; wrap it: {"messages": [...]}' if isinstance(value, list) else ""
        raise ValueError(f"a row must be a JSON object, not {type(value).__name__}{hint}")
    row = cast("dict[str, Any]", value)
    if "role" in row and "messages" not in row:
        raise ValueError('a row must be a whole conversation, not one message; wrap them: {"messages": [...]}')
    if form == "auto":
        form = "conversations" if "messages" in row else "alpaca" if "instruction" in row else "auto"
    if form == "conversations":
        return _conversation(row, place, strict)
    if form == "alpaca":
        return _alpaca(row, place)
    raise ValueError(f'a row needs "messages", or "instruction" and "output" (Alpaca), but has the keys {sorted(row)}')


def _conversation(row: dict[str, Any], place: str, strict: bool) -> Row:
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError(f'"messages" must be a list of at least one message, not {_short(messages)}')
    if strict and (unknown := sorted(row.keys() - _CONVERSATION_KEYS)):
        raise ValueError(
            f"unknown key{'s' * (len(unknown) > 1)} {', '.join(unknown)}; a conversation has "
            f'{", ".join(sorted(_CONVERSATION_KEYS))}: put what is not for the model under "meta"'
        )
    answers = [
        (index, cast("dict[str, Any]", message))
        for index, message in enumerate(cast("list[Any]", messages))
        if isinstance(message, dict) and cast("dict[str, Any]", message).get("role") == "assistant"
    ]
    if not answers:
        raise ValueError("no assistant message, so there is nothing to learn; add the answer or leave the row out")
    for index, answer in answers:
        if not any(_says_something(answer.get(key)) for key in ("content", "tool_calls", *REASONING_FIELDS)):
            raise ValueError(
                f"messages[{index}] (assistant) is empty, which would train the model to end its turn at once; "
                "give it text, or leave the row out"
            )
    return Row(messages=messages, tools=row.get("tools") or None, documents=row.get("documents") or None, place=place)


def _alpaca(row: dict[str, Any], place: str) -> Row:
    for key in _ALPACA_KEYS:
        text = row.get(key)
        if key == "input" and text is None:
            continue
        if not isinstance(text, str) or (key != "input" and not text.strip()):
            raise ValueError(f'"{key}" must be a string that is not empty, not {_short(text)}')
    messages = [{"role": "user", "content": row["instruction"]}]
    if (row.get("input") or "").strip():
        messages.append({"role": "data", "content": row["input"]})
    messages.append({"role": "assistant", "content": row["output"]})
    return Row(messages=messages, place=place)


def _from_file(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            start = file.read(4096).lstrip("\ufeff \t\r\n")[:1]
            file.seek(0)
            if start == "[":
                yield from json_rows(str(path), file.read().lstrip("\ufeff"))
                return
            for number, line in enumerate(file, 1):
                if text := line.lstrip("\ufeff").strip():  # a line at a time: training data may be large
                    if text == "{":
                        raise ValueError(
                            f"{path}:{number}: a row begins here and goes on in the next line; put each row on a line "
                            "of its own (JSONL), or an array around them all"
                        )
                    value = json_value(text)
                    yield f"{path}:{number}", _quoted(value, text) if isinstance(value, Flaw) else value
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    except PermissionError as error:
        raise PermissionError(f"no permission to read {path}") from error


def _quoted(flaw: Flaw, text: str) -> Flaw:
    return Flaw(problem=f"{flaw.problem}: {_short(text)}")


def rows_from_hub(name: str, split: str) -> Iterator[tuple[str, Any]]:
    """The rows of a split of a hub data set, each with what to call it in an error."""
    try:
        import datasets
        import datasets.config
    except ImportError as error:
        raise ImportError(
            f"{name!r} is no file here; reading it from the hub needs datasets: in your clone of Rolewise, "
            "pip install -e '.[train]'"
        ) from error
    cached = Path(datasets.config.HF_DATASETS_CACHE) / name.replace("/", "___")
    if not cached.exists() and (why := unreachable()):  # the hub's client would try for half a minute
        raise FileNotFoundError(
            f"no data {name!r}: it is not a file here, and the hub cannot be reached ({why}); check the name, or the "
            "network"
        )
    try:
        rows: Any = datasets.load_dataset(name, split=split)
    except Exception as error:
        raise FileNotFoundError(
            f"no data {name!r}: it is not a file here, and the hub did not give its split {split!r} "
            f"({type(error).__name__}: {_short(str(error), 200)})"
        ) from error
    for index, value in enumerate(rows):
        yield f"{name}/{split}[{index}]", value


def _says_something(value: Any) -> bool:
    """Whether a field of an assistant's message holds more than white space: text, parts with text, or calls."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return any(_says_something(item["text"]) if _is_part(item) else bool(item) for item in items)
    return value is not None


def _is_part(item: Any) -> bool:
    return isinstance(item, dict) and "text" in item


def _short(value: object, length: int = 60) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= length else text[: length - 1] + "…")
