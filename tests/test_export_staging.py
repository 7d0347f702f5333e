"""A directory that appears whole or not at all, at whatever moment its export is killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rolewise.export.staging import check_target, staged

KILLED_EVERYWHERE = """
import itertools, os, shutil, signal, sys
from pathlib import Path
from rolewise.export.staging import EXPORT_FILE, check_target, staged

root = Path(sys.argv[1])
target = root / "out"
FILES = sorted([EXPORT_FILE, "client/embeddings", "weights"])
TOUCHES = {"open", "os.chmod", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir", "shutil.rmtree"}

def export(mark):
    check_target(target, Path("nowhere"), overwrite=True)
    with staged(target) as directory:
        (directory / "client").mkdir()
        for name in FILES:
            (directory / name).write_text(mark)

def whole():
    "The mark of what stands there, which is all of one export; None where nothing does."
    if not target.exists():
        return None
    found = {str(file.relative_to(target)): file.read_text() for file in target.rglob("*") if file.is_file()}
    assert sorted(found) == FILES, f"half an export: {found}"
    (mark,) = set(found.values())
    return mark

def killed_before(touch):
    "Whether an export was killed before it touched the disk so many times."
    child = os.fork()
    if not child:
        seen = itertools.count()
        def hook(event, arguments):
            if event in TOUCHES and next(seen) == touch:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        export("new")
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL

marks = []
for touch in itertools.count():
    shutil.rmtree(root)
    root.mkdir()
    export("old")
    killed = killed_before(touch)
    if target.exists():
        marks.append(whole())
        if touch % 2:  # somebody clears it away before the next one; what was half deleted may not come back
            shutil.rmtree(target)
    try:
        check_target(target, Path("nowhere"), overwrite=False)
    except FileExistsError:
        pass
    assert whole() in (None, "old", "new")
    export("next")
    assert whole() == "next"
    assert [path.name for path in root.iterdir()] == ["out"], "something was left behind"
    if not killed:
        break
print(touch, *sorted(set(marks)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it forks")
def test_an_export_killed_at_any_moment_leaves_the_old_one_or_the_new_one_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", KILLED_EVERYWHERE, str(tmp_path / "root")]
    (tmp_path / "root").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    touches, *marks = done.stdout.split()
    assert int(touches) > 20
    assert marks == ["new", "old"]


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")
def test_a_file_that_may_not_grow_so_large_is_said_so(tmp_path: Path) -> None:
    """As it is where a disk takes no large files (FAT), or `ulimit -f` says so."""
    import resource

    from safetensors.numpy import save_file

    numpy = pytest.importorskip("numpy")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def export() -> None:
        with staged(tmp_path / "out") as directory:
            save_file({"weights": numpy.zeros(9999)}, directory / "model.safetensors")

    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(OSError, match=r"a file grew larger .* --max-shard-size") as caught:
            export()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)  # root may write anywhere
    with pytest.raises(PermissionError, match=r"cannot be written to; name a directory elsewhere with -o") as caught:
        check_target(tmp_path / "new" / "out", Path("nowhere"), overwrite=False)
    assert caught.value.filename == str(tmp_path)
