"""A suffix of tokens within a conversation: where it stands, and which tokens are still those when it has become text.

An attack is text that somebody puts into a conversation; what the model reads is what `rolewise.render` makes of it. So
a suffix counts only when its text, put into the conversation and encoded with everything else, gives exactly its own
tokens, and around them the same tokens and roles as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from rolewise.adaptive.placing import Carrier, Host
from rolewise.adaptive.vocabulary import forbidden_texts
from rolewise.engine.prefixes import common_length
from rolewise.rendering import Encoding, render
from rolewise.roles import Role, RoleScheme

_CONTEXT = 4
"""Tokens before the suffix that are decoded with it: some tokenizers drop the space at the start of a text."""
_TRIES = 500


class Suffix:
    """The place of a suffix at the end of a role's last text.

    Args:
        tokenizer: the tokenizer.
        messages: the conversation up to the answer that is asked for.
        role: whose text carries the suffix.
        scheme: the model's rows.

    Raises:
        ValueError: when nobody with that role has text, or the conversation cannot be rendered.
    """

    head: Encoding
    """What stands before the suffix."""
    tail: Encoding
    """What stands behind it, up to where the answer begins."""
    row: int
    """The segment of the suffix."""

    def __init__(
        self, tokenizer: Any, messages: Sequence[Mapping[str, Any]], role: Carrier, scheme: RoleScheme
    ) -> None:
        self._tokenizer, self._scheme = tokenizer, scheme
        self._host = Host(messages, role)
        self._forbidden = forbidden_texts(tokenizer)
        host = self._host.text
        # The two differ in the last token of the text, so what they end with alike is what stands behind it.
        one, other = (self.encoding(mark if not host else f" {mark}") for mark in ("a", "7"))
        behind = common_length(one.input_ids[::-1], other.input_ids[::-1])
        bare = render(tokenizer, self._host.holding(host), add_generation_prompt=True, scheme=scheme) if host else one
        before = len(bare.input_ids) - behind if host else common_length(one.input_ids, other.input_ids)
        self.head, self.tail = _part(bare, 0, before), _part(one, len(one.input_ids) - behind, len(one.input_ids))
        self.row = scheme.row({"data": Role.DATA, "user": Role.USER}[role])
        self._before = tokenizer.decode(self.head.input_ids[-_CONTEXT:], clean_up_tokenization_spaces=False)

    def messages(self, text: str) -> list[dict[str, Any]]:
        """The conversation with this suffix."""
        return self._host.with_suffix(text)

    def encoding(self, text: str) -> Encoding:
        """What the model is given for it, encoded as everything else is."""
        return render(
            self._tokenizer, self._host.with_suffix(text), add_generation_prompt=True, scheme=self._scheme
        )  # fmt: skip

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str | None]:
        """The text of each suffix, or None where it does not survive: see the module."""
        context = self.head.input_ids[-_CONTEXT:]
        wholes = self._tokenizer.batch_decode(
            [[*context, *row] for row in rows], clean_up_tokenization_spaces=False
        )  # fmt: skip
        return [self._checked(whole, row) for whole, row in zip(wholes, rows, strict=True)]

    def _checked(self, whole: str, row: Sequence[int]) -> str | None:
        if not whole.startswith(self._before):
            return None
        text = whole[len(self._before) :]
        longest = max(map(len, self._forbidden), default=0)
        before = self._host.text[-longest:]
        if any((before + text).count(one) > before.count(one) for one in self._forbidden):
            return None
        encoding = self.encoding(text)
        ids = [*self.head.input_ids, *row, *self.tail.input_ids]
        segments = [*self.head.segment_ids, *[self.row] * len(row), *self.tail.segment_ids]
        return text if encoding.input_ids == ids and encoding.segment_ids == segments else None

    def start(self, count: int, allowed: Sequence[int], rng: Random) -> list[int]:
        """A suffix of `count` tokens to begin with: one mark over and over, or else random tokens.

        Raises:
            ValueError: when none is found that survives.
        """
        marks = [
            token for mark in (" !", "!", " x", "x") for token in self._tokenizer.encode(mark, add_special_tokens=False)
        ]
        known = set(allowed)
        plain = [[token] * count for token in dict.fromkeys(marks) if token in known]
        for row, text in zip(plain, self.texts(plain), strict=True):
            if text is not None:
                return row
        for _ in range(_TRIES):
            row = [rng.choice(allowed) for _ in range(count)]
            if self.texts([row])[0] is not None:
                return row
        raise ValueError(
            f"no suffix of {count} tokens was found that the tokenizer reads as it is written; try fewer suffix_tokens"
        )


def _part(encoding: Encoding, begin: int, end: int) -> Encoding:
    return Encoding(
        encoding.input_ids[begin:end], encoding.segment_ids[begin:end], encoding.loss_mask[begin:end], encoding.text
    )
