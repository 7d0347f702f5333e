"""The fewest tokens that a text can be, told without encoding it, so that a huge prompt is refused at once.

A token spells a stretch of the text, and no token spells more bytes than the longest in the vocabulary. Counting some
kinds of bytes alone is as sound, and tells more: of letters and digits a token holds far fewer than of dashes.
"""

from __future__ import annotations

import json
import string
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from rolewise.engine.detokenizing import byte_alphabet

_ALL = bytes(range(256))
_ALNUM = (string.ascii_letters + string.digits).encode()
_KINDS = (_ALL, bytes(one for one in _ALL if one >= 128 or one in _ALNUM), _ALNUM)
"""Kinds of bytes that are counted: all, then all but ASCII's signs and spaces, then ASCII's letters and digits."""
_SPACE = "▁"
"""SentencePiece's mark for a space."""


class LeastTokens:
    """Counts for one tokenizer.

    Where a token may stand for any length of text (unknown characters that are left out or drawn together, normalisers
    that shorten it in ways unknown here), `of` is 0.

    Args:
        tokenizer: with a fast backend.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._form = ""
        self._most: list[tuple[bytes, int]] = []
        """Of each kind, the bytes that are left out, and the most that a token has of the others."""
        stored = json.loads(tokenizer.backend_tokenizer.to_str())
        spelled = _spelled(stored["model"], stored["pre_tokenizer"])
        form = _normal_form(stored["normalizer"])
        added: list[dict[str, Any]] = stored["added_tokens"]
        if spelled is None or form is None or any(one["lstrip"] or one["rstrip"] for one in added):
            return
        self._form = form
        known, words = spelled
        words = words + [one["content"].encode() for one in added]
        for kind in _KINDS:
            left_out = bytes(one for one in _ALL if one not in kind or one not in known)
            if most := max((len(word.translate(None, left_out)) for word in words), default=0):
                self._most.append((left_out, most))

    def of(self, text: str) -> int:
        """The fewest tokens that a content can be; white space at its edges is left out, as templates may do."""
        text = text.strip().replace(_SPACE, "")
        if self._form == "NFC":
            text = unicodedata.normalize("NFC", text)
        data = text.encode(errors="replace")
        return max((-(-len(data.translate(None, left_out)) // most) for left_out, most in self._most), default=0)

    def of_conversation(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """The fewest tokens of a conversation: of its contents, those of assistants left out, of which templates drop
        the thoughts."""
        return sum(map(self.of, contents(message for message in messages if message["role"] != "assistant")))


def contents(messages: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """The texts of messages' contents."""
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, str):
            yield content
        else:
            yield from (part["text"] for part in cast("list[dict[str, str]]", content))


def _spelled(model: dict[str, Any], split: dict[str, Any] | None) -> tuple[bytes, list[bytes]] | None:
    """The bytes that a vocabulary knows (others may be dropped), and what its tokens spell; None where that cannot be
    told."""
    if model["type"] != "BPE":
        return None
    words: list[str] = list(model["vocab"])
    steps = [] if split is None else split.get("pretokenizers", [split])
    if any(step["type"] == "ByteLevel" for step in steps):
        letters = byte_alphabet()
        # What is not in that alphabet was put in by hand, and is reached as it stands, if at all.
        spelled = [bytes(letters[one] for one in word) if letters.keys() >= set(word) else word.encode()
                   for word in words]  # fmt: skip
        return bytes(letters[one] for one in words if one in letters), spelled
    if model.get("byte_fallback") and all(f"<0x{one:02X}>" in model["vocab"] for one in _ALL):
        return _ALL, [word.replace(_SPACE, " ").encode() for word in words]
    return None


def _normal_form(normalizer: dict[str, Any] | None) -> str | None:
    """The Unicode form that texts are brought into before they are split, "" for none; None where it is not known."""
    steps = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    form = ""
    for step in steps:
        if step["type"] == "NFC":
            form = "NFC"
        elif step["type"] == "Prepend" or (step["type"] == "Replace" and step["content"] == _SPACE
                                           and step["pattern"] == {"String": " "}):  # fmt: skip
            continue
        else:
            return None
    return form
