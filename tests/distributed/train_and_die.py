"""Run `train` on a JSON configuration; with a second argument, die by SIGKILL in the middle of that step or save.

python tests/distributed/train_and_die.py CONFIG.json [step:N | save:N]
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from rolewise.training import config_from_dict, train
from rolewise.training.trainer import RoleTrainer


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DieInStep(TrainerCallback):
    """After the backward pass of a step, before the optimizer moves the weights."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == self._step:
            die()


def die_in_save(step: int) -> None:
    """After the weights of a checkpoint are written, before its optimizer state is."""
    original = RoleTrainer._save_optimizer_and_scheduler

    def save(self: RoleTrainer, output_dir: str) -> None:
        if self.state.global_step == step:
            die()
        original(self, output_dir)

    RoleTrainer._save_optimizer_and_scheduler = save


def main(configuration: Path, when: str | None) -> None:
    torch.set_num_threads(1)
    config = config_from_dict(json.loads(configuration.read_text()))
    kind, _, number = (when or "").partition(":")
    if kind == "save":
        die_in_save(int(number))
    train(config, callbacks=[DieInStep(int(number))] if kind == "step" else [], progress=None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
