"""A study's workers do not outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_STUDY = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks.workers import end_with_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent) as workers:
        print(workers.submit(os.getpid).result(), flush=True)
        workers.submit(time.sleep, 600).result()
"""


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_worker_ends_with_the_study_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "study.py"
    script.write_text(_STUDY)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as study:
        assert study.stdout is not None
        worker = int(study.stdout.readline())
        assert _lives(worker)
        study.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 20
        while _lives(worker) and time.monotonic() < deadline:
            time.sleep(0.05)
        outlived = _lives(worker)
        if outlived:
            os.kill(worker, signal.SIGKILL)
    assert not outlived
