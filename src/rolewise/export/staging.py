"""A directory that appears whole or not at all, and a disk that has room for it."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rolewise.training.checkpoints import is_disk_full

EXPORT_FILE = "rolewise_export.json"
"""In every exported directory: what was exported, how, and what it cost."""


def check_target(target: Path, source: Path, *, overwrite: bool) -> None:
    """Refuse a directory that holds anything, unless it is an earlier export that may be replaced.

    Raises:
        NotADirectoryError: when `target` is a file.
        PermissionError: when nothing can be written there.
        FileExistsError: when it holds files, and `overwrite` is off or they are no export of ours.
        ValueError: when it is the model that is to be exported, or a directory above it.
    """
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{str(target)!r} is a file; name a directory with -o")
    if not os.access(home := _existing(target.parent), os.W_OK | os.X_OK):  # said before minutes of work
        raise PermissionError(errno.EACCES, "cannot be written to; name a directory elsewhere with -o", str(home))
    _bring_back(target)
    if source.exists() and source.resolve().is_relative_to(target.resolve()):
        raise ValueError(f"-o {str(target)!r} is, or holds, the model that is exported; name another directory")
    if not target.exists() or not any(target.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(f"{str(target)!r} is not empty; name another directory, or replace it with --overwrite")
    if not (target / EXPORT_FILE).is_file():
        raise FileExistsError(
            f"{str(target)!r} holds something else than an export (it has no {EXPORT_FILE}), which --overwrite does "
            "not replace; name another directory, or empty this one"
        )


def require_space(target: Path, needed: int) -> None:
    """Refuse to begin what the disk has no room for.

    Raises:
        OSError: (ENOSPC) when fewer than `needed` bytes are free.
    """
    if shutil.disk_usage(_existing(target)).free < needed:
        raise _full(target, needed)


@contextmanager
def staged(target: Path) -> Generator[Path]:
    """A directory to fill beside `target`, which takes its place when the block ends well, and else is deleted.

    What an export that was killed has left there is deleted, too.

    Raises:
        OSError: when the directory cannot be made, or (ENOSPC) when the disk is full.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    staging = target.with_name(f".{target.name}.exporting-{os.getpid()}")
    staging.mkdir()
    lock = _lock(staging)
    try:
        yield staging
        _open_to_readers(staging)
        _put_in_place(staging, target)
    except Exception as error:
        if is_disk_full(error):
            raise _full(target) from error
        if _is_too_large(error):
            raise OSError(
                errno.EFBIG,
                "a file grew larger than the disk's file system or a limit (ulimit -f) allows; write smaller ones with "
                "--max-shard-size, such as 2GB; nothing half-written was left",
                str(target),
            ) from error
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _put_in_place(staging: Path, target: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        os.rename(staging, target)
        return
    replaced = target.with_name(f".{target.name}.replaced-{os.getpid()}")
    os.rename(target, replaced)
    try:
        os.rename(staging, target)
    except OSError:
        os.rename(replaced, target)
        raise
    os.rename(replaced, staging)  # deleted under a name from which nobody brings back what is half there


def _bring_back(target: Path) -> None:
    """Undo a replacement that was killed when the earlier export was aside, and the new one not yet in its place."""
    for replaced in _leftovers(target, "replaced"):
        if not (replaced / EXPORT_FILE).is_file():
            continue  # not of ours
        if not target.exists():
            os.rename(replaced, target)
        else:  # the next export deletes it, with what else was abandoned
            os.rename(replaced, target.with_name(f".{target.name}.exporting-{uuid.uuid4().int}"))


def _remove_abandoned(target: Path) -> None:
    """Delete half-written directories whose process is gone."""
    for left in _leftovers(target, "exporting"):
        lock = _lock(left)
        if lock is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)


def _leftovers(target: Path, what: str) -> list[Path]:
    """Directories beside `target` with a name that an export gives: its own, what it is, and a process."""
    found = target.parent.glob(f".{glob.escape(target.name)}.{what}-*")
    return [one for one in found if one.name.rpartition("-")[2].isdigit() and one.is_dir()]


def _lock(directory: Path) -> int | None:
    """Lock a directory until this process ends, however it ends; None where another has done so, or none can."""
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is_too_large(error: BaseException | None) -> bool:
    while error is not None:
        if getattr(error, "errno", None) == errno.EFBIG or "os error 27" in str(error):  # as safetensors has it
            return True
        error = error.__cause__ or error.__context__
    return False


def _open_to_readers(directory: Path) -> None:
    """safetensors writes files that only their owner reads; a server may run as somebody else."""
    mode = directory.stat().st_mode & 0o666
    for file in directory.rglob("*"):
        if file.is_file():
            file.chmod(mode)


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _full(target: Path, needed: int | None = None) -> OSError:
    free = shutil.disk_usage(_existing(target)).free
    need = f", about {needed / 1e9:.2f} GB are needed" if needed else ""
    return OSError(
        errno.ENOSPC,
        f"the disk is full: {free / 1e9:.2f} GB are free{need}. Free some space, name a directory on another disk, or "
        "choose a smaller --dtype; nothing half-written was left",
        str(target),
    )
