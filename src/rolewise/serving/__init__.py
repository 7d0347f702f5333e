"""Serving: an OpenAI-compatible front that renders roles itself, and the engines behind it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rolewise.serving.packed import PackedIds

if TYPE_CHECKING:
    from rolewise.serving.app import create_app
    from rolewise.serving.server import running
    from rolewise.serving.settings import ServerSettings

__all__ = ["PackedIds", "ServerSettings", "create_app", "running"]

_LAZY = {"create_app": "app", "running": "server", "ServerSettings": "settings"}


def __getattr__(name: str) -> Any:
    # vLLM's processes import `PackedIds`, and have no use for a web framework.
    if name in _LAZY:
        return getattr(importlib.import_module(f"rolewise.serving.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
