"""Text of an answer while it is being generated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rolewise.engine.detokenizing import Detokenizer


class TextStream:
    """A streamer for `model.generate(streamer=...)`: hands over text as soon as no later token can change it."""

    def __init__(self, tokenizer: Any, stops: Sequence[int], write: Callable[[str], None]) -> None:
        self.text = ""
        """All that was handed over."""
        self._decoder = Detokenizer(tokenizer).start()
        self._stops = frozenset(stops)
        self._write = write
        self._prompt_seen = False
        self._ended = False

    def put(self, value: Any) -> None:
        """Take the next ids; the first call has the prompt's, [1, seq]."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        for token in value.reshape(-1).tolist():
            self._ended = self._ended or token in self._stops
            if not self._ended:
                self._hand_over(self._decoder.push(token))

    def end(self) -> None:
        """Hand over the rest."""
        self._hand_over(self._decoder.finish())

    def _hand_over(self, text: str) -> None:
        if text:
            self.text += text
            self._write(text)
