"""Text of an answer while it is being generated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class TextStream:
    """A streamer for `model.generate(streamer=...)`: hands over text as soon as no later token can change it."""

    def __init__(self, tokenizer: Any, stops: Sequence[int], write: Callable[[str], None]) -> None:
        self.text = ""
        """All that was handed over."""
        self._tokenizer = tokenizer
        self._stops = frozenset(stops)
        self._write = write
        self._ids: list[int] = []
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
                self._ids.append(token)
        self._hand_over(final=False)

    def end(self) -> None:
        """Hand over the rest."""
        self._hand_over(final=True)

    def _hand_over(self, *, final: bool) -> None:
        text = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        if not final:
            # A replacement character at the end may be the first bytes of a character that is still to come.
            text = text.rstrip("�")
        if len(text) > len(self.text) and text.startswith(self.text):
            new, self.text = text[len(self.text) :], text
            self._write(new)
