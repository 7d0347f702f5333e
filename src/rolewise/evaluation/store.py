"""Answers kept on disk as they come, so that a killed evaluation asks nothing twice, whatever the model.

inspect_ai keeps finished samples of a run, but a run that was killed loses those that were not written yet, and a
log that was cut off in the middle. Here each answer is a line of its own, appended when it is there, under a hash of
all that decides it: model, settings and conversation. A line that a kill cut short is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class AnswerStore:
    """Values by content hash, in a JSONL file.

    Args:
        path: the file; it is made with its directory when the first value comes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._known: dict[str, Any] = {}
        self._file: Any = None
        content = self.path.read_bytes() if self.path.exists() else b""
        for line in content.split(b"\n"):
            try:
                entry = json.loads(line)
                self._known[entry["key"]] = entry["value"]
            except (ValueError, KeyError, TypeError):
                continue  # empty, or cut short by a kill: asked again
        self._ends_a_line = not content or content.endswith(b"\n")

    def get(self, key: str) -> Any:
        """The value under `key`, or None."""
        return self._known.get(key)

    def put(self, key: str, value: Any) -> None:
        """Keep a value, on disk before this returns."""
        line = json.dumps({"key": key, "value": value}, ensure_ascii=False).encode() + b"\n"
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
            if not self._ends_a_line:
                self._file.write(b"\n")
        self._file.write(line)
        self._file.flush()
        self._known[key] = value

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def content_key(*parts: Any) -> str:
    """A hash of JSON values."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def told_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The model arguments that decide answers: not how many rows are computed together, nor where, nor a mock's own."""
    return {name: value for name, value in arguments.items() if name not in _NOT_TOLD}


_NOT_TOLD = ("batch_size", "device", "custom_outputs")


_open: dict[Path, AnswerStore] = {}


def open_store(path: str | os.PathLike[str]) -> AnswerStore:
    """The store at `path`, opened once a process."""
    place = Path(path).resolve()
    if place not in _open:
        _open[place] = AnswerStore(place)
    return _open[place]


def close_stores() -> None:
    """Close all that were opened."""
    while _open:
        _open.popitem()[1].close()
