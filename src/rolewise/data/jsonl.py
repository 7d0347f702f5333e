"""Writing rows to disk."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_jsonl(rows: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]) -> int:
    """Write one JSON object a line, and return the number of lines.

    The file appears whole or not at all: rows go to a temporary file in the same directory, which then takes the
    name. The same rows give the same bytes on any machine (UTF-8, line feeds, keys in their given order).

    Raises:
        OSError: when the directory cannot be made or written, or the disk is full; nothing is left behind.
        TypeError, ValueError: when a row cannot be written as JSON (NaN included), naming the row.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        count = 0
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            for count, row in enumerate(rows, start=1):
                try:
                    line = json.dumps(row, ensure_ascii=False, allow_nan=False)
                except (TypeError, ValueError) as error:
                    raise type(error)(f"row {count} cannot be written as JSON: {error}") from error
                file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; give the row file the mode that an ordinary open would have.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return count
