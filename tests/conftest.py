"""What every test may rely on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from .browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium. Not for longer than a module: where it runs, `asyncio.run` does not."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The tiny tokenizer; a module of other needs has a fixture of its own."""
    from .training_model import tiny_tokenizer

    return tiny_tokenizer()


@pytest.fixture(scope="module")
def llama(tokenizer: Any) -> Any:
    """A tiny Llama with a segment table, of the tokenizer's vocabulary."""
    from .models import tiny_model

    return tiny_model("llama", vocab=len(tokenizer))


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """An evaluation in this process takes over the levels and handlers of the root logger and of ours."""
    loggers = [logging.getLogger(), logging.getLogger("rolewise")]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    yield
    for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers
