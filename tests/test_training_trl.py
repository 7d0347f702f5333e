"""TRL's SFTTrainer, which bypasses `ForCausalLM.forward`, trains the table all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rolewise as rw
from rolewise.training import to_trl_rows, trl_collator, trl_optimizer, trl_options
from tests.models import FAMILIES, tiny_model
from tests.test_training_trainer import CHECKPOINTING, Gradients
from tests.training_model import conversations, tiny_tokenizer
from tests.training_rows import OUTPUT, SYSTEM, USER

trl = pytest.importorskip("trl")


def without_data(count: int) -> list[dict[str, Any]]:
    rows = conversations(count)
    for row in rows:
        row["messages"] = [message for message in row["messages"] if message["role"] != "data"]
    return rows


@pytest.mark.parametrize("family", FAMILIES)
def test_only_rows_that_occur_get_gradient(family: str, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model(family, vocab=len(tokenizer))
    before = model.segment_embedding.weight.detach().clone()
    rows = to_trl_rows(tokenizer, without_data(4))
    arguments = trl.SFTConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        max_steps=1,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        max_grad_norm=0.0,
        logging_steps=1,
        **{CHECKPOINTING: True},  # TRL's default, by the name that is not deprecated
        **trl_options(),
    )
    gradients = Gradients()
    trainer = trl.SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=trl_collator(model, tokenizer),
        processing_class=tokenizer,
        optimizers=(trl_optimizer(model, arguments, table_lr_multiple=10.0), None),
        callbacks=[gradients],
    )
    batch = trl_collator(model, tokenizer)(list(rows))
    expected = rw.labelled_loss(model, batch)
    (table_gradient,) = torch.autograd.grad(expected, model.segment_embedding.weight)
    trainer.train()
    (gradient,) = gradients.seen
    assert [row for row in range(4) if gradient[row].abs().sum() > 0] == [SYSTEM, USER, OUTPUT]
    torch.testing.assert_close(gradient, table_gradient, atol=1e-5, rtol=1e-3)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses == pytest.approx([expected.item()], rel=1e-4)
    moved = (model.segment_embedding.weight - before).abs().max().item()
    assert moved == pytest.approx(1e-2, rel=0.05), "Adam's first step is the learning rate: ten times the model's"


def test_rows_keep_roles_and_labels() -> None:
    tokenizer = tiny_tokenizer()
    alpaca = {"instruction": "copy", "input": "red cat", "output": "cat"}
    (row,) = to_trl_rows(tokenizer, [alpaca])
    spans = {
        role: [i for i, s in zip(row["input_ids"], row["segment_ids"], strict=True) if s == role] for role in range(4)
    }
    assert "copy" in tokenizer.decode(spans[1])
    assert "red cat" in tokenizer.decode(spans[2])
    assert tokenizer.decode([label for label in row["labels"] if label != -100]) == "cat<|im_end|>"


def test_bad_rows_are_named() -> None:
    with pytest.raises(ValueError, match="row 1: no assistant message"):
        to_trl_rows(tiny_tokenizer(), [*conversations(1), {"messages": [{"role": "user", "content": "x"}]}])
