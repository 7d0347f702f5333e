"""What this machine's processor is good at."""

from __future__ import annotations

from typing import Any


def computes_in_bf16() -> bool | None:
    """Whether the CPU has instructions for bf16: with them it is about twice as fast as fp32, without them many times
    slower. None when PyTorch cannot tell."""
    import torch

    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older versions have no such function
    if "avx2" not in able:  # not of the x86 family, where the names are others
        return None
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


SLOW_BF16 = "this processor has no bf16 instructions: bf16 is many times slower here than fp32"
