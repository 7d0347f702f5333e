"""Architectures unlike Llama, where roles could get lost: what is passed on, what is cached, what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Llama4TextConfig,
    MixtralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2VLConfig,
    TrainingArguments,
    TrOCRConfig,
    XLMConfig,
)

import rolewise as rw
from rolewise.modeling.loss import require_next_token_loss
from rolewise.training import RoleTrainer
from tests.models import VOCAB, random_batch

SIZES: dict[str, dict[str, Any]] = {
    # forward goes past the backbone, to its decoder
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 16},
    # forward does not pass unknown arguments on
    "bloom": {},
    "falcon": {},
    # a cache without a length
    "mamba": {"state_size": 4},
    # stored in another layout than in memory
    "mixtral": {"num_local_experts": 4},
    # a buffer that is stored nowhere
    "falcon_h1": {
        "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64, "mamba_d_state": 4, "mamba_n_groups": 1,
        "mamba_chunk_size": 8, "head_dim": 8,
    },
}  # fmt: skip


def plain(kind: str) -> PreTrainedModel:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind,
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=None,
        **SIZES[kind],
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4.0)
    return model


@pytest.mark.parametrize("kind", SIZES)
@torch.no_grad()
def test_roles_count_are_cached_and_are_stored(kind: str, tmp_path: Path) -> None:
    plain(kind).save_pretrained(tmp_path / "plain")
    model = rw.load_model(tmp_path / "plain", init_ratio=1.0).eval()
    batch = random_batch()
    with pytest.raises(ValueError, match="segment_ids are missing"):
        model(input_ids=batch["input_ids"])
    want = model(**batch).logits
    other = {**batch, "segment_ids": (batch["segment_ids"] + 1) % 4}
    assert not torch.allclose(model(**other).logits, want, atol=1e-3)

    ids, segments = batch["input_ids"], batch["segment_ids"]
    for _ in range(6):
        new = model(input_ids=ids, segment_ids=segments, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        ids, segments = torch.cat([ids, new], 1), torch.cat([segments, torch.full_like(new, 3)], 1)
    mask = torch.ones_like(batch["input_ids"])
    made = model.generate(**batch, attention_mask=mask, max_new_tokens=6, do_sample=False)
    assert torch.equal(made, ids)

    model.save_pretrained(tmp_path / "saved")
    torch.testing.assert_close(rw.load_model(tmp_path / "saved").eval()(**batch).logits, want)


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    rw.attach(plain("mixtral")).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    del weights["model.norm.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 weights \(model.norm.weight"):
        rw.load_model(tmp_path)


def test_an_architecture_that_goes_past_its_backbone_is_refused() -> None:
    model: Any = rw.attach(plain("falcon"))
    inner = model.transformer.forward

    class Around(torch.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

    model.transformer = Around()
    with pytest.raises(RuntimeError, match="did not call its backbone"):
        model(**random_batch())


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_scale_that_is_no_number_is_refused(scale: float) -> None:
    model = rw.attach(plain("falcon"))
    with pytest.raises(ValueError, match="finite"):
        model.segment_scale = scale


@pytest.mark.parametrize("kind", SIZES)
def test_the_loss_on_labels_alone_is_the_models_own(kind: str) -> None:
    require_next_token_loss(rw.attach(plain(kind)))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (TrOCRConfig(vocab_size=VOCAB, d_model=32, decoder_layers=1, decoder_attention_heads=4), "another architec"),
        (XLMConfig(vocab_size=VOCAB, emb_dim=32, n_layers=1, n_heads=4), "another architecture"),
        (
            MixtralConfig(
                vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                num_key_value_heads=2, output_router_logits=True,
            ),
            "output_router_logits=False",
        ),
    ],
)  # fmt: skip
def test_another_loss_is_refused_before_training(config: PreTrainedConfig, said: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = rw.attach(AutoModelForCausalLM.from_config(config).train())
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match=f"has a loss of its own, .*{said}"):
        RoleTrainer(model=model, args=arguments, data_collator=rw.RoleCollator(pad_token_id=0))
    assert model.training  # as it was


def test_a_backbone_that_the_model_does_not_name_is_said_so() -> None:
    config = Llama4TextConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=32, intermediate_size_mlp=32, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_local_experts=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"does not say which .* 'language_model' is none of model, lm_head"):
        rw.attach(AutoModelForCausalLM.from_config(config))


def test_a_model_without_a_causal_lm_of_text_is_said_so(tmp_path: Path) -> None:
    Qwen2VLConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"has a Qwen2VLConfig, .*no causal language model of text alone") as caught:
        rw.load_model(tmp_path)
    assert len(str(caught.value)) < 400
