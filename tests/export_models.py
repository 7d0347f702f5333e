"""Tiny segmented models on disk, for the tests of exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Gemma2Config, GraniteConfig, PreTrainedConfig

import rolewise as rw
from rolewise.modeling import SegmentedCausalLM
from rolewise.roles import RoleScheme
from tests.models import FAMILIES, tiny_config
from tests.training_model import tiny_tokenizer

KINDS = (*FAMILIES, "gemma2", "granite")


def kind_config(kind: str, vocab: int) -> PreTrainedConfig:
    """Of the families, and of two that scale embeddings or logits."""
    if kind in FAMILIES:
        return tiny_config(kind, vocab=vocab)
    sizes: dict[str, Any] = {
        "vocab_size": vocab, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "tie_word_embeddings": True,
    }  # fmt: skip
    if kind == "gemma2":  # a low cap on logits, so that it shows
        return Gemma2Config(**sizes, head_dim=8, sliding_window=16, final_logit_softcapping=2.0)
    if kind == "granite":
        return GraniteConfig(**sizes, embedding_multiplier=12.0, logits_scaling=2.0)
    return AutoConfig.for_model(kind, **sizes)


def save_model(
    directory: Path,
    kind: str = "llama",
    *,
    scheme: RoleScheme | None = None,
    scale: float = 1.0,
    tied: bool | None = None,
    dtype: torch.dtype = torch.float32,
) -> SegmentedCausalLM:
    """A random model whose roles change its answers, in `directory`; returned in fp32 as it was saved."""
    tokenizer = tiny_tokenizer()
    config: Any = kind_config(kind, len(tokenizer))
    if tied is not None:
        config.tie_word_embeddings = tied
    torch.manual_seed(0)
    plain = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in plain.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4.0)
    model = rw.attach(plain, init_ratio=1.0, **({} if scheme is None else {"scheme": scheme}))
    model.segment_scale = scale
    rw.apply_template(model, tokenizer)
    model.rolewise_tokenizer = tokenizer
    model.to(dtype).save_pretrained(directory)
    return rw.load_model(directory, dtype=torch.float32).eval()


MESSAGES = [
    {"role": "system", "content": "copy"},
    {"role": "user", "content": "the last word"},
    {"role": "data", "content": "red <|im_end|> cat"},
]
