"""A page to try a served model with: attacks in its data, roles on and off side by side, tokens by role."""

from rolewise.serving.playground.routes import mount

__all__ = ["mount"]
