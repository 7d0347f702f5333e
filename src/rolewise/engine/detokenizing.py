"""Tokens to text, one at a time: each token is looked up once, and no character is ever split.

Byte-level and SentencePiece-like vocabularies give each token its bytes, so an answer's text is these bytes, decoded as
they come: O(1) a token, and the same text however they are cut. Any other tokenizer decodes a short window again.

Bytes that are no UTF-8 become U+FFFD as Unicode recommends. (A SentencePiece-like decoder writes one for each byte of
such a run, the valid ones included; that could not be known before the run has ended.)
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

_REPLACEMENT = "\ufffd"
_CONTEXT = 8
"""Tokens of a window that were handed over already: what a decoder does to a token may depend on those before."""
_LONGEST_HELD = 16
"""Tokens that may wait for the rest of a character; no tokenizer needs so many for one."""
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TextDecoder(Protocol):
    """The text of one answer as it grows."""

    def push(self, token: int) -> str:
        """The text that is certain now that `token` was written, and was not before."""
        ...

    def finish(self) -> str:
        """What is left: U+FFFD for a character that was never completed."""
        ...


class Detokenizer:
    """What the tokens of one tokenizer read as.

    Args:
        tokenizer: with a fast backend.
        keep: surfaces of special tokens to write out; all others are left out.
    """

    def __init__(self, tokenizer: Any, keep: Collection[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        added = self._backend.get_added_tokens_decoder()
        self._hidden = frozenset(
            number for number, token in added.items() if token.special and token.content not in keep
        )
        self._bytes_of, self._strips_space = _byte_rule(self._backend.decoder)
        self._known: dict[int, bytes] = {}

    def start(self) -> TextDecoder:
        """A decoder for one answer."""
        if self._bytes_of is None:
            return _Window(self._tokenizer, self._hidden)
        return _Bytes(self.bytes_of, self._strips_space)

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token adds to a text; none for a special one, and for one that the vocabulary lacks."""
        if (found := self._known.get(token)) is None:
            found = self._known[token] = b"" if token in self._hidden else self.surface(token)
        return found

    def surface(self, token: int) -> bytes:
        """The bytes of a token, special or not."""
        surface = self._backend.id_to_token(token) if token >= 0 else None
        if surface is None:
            return b""
        if self._bytes_of is None:
            return str(self._tokenizer.decode([token], clean_up_tokenization_spaces=False)).encode()
        return self._bytes_of(surface)


class _Bytes:
    def __init__(self, bytes_of: Callable[[int], bytes], strips_space: bool) -> None:
        self._bytes_of = bytes_of
        self._strip = strips_space
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        new = self._bytes_of(token)
        if self._strip and new:
            self._strip = False
            new = new.removeprefix(b" ")
        return self._utf8.decode(new)

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class _Window:
    def __init__(self, tokenizer: Any, hidden: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._context: list[int] = []
        self._before = ""
        self._held: list[int] = []

    def push(self, token: int) -> str:
        if token in self._hidden:
            return ""
        self._held.append(token)
        text = self._decode([*self._context, *self._held])
        if text.endswith(_REPLACEMENT) and len(self._held) < _LONGEST_HELD:
            return ""
        return self._hand_over(text)

    def finish(self) -> str:
        return self._hand_over(self._decode([*self._context, *self._held])) if self._held else ""

    def _hand_over(self, text: str) -> str:
        new = text[len(self._before) :]
        self._context = [*self._context, *self._held][-_CONTEXT:]
        self._before = self._decode(self._context)
        self._held = []
        return new

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def _byte_rule(decoder: Any) -> tuple[Callable[[str], bytes] | None, bool]:
    """How a token's surface becomes bytes, and whether a text's first space is left out; (None, False): unknown."""
    try:
        stored: Any = json.loads(decoder.__getstate__())
    except (AttributeError, TypeError, ValueError):
        return None, False
    steps = stored["decoders"] if stored.get("type") == "Sequence" else [stored]
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return _byte_level, False
    if kinds == ["Metaspace"]:
        mark = steps[0]["replacement"]
        return lambda surface: surface.replace(mark, " ").encode(), steps[0].get("prepend_scheme", "always") != "never"
    strips = kinds[-1:] == ["Strip"]
    if kinds[: len(kinds) - strips] == ["Replace", "ByteFallback", "Fuse"]:
        pattern, content = steps[0]["pattern"].get("String"), steps[0]["content"]
        strip: dict[str, Any] = steps[-1] if strips else {"content": " ", "start": 0, "stop": 0}
        if pattern and strip["content"] == " " and strip["start"] <= 1 and not strip["stop"]:

            def with_fallback(surface: str) -> bytes:
                if byte := _BYTE.fullmatch(surface):
                    return bytes.fromhex(byte[1])
                return surface.replace(pattern, content).encode()

            return with_fallback, strip["start"] == 1
    return None, False


def _byte_level(surface: str) -> bytes:
    """GPT-2's bytes as printable characters; a surface with any other character is itself."""
    try:
        return bytes(_BYTES[character] for character in surface)
    except KeyError:
        return surface.encode()


def byte_alphabet() -> dict[str, int]:
    """The characters in which byte-level vocabularies write bytes (GPT-2's), and the byte of each."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES = byte_alphabet()
