"""Train a tiny model for a few steps under torchrun, and save the losses and the final weights.

python -m torch.distributed.run --nproc-per-node N tests/distributed/train_tiny.py none|ddp|fsdp OUTPUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from transformers import TrainingArguments

sys.path.insert(0, str(Path(__file__).parents[2]))

import rolewise as rw
from rolewise.collation import RoleCollator
from rolewise.training.trainer import RoleTrainer, segment_tables
from tests.distributed.cpu_fsdp import allow_fsdp_on_cpu
from tests.models import tiny_model
from tests.training_rows import random_rows, role_dataset

ROWS = 16


def main(mode: str, output: Path) -> None:
    torch.set_num_threads(1)
    allow_fsdp_on_cpu()
    processes = 1 if mode == "none" else 2
    fsdp = {"fsdp": True, "fsdp_config": {"version": 2, "state_dict_type": "FULL_STATE_DICT"}}
    arguments = TrainingArguments(
        output_dir=str(output / "checkpoints"),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        save_strategy="steps",
        save_steps=2,
        logging_steps=1,
        learning_rate=1e-3,
        # The same rows in each optimizer step, whatever the number of processes.
        per_device_train_batch_size=4 // processes,
        per_device_eval_batch_size=3,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        **(fsdp if mode == "fsdp" else {}),
    )
    trainer = RoleTrainer(
        model=tiny_model("llama"),
        args=arguments,
        train_dataset=role_dataset(random_rows(ROWS, longest=9)),
        eval_dataset=role_dataset(random_rows(7, longest=9, seed=1)),
        data_collator=RoleCollator(pad_token_id=0),
        shuffle=False,
    )
    assert trainer.is_fsdp_enabled == (mode == "fsdp")
    trainer.train()
    (table,) = segment_tables(trainer.model_wrapped)
    assert isinstance(table, FSDPModule) == (mode == "fsdp"), "under FSDP2, the table is a group of its own"
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    evaluation = trainer.evaluate()["eval_loss"]
    trainer.save_model(str(output / "model"))
    if arguments.process_index == 0:
        (output / "losses.json").write_text(json.dumps({"train": losses, "eval": evaluation}))
        rw.load_model(output / "model")  # a Rolewise model, table included
    if dist.is_initialized():  # leave together: gloo aborts a process whose peer is gone
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
