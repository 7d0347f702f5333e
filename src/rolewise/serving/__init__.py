"""Serving: an OpenAI-compatible front that renders roles itself, and the engines behind it."""

from rolewise.serving.packed import PackedIds

__all__ = ["PackedIds"]
