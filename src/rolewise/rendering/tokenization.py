"""Encoding pieces of a conversation: a template's own text with control tokens, everybody else's without.

A control token is one that is flagged special, or one that the chat template itself writes (`<think>`).
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from jinja2 import nodes
from tokenizers import Tokenizer
from transformers.utils import chat_template_utils

from rolewise.messages import MESSAGE_ROLES

_REPLACEMENT = "\ufffd"
_TAG = re.compile(r"(\W+)(\w+)(\W+)")


class TemplateText:
    """What a chat template's source says of it: the text that it writes and the words that it looks for."""

    def __init__(self, source: str) -> None:
        self.compiled = cast("Any", chat_template_utils)._compile_jinja_template(source)
        tree = self.compiled.environment.parse(source)
        constants = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
        self.literals = "\0".join({node.data for node in tree.find_all(nodes.TemplateData)} | constants)
        self.words = sorted(
            {word for text in constants if len(word := text.strip()) >= 3 and not word.isalnum()},
            key=lambda word: (-len(word), word),
        )


class PieceEncoder:
    """A tokenizer's backend in the forms that pieces of a rendered conversation need.

    Three copies are made of it, so that the caller's tokenizer is never touched:
    - the text that opens a rendering is encoded as the tokenizer itself would encode it;
    - later text of the template without the prefix space that SentencePiece-like tokenizers add at the start;
    - contents without a prefix space, and with every control token disabled.
    """

    def __init__(self, tokenizer: Any, literals: str) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ValueError(
                f"{type(tokenizer).__name__} has no fast backend, whose control tokens can be switched off; "
                "load the tokenizer with a tokenizer.json (AutoTokenizer does so where there is one)"
            )
        added = backend.get_added_tokens_decoder()
        known = {token.content: number for number, token in added.items()}
        names = [name for name in tokenizer.all_special_tokens if name in known]
        self.control = frozenset(
            [number for number, token in added.items() if token.special or _writes(literals, token.content)]
            + [known[name] for name in names]
        )
        self.surfaces = {number: added[number].content for number in self.control}
        self.special_surfaces = sorted(self.surfaces.values(), key=lambda surface: (-len(surface), surface))
        self._unknown: int | None = getattr(tokenizer, "unk_token_id", None)
        framing = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "pad")}
        surface = "" if self._unknown is None else self.surfaces.get(self._unknown, "")
        # A pure unknown token says "some character", and content may hold it; SmolLM2's says that a text ends.
        pure = "unk" in surface.lower() and self._unknown not in framing and surface not in literals
        self.forbidden = self.control - ({self._unknown} if pure else set())

        stored = json.loads(backend.to_str())
        stored["truncation"] = stored["padding"] = None
        self._opening = _load(stored)
        self._later = self._opening if not _drop_prefix_space(stored) else _load(stored)
        for token in stored["added_tokens"]:
            token["special"] = token["id"] in self.control
        self._content = _load(stored)
        self._content.encode_special_tokens = True

    def frame(self, text: str, opening: bool) -> tuple[list[int], list[int]]:
        """The ids of a template's text, and the character at which each begins."""
        encoding = (self._opening if opening else self._later).encode(text, add_special_tokens=False)
        return encoding.ids, [start for start, _ in encoding.offsets]

    def content(self, text: str, where: str) -> list[int]:
        """The ids of a content, none of which is a control token.

        Raises:
            ValueError: when the tokenizer can only write the text with a control token.
        """
        if not text:
            return []
        # The batch form is the one that leaves out offsets, which take a third of the time.
        ids = self._content.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if self.forbidden.isdisjoint(ids):
            return ids
        return self._around(text, where)

    def _around(self, text: str, where: str) -> list[int]:
        """Encode piecewise, breaking every control token's surface, which some vocabularies hold as a word.

        A character that the tokenizer cannot spell becomes U+FFFD, the replacement character.
        """
        ids: list[int] = []
        start = 0
        encoding = self._content.encode(text, add_special_tokens=False)
        for number, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            if number not in self.forbidden:
                continue
            ids += self._content.encode(text[start:first], add_special_tokens=False).ids
            for character in text[first:last]:
                spelled = self._content.encode(character, add_special_tokens=False).ids
                if self._unknown in self.forbidden and self._unknown in spelled:
                    spelled = self._content.encode(_REPLACEMENT, add_special_tokens=False).ids
                ids += spelled
            start = last
        ids += self._content.encode(text[start:], add_special_tokens=False).ids
        if not self.forbidden.isdisjoint(ids):
            names = sorted({self.surfaces[number] for number in self.forbidden.intersection(ids)})
            raise ValueError(
                f"{where}: this tokenizer turns plain text into the control tokens {names}; remove that text, "
                "or use a tokenizer that can spell it"
            )
        return ids


def _writes(literals: str, token: str) -> bool:
    """Whether a template with these literals writes the token, whole or put together (`'<|' + role + '|>'`)."""
    if token in literals:
        return True
    parts = _TAG.fullmatch(token)
    if parts is None:
        return False
    opening, word, closing = parts.groups()
    return opening in literals and closing in literals and (word in MESSAGE_ROLES or word in literals)


def _load(stored: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(stored))


def _drop_prefix_space(stored: dict[str, Any]) -> bool:
    """Switch off every rule that puts a space before a text; whether there was one."""
    found = False
    for name in ("normalizer", "pre_tokenizer"):
        step = stored.get(name)
        if step is None:
            continue
        steps = [step] if step["type"] != "Sequence" else _sequence(step)
        for inner in list(steps):
            if inner["type"] == "Prepend":
                found = True
                if step["type"] == "Sequence":
                    steps.remove(inner)
                else:
                    stored[name] = None
            elif inner["type"] == "Metaspace" and inner.get("prepend_scheme", "always") != "never":
                found = True
                inner["prepend_scheme"] = "never"
                inner.pop("add_prefix_space", None)
            elif inner["type"] == "ByteLevel" and inner.get("add_prefix_space"):
                found = True
                inner["add_prefix_space"] = False
    return found


def _sequence(step: dict[str, Any]) -> list[dict[str, Any]]:
    return step["normalizers"] if "normalizers" in step else step["pretokenizers"]
