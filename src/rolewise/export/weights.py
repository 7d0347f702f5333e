"""Weights of another precision, and how many bytes they take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedConfig

from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.loading import adapter_base, resolve_source

Dtype = Literal["auto", "bf16", "fp16", "fp32"]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def stored_dtype(source: str | os.PathLike[str]) -> torch.dtype:
    """Of the weights behind a name that `rolewise.load` takes: of an adapter's base; fp32 where nobody says."""
    path = resolve_source(source)
    if path.suffix == ".gguf":
        return torch.float32
    if (path / "adapter_config.json").exists():
        return stored_dtype(adapter_base(path))
    config, _ = PreTrainedConfig.get_config_dict(str(path))
    named = config.get("dtype") or config.get("torch_dtype")
    dtype = getattr(torch, str(named), None)
    return dtype if isinstance(dtype, torch.dtype) and dtype.is_floating_point else torch.float32


@torch.no_grad()
def round_weights(model: SegmentedCausalLM, dtype: torch.dtype) -> None:
    """Round the weights to what `dtype` can say; they stay in fp32, to be computed with."""
    for name, parameter in model.named_parameters():
        if not _stays_fp32(model, name, dtype):
            parameter.copy_(parameter.to(dtype))


@torch.no_grad()
def cast_weights(model: SegmentedCausalLM, dtype: torch.dtype) -> None:
    """Give the weights another dtype, but not the table, nor what the architecture keeps in fp32."""
    for name, parameter in model.named_parameters():
        if not _stays_fp32(model, name, dtype):
            parameter.data = parameter.data.to(dtype)


def _stays_fp32(model: Any, name: str, dtype: torch.dtype) -> bool:
    """As transformers does when it loads: some modules never leave fp32, others only do so for bf16."""
    kept = set(model._keep_in_fp32_modules_strict or ())
    if dtype == torch.float16:
        kept |= set(model._keep_in_fp32_modules or ())
    return any(f".{module}." in f".{name}." for module in kept)


def weight_bytes(model: SegmentedCausalLM, dtype: torch.dtype) -> int:
    """What the weights take in a file of `dtype`, table included."""
    return sum(
        parameter.numel() * (4 if _stays_fp32(model, name, dtype) else dtype.itemsize)
        for name, parameter in model.named_parameters()
    )


def file_bytes(directory: Path) -> int:
    """Of all weights in a directory and its folders."""
    return sum(file.stat().st_size for file in directory.rglob("*.safetensors"))
