"""Paid answers on disk as they come: a process killed at any moment has lost none of them.

Each answer is a line of its own. It is handed to the system before it is used, so that a kill cannot take it back, and
forced onto the disk every few seconds, so that a power failure takes little. A line that either cut short is dropped.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from rolewise.data.teacher.requests import Answer
from rolewise.locking import lock_file

SYNC_SECONDS = 5.0
"""How often answers are forced onto the disk."""

_BEGIN = b'{"key": '


class AnswerCache:
    """Answers by key, in a JSONL file; open it with `with`.

    Args:
        path: the file; it is made with its directory, and taken away again when no answer came.

    Raises:
        ValueError: when the file is not one of ours.
        BlockingIOError: when another process is writing it.
        OSError: when it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.tokens = 0
        """Of all answers in it."""
        self._known: dict[str, Answer] = {}
        self._file: io.BufferedRandom | None = None
        self._synced = 0.0

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            lock_file(self._file, self.path, writer="run")
            content = self._file.read()
            *whole, cut_short = content.split(b"\n")
            for line in whole:
                self._read(line)
            if not _is_ours(cut_short):
                raise _in_the_way(self.path)
            self._file.seek(len(content) - len(cut_short))
            self._file.truncate()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        with contextlib.suppress(OSError):  # a full disk was reported by the write that failed
            self._file.flush()
            os.fsync(self._file.fileno())
            if not self._file.tell():
                self.path.unlink()  # while it is still locked
        with contextlib.suppress(OSError):
            self._file.close()
        self._file = None

    def get(self, key: str) -> Answer | None:
        """The answer under `key`, or None."""
        return self._known.get(key)

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer; when this returns, a kill cannot take it back."""
        assert self._file is not None, "open the cache first"
        self._file.write(json.dumps({"key": key, "answer": asdict(answer)}).encode() + b"\n")
        self._file.flush()
        if time.monotonic() - self._synced > SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()
        self._know(key, answer)

    def _read(self, line: bytes) -> None:
        if not _is_ours(line):
            raise _in_the_way(self.path)
        try:
            entry = json.loads(line.strip(b"\0"))
            self._know(entry["key"], Answer(**entry["answer"]))
        except (ValueError, KeyError, TypeError):
            return  # damaged: asked again

    def _know(self, key: str, answer: Answer) -> None:
        self.tokens += answer.tokens  # also of one that stands there twice: both were paid for
        self._known[key] = answer


def _is_ours(line: bytes) -> bool:
    line = line.strip(b"\0")  # a power failure leaves zeros where a line was to be; ours hold none
    return line.startswith(_BEGIN[: len(line)])


def _in_the_way(path: Path) -> ValueError:
    return ValueError(f"{path} is in the way: it holds something other than a teacher's answers; move or delete it")
