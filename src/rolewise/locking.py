"""Two processes that write one file would write each other's lines apart: the second is refused."""

from __future__ import annotations

from pathlib import Path
from typing import IO


def lock_file(file: IO[bytes] | int, path: Path, *, writer: str) -> None:
    """Lock an open file until it is closed; the end of the process unlocks it, however it ends.

    Where there are no such locks (not a POSIX system) nothing is locked.

    Args:
        file: the open file, or its descriptor.
        path: its name, for the error.
        writer: who else may be writing it, as the error calls them.

    Raises:
        BlockingIOError: when another process holds the lock.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(f"another {writer} is writing {path}; wait for it, or stop it") from error
