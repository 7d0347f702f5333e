"""Random tiny models of several families, for tests."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

import rolewise as rw
from rolewise.modeling import SegmentedCausalLM

VOCAB = 97
FAMILIES = ("llama", "qwen3", "gemma3", "mistral", "gpt2")


def tiny_config(family: str, *, vocab: int = VOCAB, hidden: int = 32) -> PreTrainedConfig:
    """A two-layer configuration of `family`."""
    sizes = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": None,
    }
    match family:
        case "llama":
            return LlamaConfig(**sizes, tie_word_embeddings=True)
        case "qwen3":
            return Qwen3Config(**sizes)
        case "gemma3":
            return Gemma3TextConfig(**sizes, sliding_window=16, layer_types=["sliding_attention", "full_attention"])
        case "mistral":
            return MistralConfig(**sizes, sliding_window=16)
        case "gpt2":
            return GPT2Config(
                vocab_size=vocab, n_embd=hidden, n_layer=2, n_head=4, n_positions=512,
                pad_token_id=0, bos_token_id=1, eos_token_id=None,
                attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
            )  # fmt: skip
    raise ValueError(family)


def plain_model(family: str, *, seed: int = 0, **sizes: int) -> PreTrainedModel:
    """A random model without roles, weights large enough that its answers depend on what it reads."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(tiny_config(family, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4.0)
    return model


def tiny_model(family: str, *, seed: int = 0, init_ratio: float = 1.0, **sizes: int) -> SegmentedCausalLM:
    """A random segmented model whose table is as large as its embeddings, so that roles change the answer."""
    return rw.attach(plain_model(family, seed=seed, **sizes), init_ratio=init_ratio)


def random_batch(
    *, batch: int = 2, seq: int = 12, vocab: int = VOCAB, segments: int = 4, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Random ids and segments, [batch, seq]."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "input_ids": torch.randint(2, vocab, (batch, seq), generator=generator),
        "segment_ids": torch.randint(0, segments, (batch, seq), generator=generator),
    }


def model_with_other_memory(kind: str, vocab: int) -> SegmentedCausalLM:
    """A tiny Mamba ("mamba") or RecurrentGemma, whose past is more than keys and values."""
    from transformers import AutoModelForCausalLM, MambaConfig, RecurrentGemmaConfig

    torch.manual_seed(0)
    if kind == "mamba":
        config: Any = MambaConfig(
            vocab_size=vocab, hidden_size=32, num_hidden_layers=2, state_size=4, eos_token_id=None
        )
    else:
        config = RecurrentGemmaConfig(
            vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=3, lru_width=32,
            num_attention_heads=4, eos_token_id=None, bos_token_id=None, pad_token_id=None,
        )  # fmt: skip
    plain = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.mul_(3)  # random weights as they come give one token for ever, whatever came before
    return rw.attach(plain, init_ratio=1.0)
