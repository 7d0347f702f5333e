"""Two gloo processes, DDP and FSDP2, train as one does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

SCRIPT = Path(__file__).parent / "distributed" / "train_tiny.py"


def launch(mode: str, output: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={1 if mode == 'none' else 2}"]
    command += ["--master-addr=127.0.0.1", f"--master-port={port}", str(SCRIPT), mode, str(output)]
    output.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return json.loads((output / "losses.json").read_text()), load_file(output / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    return launch("none", tmp_path_factory.mktemp("distributed") / "none")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_two_processes_train_as_one(mode: str, alone: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path) -> None:
    losses, weights = launch(mode, tmp_path / mode)
    assert losses["train"] == pytest.approx(alone[0]["train"], abs=1e-5)
    assert losses["eval"] == pytest.approx(alone[0]["eval"], abs=1e-5)
    assert weights.keys() == alone[1].keys()
    for name, weight in weights.items():
        assert (weight - alone[1][name]).abs().max() < 1e-5, name
