"""Finished stages on disk: whole or not there, found again by what they were made of."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Self

import rolewise
from rolewise.data.hierarchy.records import Outcome, Record, Reject
from rolewise.data.jsonl import write_jsonl
from rolewise.locking import lock_file

SHARD_ROWS = 10_000

_DONE = "done.json"


def fingerprint(*parts: Any) -> str:
    """A hash of plain values and of the code that makes rows: what another version has finished is made anew."""
    return hashlib.sha256(json.dumps([_code(), *parts], sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _code() -> str:
    package = Path(rolewise.__file__).parent
    paths = [*package.glob("data/**/*.py"), *package.glob("attacks/*.py"), package / "samples.py"]
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def rows_digest(records: Iterable[Record]) -> str:
    """A hash of rows in their order."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record.row, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


class Store:
    """Finished stages in a directory; use it with `with`. Recipes may share it, one after the other: a stage is found
    by name and fingerprint.

    Args:
        directory: made when it is not there.

    Raises:
        BlockingIOError: when another run has it open.
        OSError: when it cannot be made or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: Any = None

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self.directory / "lock").open("w")
        try:
            lock_file(self._lock, self.directory, writer="run")
        except BaseException:
            self._lock.close()
            raise
        for partial in self.directory.glob(".*.partial"):  # of a run that was killed
            shutil.rmtree(partial, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def load(self, name: str, mark: str) -> list[Outcome] | None:
        """What the stage came to, or None where it is not finished, or was damaged since."""
        folder = self._folder(name, mark)
        try:
            done = json.loads((folder / _DONE).read_text(encoding="utf-8"))
            return [*self._read(folder, done["rows"], Record.of_row), *self._read(folder, done["rejects"], _reject)]
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def keep(self, name: str, mark: str, outcomes: Iterable[Outcome]) -> None:
        """Keep a finished stage: shards first, then all at once under its name."""
        records: list[Record] = []
        rejects: list[Reject] = []
        for one in outcomes:
            records.append(one) if isinstance(one, Record) else rejects.append(one)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".partial", dir=self.directory))
        try:
            done = {
                "rows": self._write(partial, "rows", (record.row for record in records)),
                "rejects": self._write(partial, "rejects", map(asdict, rejects)),
            }
            write_jsonl([done], partial / _DONE)
            folder = self._folder(name, mark)
            shutil.rmtree(folder, ignore_errors=True)  # damaged, or `load` would have found it
            os.replace(partial, folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def _folder(self, name: str, mark: str) -> Path:
        return self.directory / f"{name}-{mark}"

    def _write(self, folder: Path, kind: str, rows: Iterable[dict[str, Any]]) -> dict[str, str]:
        """The shards' names and hashes."""
        shards: dict[str, str] = {}
        left = iter(rows)
        while shard := list(islice(left, SHARD_ROWS)):
            path = folder / f"{kind}-{len(shards):05}.jsonl"
            write_jsonl(shard, path)
            shards[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return shards

    def _read(self, folder: Path, shards: dict[str, str], build: Any) -> Iterator[Any]:
        for name, digest in shards.items():
            content = (folder / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError(f"{folder / name} was changed")
            yield from (build(json.loads(line)) for line in content.splitlines())


def _reject(fields: dict[str, Any]) -> Reject:
    return Reject(**fields)
