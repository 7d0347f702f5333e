"""Answers on disk as they come: a partial file that survives a kill, and the finished file that replaces it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rolewise.data.jsonl import write_jsonl
from rolewise.locking import lock_file


class AnswerFile:
    """The answers to rows that `keys` identify, by index; open it with `with`.

    `OUT.partial` next to the output has a JSON line {"row", "key", "answer"} an answer. Opening it keeps the complete
    lines whose key is still their row's, and drops the rest: a line that a kill cut short, other settings.

    Raises:
        ValueError: when the partial file is not one of ours.
        BlockingIOError: when another process is writing it.
        OSError: when it cannot be written.
    """

    def __init__(self, output: Path, keys: Sequence[str]) -> None:
        self.output = output
        self.path = self.partial_path(output)
        self.known: dict[int, str] = {}
        """Answers by the index of their row."""
        self.foreign = 0
        """Complete answers in the partial file that are of other rows or settings."""
        self._keys = keys
        self._file: io.BufferedRandom | None = None

    @staticmethod
    def partial_path(output: Path) -> Path:
        """Where the answers are kept until all are there."""
        return output.with_name(output.name + ".partial")

    def __enter__(self) -> Self:
        self._file = open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            lock_file(self._file, self.path, writer="rolewise generate")
            kept = self._read(self._file.read())
            self._file.seek(0)
            self._file.truncate()
            self._file.write(kept)
            self._file.flush()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        with contextlib.suppress(OSError):  # a full disk was reported by the write that failed
            self._file.close()
        if not self.known and self.path.exists():
            self.path.unlink()

    def add(self, index: int, answer: str) -> None:
        """Keep an answer."""
        assert self._file is not None, "open the file first"
        self._file.write(_line(index, self._keys[index], answer))
        self._file.flush()
        self.known[index] = answer

    def finish(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put the finished output in place, whole or not at all, and take the partial file away."""
        write_jsonl(rows, self.output)
        self.path.unlink(missing_ok=True)

    def _read(self, content: bytes) -> bytes:
        kept: list[bytes] = []
        *lines, cut_short = content.split(b"\n")
        for line in lines:
            try:
                entry = json.loads(line)
                index, key, answer = int(entry["row"]), entry["key"], str(entry["answer"])
            except (ValueError, KeyError, TypeError, RecursionError):
                raise ValueError(f"{self.path} is in the way: it holds something else; move or delete it") from None
            if 0 <= index < len(self._keys) and self._keys[index] == key:
                self.known[index] = answer
                kept.append(line + b"\n")
            else:
                self.foreign += 1
        if not cut_short.startswith(b'{"row": '[: len(cut_short)]):
            raise ValueError(f"{self.path} is in the way: it holds something else; move or delete it")
        return b"".join(kept)


def settings_key(settings: Mapping[str, Any]) -> str:
    """A short hash of what decides the answers, besides the conversations."""
    return _hash(settings)


def conversation_key(
    settings: str, messages: Sequence[Any], tools: Sequence[Any] | None, documents: Sequence[Any] | None = None
) -> str:
    """A short hash of what decides one answer."""
    return _hash([settings, messages, tools, documents])


def finished_as(output: Path, keys: Sequence[str]) -> bool:
    """Whether a finished output holds the answers to exactly these rows, in order."""
    try:
        rows = [json.loads(line) for line in output.read_text(encoding="utf-8").split("\n") if line]
        return [row["meta"]["rolewise"]["key"] for row in rows] == list(keys)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def model_stamp(name: str) -> str | None:
    """What changes when the weights of a local model are replaced; None for the packaged one and the hub's."""
    path = Path(name).expanduser()
    files = [path] if path.is_file() else sorted([*path.glob("*.safetensors"), *path.glob("*config.json")])
    if not files:
        return None
    return _hash([[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files])


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _line(index: int, key: str, answer: str) -> bytes:
    return json.dumps({"row": index, "key": key, "answer": answer}).encode() + b"\n"
