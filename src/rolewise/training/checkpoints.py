"""Checkpoints that are complete or absent, and clear errors from a disk that is full or closed."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PREFIX = "checkpoint-"
_MARKER = "complete.json"


def write_json(path: Path, value: Any) -> None:
    """Write `value` whole or not at all."""
    staging = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with staging.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(staging, path)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise


def mark_complete(checkpoint: Path) -> None:
    """Say that all files of `checkpoint` are written; their sizes are kept, so that a cut one is seen later."""
    write_json(checkpoint / _MARKER, {"sizes": _sizes(checkpoint)})


def is_complete(checkpoint: Path) -> bool:
    """Whether `mark_complete` was reached and no file was lost or cut since."""
    try:
        sizes = json.loads((checkpoint / _MARKER).read_text(encoding="utf-8"))["sizes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # absent, cut short, or something else
        return False
    return sizes == _sizes(checkpoint)


def checkpoints(directory: Path) -> list[Path]:
    """All checkpoint directories, complete or not, oldest step first."""
    found = [path for path in directory.glob(f"{_PREFIX}*") if path.is_dir() and path.name[len(_PREFIX) :].isdigit()]
    return sorted(found, key=lambda path: int(path.name[len(_PREFIX) :]))


def newest_complete(directory: Path) -> Path | None:
    """The checkpoint to resume from: the newest that is whole and was not written after a loss became NaN."""
    return next((path for path in reversed(checkpoints(directory)) if is_complete(path) and _is_finite(path)), None)


def _is_finite(checkpoint: Path) -> bool:
    """Whether all that was logged before this checkpoint is finite (Rolewise 0.1.0 also wrote others)."""
    try:
        history = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
        values = [value for entry in history for value in entry.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return True
    return all(math.isfinite(value) for value in values if isinstance(value, float))


def remove_incomplete(directory: Path) -> list[Path]:
    """Delete what a killed run left half-written; returns what was deleted."""
    broken = [path for path in checkpoints(directory) if not is_complete(path)]
    for path in broken:
        shutil.rmtree(path)
    return broken


def rotate(directory: Path, keep: int) -> None:
    """Delete all complete checkpoints but the newest `keep`; 0 keeps all."""
    if keep:
        for path in [path for path in checkpoints(directory) if is_complete(path)][:-keep]:
            # Without its marker first, so that a kill half-way leaves nothing that resume would take.
            (path / _MARKER).unlink()
            shutil.rmtree(path)


def require_writable(directory: Path) -> None:
    """Make `directory` and try to write in it.

    Raises:
        PermissionError: when that fails; the message names the directory and the remedy.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"rolewise")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(directory) from error
        raise PermissionError(
            f"cannot write to output_dir {str(directory)!r} ({error.strerror or error}); "
            "name another one, or change its owner or permissions"
        ) from error


def require_space(directory: Path, needed: int) -> None:
    """Refuse to start what the disk has no room for.

    Raises:
        OSError: (ENOSPC) when fewer than `needed` bytes are free.
    """
    if shutil.disk_usage(directory).free < needed:
        raise _full(directory, needed)


@contextmanager
def whole_or_absent(checkpoint: Path, *, owner: bool) -> Generator[None]:
    """Delete `checkpoint` when writing it fails (on the process that owns it), and explain a full disk."""
    try:
        with explained_disk(checkpoint.parent):
            yield
    except Exception:
        if owner:
            shutil.rmtree(checkpoint, ignore_errors=True)
        raise


@contextmanager
def explained_disk(directory: Path) -> Generator[None]:
    """Explain a full disk.

    Raises:
        OSError: (ENOSPC) in place of the many errors that libraries raise on a full disk.
    """
    try:
        yield
    except Exception as error:
        if is_disk_full(error):
            raise _full(directory) from error
        raise


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, comes from a full disk (torch and safetensors wrap it)."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        text = str(error)
        if "No space left" in text or "os error 28" in text or "unexpected pos" in text:
            return True
        error = error.__cause__ or error.__context__
    return False


def _full(directory: Path, needed: int | None = None) -> OSError:
    free = shutil.disk_usage(directory).free if directory.exists() else 0
    need = f"; about {needed / 1e9:.2f} GB are needed" if needed else ""
    return OSError(
        errno.ENOSPC,
        f"the disk is full: {free / 1e9:.2f} GB are free{need}. Free some space (or keep fewer checkpoints with "
        "keep_checkpoints), then start the same command again: it goes on from the last complete checkpoint",
        str(directory),
    )


def _sizes(checkpoint: Path) -> dict[str, int]:
    return {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path.name != _MARKER and not path.name.startswith(f".{_MARKER}-")
    }
