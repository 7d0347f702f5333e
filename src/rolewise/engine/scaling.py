"""The model at another scale for a while."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rolewise.modeling import SegmentedCausalLM


@contextmanager
def scaled(model: SegmentedCausalLM, scale: float) -> Generator[None]:
    """Set the factor on the segment table, and set it back. Only for the thread that has the model to itself."""
    before = model.segment_scale
    model.segment_scale = scale
    try:
        yield
    finally:
        model.segment_scale = before
