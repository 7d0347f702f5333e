from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None:  # the ordinary test run: see `make test-vllm`
    collect_ignore_glob = ["*"]
else:
    from tests.vllm.servers import Server, running, save_tiny

    @pytest.fixture(scope="session")
    def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A tiny Llama on disk, its head tied."""
        return save_tiny("llama", tmp_path_factory.mktemp("models") / "llama")

    @pytest.fixture(scope="session")
    def server(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        """A server of the tiny Llama."""
        with running(llama, tmp_path_factory.mktemp("server") / "log") as server:
            yield server
