"""Processes that a study starts to work for it."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process


def end_with_parent() -> None:
    """Let this worker end when the process that started it does, killed or not: nobody would read what it makes."""
    parent = parent_process()
    assert parent is not None, "only a worker has a parent"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
