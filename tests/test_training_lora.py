"""LoRA: small adapters, the whole table; prompt learning is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import rolewise as rw
from rolewise.training import LoraConfig, RoleTrainer, TrainConfig, adapt, train
from tests.models import random_batch, tiny_model
from tests.test_training_trainer import trained
from tests.training_model import conversations, save_tiny_model, write_rows
from tests.training_rows import OUTPUT, USER, random_rows

peft = pytest.importorskip("peft")

# PEFT 0.21 itself asks transformers 5.24 by the old name.
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning")


def lora(**options: object) -> object:
    return peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules="all-linear", **options)


def test_table_is_trained_whole_and_the_base_is_frozen(tmp_path: Path) -> None:
    model = tiny_model("llama")
    table = model.segment_embedding.weight.detach().clone()
    embeddings = model.get_input_embeddings().weight.detach().clone()
    adapted = adapt(model, lora())
    _, gradients = trained(
        adapted, random_rows(4, segments=(USER,)), tmp_path, max_steps=2, per_device_train_batch_size=4
    )
    for gradient in gradients.seen:
        assert [row for row in range(4) if gradient[row].abs().sum() > 0] == [USER, OUTPUT]
    assert torch.equal(model.get_input_embeddings().weight, embeddings)
    merged = adapted.merge_and_unload()
    moved = (merged.segment_embedding.weight - table).abs().sum(-1) > 0
    assert [row for row in range(4) if moved[row]] == [USER, OUTPUT]


def test_an_adapter_that_was_saved_loads_again(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "base")
    settings = TrainConfig(
        model=str(tmp_path / "base"),
        output_dir=str(tmp_path / "out"),
        data=str(write_rows(tmp_path / "rows.jsonl", conversations(6))),
        method="lora",
        lora=LoraConfig(rank=2),
        learning_rate=1e-2,
        batch_size=2,
        save_steps=1,
        cpu=True,
    )
    kept = {}

    def keep(line: str) -> None:
        kept[line.split(":")[0]] = line

    train(settings, say=keep, progress=None)
    assert "segment table 4 x 32" in kept
    stored = load_file(tmp_path / "out" / "adapter_model.safetensors")
    (name,) = [name for name in stored if "segment_embedding" in name]
    assert stored[name].shape == (4, 32)
    assert not (tmp_path / "out" / "model.safetensors").exists()
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tmp_path / "base")

    model, tokenizer = rw.load(tmp_path / "out")
    assert tokenizer.chat_template
    assert torch.equal(model.segment_embedding.weight, stored[name])
    base = rw.load_model(tmp_path / "base")
    batch = {"input_ids": torch.tensor([[5, 6, 7]]), "segment_ids": torch.tensor([[0, 2, 3]])}
    assert not torch.allclose(model(**batch).logits, base(**batch).logits)
    base.segment_scale = model.segment_scale = 0.0
    assert not torch.allclose(model(**batch).logits, base(**batch).logits), "the adapters are there too"


def test_delimiter_arm_with_lora_loads_without_segments(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "base")
    data = str(write_rows(tmp_path / "rows.jsonl", conversations(4)))
    settings = TrainConfig(
        model=str(tmp_path / "base"), output_dir=str(tmp_path / "out"), data=data, method="lora", ise=False, cpu=True
    )
    train(settings, say=lambda line: None, progress=None)
    assert not rw.load_model(tmp_path / "out").segment_embedding.weight.any()


@pytest.mark.parametrize(
    "config",
    [
        peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2),
        peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2),
        peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=2),
    ],
    ids=lambda config: type(config).__name__,
)
def test_prompt_learning_is_refused(config: object) -> None:
    with pytest.raises(ValueError, match=rf"{type(config).__name__} adds virtual tokens.*no role.*LoRA"):
        adapt(tiny_model("llama"), config)
    with pytest.raises(ValueError, match="no role"):
        RoleTrainer(model=peft.get_peft_model(tiny_model("llama"), config), data_collator=object())


@pytest.mark.parametrize(
    "config",
    [
        peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], trainable_token_indices=[1]),
        peft.TrainableTokensConfig(token_indices=[1]),
    ],
)
def test_single_trained_tokens_are_refused(config: Any) -> None:
    with pytest.raises(ValueError, match=r"trainable_token_indices.*takes the roles away; train the whole embedding"):
        adapt(tiny_model("llama"), config)
    adapted = peft.get_peft_model(tiny_model("llama"), config)  # who goes past `adapt` is told as well
    with pytest.raises(RuntimeError, match="an adapter took its place"):
        adapted(**random_batch())
