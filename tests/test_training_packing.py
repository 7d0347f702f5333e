"""Which architectures keep packed documents apart, asked of tiny models of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import rolewise as rw
from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.loss import require_next_token_loss
from rolewise.training.packing import difference_from_alone, document_leak, require_packing, separates_documents
from tests.models import VOCAB, tiny_config, tiny_model

DTYPES = (torch.float32, torch.bfloat16)
MIXING: dict[str, dict[str, Any]] = {
    # its short convolutions read the last tokens of the document before
    "lfm2": {"layer_types": ["conv", "full_attention"], "full_attn_idxs": [1]},
    # attention that does not know where a document begins
    "bloom": {"n_layer": 2, "n_head": 4},
    "xglm": {"d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4},
}


def fresh(kind: str, dtype: torch.dtype) -> SegmentedCausalLM:
    """A model as transformers initialises it: its layers hardly say a thing, so what leaks is small."""
    torch.manual_seed(0)
    if kind in MIXING:
        config: Any = AutoConfig.for_model(
            kind,
            vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=None,
            **MIXING[kind],
        )  # fmt: skip
    else:
        config = tiny_config(kind)
    return rw.attach(AutoModelForCausalLM.from_config(config).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
def test_documents_are_apart(family: str, dtype: torch.dtype) -> None:
    for model in (fresh(family, dtype), tiny_model(family).to(dtype)):
        assert document_leak(model) == 0
        require_packing(model)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MIXING)
def test_a_small_leak_is_seen_in_every_dtype(kind: str, dtype: torch.dtype) -> None:
    model = fresh(kind, dtype)
    assert 0 < document_leak(model) < 0.01  # small: these limits, on hidden states, let them pass once
    assert difference_from_alone(model) < (1e-3 if kind == "lfm2" and dtype == torch.float32 else 5e-2)
    with pytest.raises(ValueError, match=r"mixes packed documents: the derivative .* group_by_length"):
        require_packing(model)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_positions_that_go_on_counting_are_seen(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leaks, but the second document is not what it is alone."""
    model = tiny_model("gpt2").to(dtype)
    embed = model.transformer.wpe.forward
    monkeypatch.setattr(model.transformer.wpe, "forward", lambda ids: embed(torch.arange(ids.shape[-1])[None]))
    assert document_leak(model) == 0
    with pytest.raises(ValueError, match=r"differ by .* from those of the document alone"):
        require_packing(model)


def test_a_model_of_nan_is_not_said_to_separate() -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    assert not separates_documents(model)


def test_the_checks_leave_the_model_as_it_was() -> None:
    model = tiny_model("llama").train()
    model.model.layers[0].eval()
    before = {name: module.training for name, module in model.named_modules()}
    hooks = len(model.get_input_embeddings()._forward_hooks)
    require_packing(model)
    require_next_token_loss(model)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert not model.model.layers[0].self_attn.training
    assert len(model.get_input_embeddings()._forward_hooks) == hooks
    assert all(parameter.grad is None for parameter in model.parameters())
