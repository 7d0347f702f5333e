"""The delimiters that an attacker forges: those of a template, strings that are nearly those, and a filter.

A completion attack ends the data, writes an answer of its own and opens a new instruction. It does so in the strings
that the attacked model's template writes there (`template_delimiters`), or in near misses of them (`near_miss`), which
stay when a filter takes the real ones away (`filter_reserved`). `rolewise.render` needs no filter: whatever stands in a
content is ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from rolewise.attacks.vocabulary import DELIMITER, TEXT, Delimiters

RESERVED = ("[MARK]", "[INST]", "[INPT]", "[RESP]", "[COLN]")
"""The reserved tokens of the `delimiter` template (StruQ, section 4)."""

NearMiss = Literal["2hash", "1hash", "0hash", "upper", "title", "nospace", "nocolon", "typo", "similar"]

NEAR_MISSES: dict[NearMiss, str] = {
    "2hash": "one mark fewer",
    "1hash": "one mark left",
    "0hash": "no mark",
    "upper": "upper case",
    "title": "title case",
    "nospace": "no space",
    "nocolon": "no colon",
    "typo": "two letters swapped",
    "similar": "words of like meaning",
}
"""StruQ's near misses, and what each does to the delimiters."""


def template_delimiters(tokenizer: Any, **template_kwargs: Any) -> Delimiters:
    """What an attacker types to forge an answer and a new turn in a tokenizer's own chat template.

    A conversation of fixed words is rendered (question, data, answer, question), and the template's text between them
    is taken: from the data to the answer, and from the answer to the next question. In our `text` and `delimiter`
    templates nothing but the end-of-text token ends an answer; the benchmark's attacker leaves it out, and so does
    this.

    Args:
        tokenizer: a tokenizer with a chat template.
        **template_kwargs: arguments of the template.

    Raises:
        ValueError: when the template cannot render such a conversation, or writes nothing between its messages.
    """
    from rolewise.rendering import render

    words = ("quokkaone", "quokkatwo", "quokkathree", "quokkafour")
    messages = [
        {"role": role, "content": word} for role, word in zip(("user", "data", "assistant", "user"), words, strict=True)
    ]
    text = render(tokenizer, messages, **template_kwargs).text
    _, _, rest = text.partition(words[1])
    response, _, rest = rest.partition(words[2])
    instruction, found, _ = rest.partition(words[3])
    if not found or not response.strip() or not instruction.strip():
        raise ValueError(
            "the chat template writes nothing between the messages that could be forged; give the delimiters yourself, "
            "as rolewise.attacks.Delimiters(response=..., instruction=...)"
        )
    for known in (TEXT, DELIMITER):
        if response == known.response and instruction.removeprefix(tokenizer.eos_token or "") == known.instruction:
            return known
    return Delimiters(response=response, instruction=instruction)


def filter_reserved(text: str, reserved: Iterable[str] = RESERVED) -> str:
    """`text` without any of the reserved strings, nor any that appears when one is taken out (StruQ's filter).

    `[INS[INST]T]` leaves nothing. One pass, so that nested tokens cost no more than others.

    Raises:
        ValueError: when a reserved string is empty.
    """
    tokens = tuple(reserved)
    if "" in tokens:
        raise ValueError("a reserved string is empty; name the tokens to filter")
    if not any(token in text for token in tokens):
        return text
    last = frozenset(token[-1] for token in tokens)
    longest = max(map(len, tokens))
    kept: list[str] = []
    for character in text:
        kept.append(character)
        if character in last:
            tail = "".join(kept[-longest:])
            # Of two that end here the longest goes: no other could be left in what stays.
            found = max((len(token) for token in tokens if tail.endswith(token)), default=0)
            if found:
                del kept[-found:]
    return "".join(kept)


def near_miss(real: Delimiters, variant: NearMiss) -> Delimiters:
    """Delimiters that are nearly the real ones, as a filter of the real ones would let through.

    What StruQ does to `### response:`, for any template's delimiters (docs/reference/attacks.md has them all). Marks
    are the hashes of a heading, and what stands around the word of a tag (`<|im_end|>`, `[INST]`). Where a template
    has nothing of the kind (no colon, no space), the nearest thing that changes it is done instead, so that a near
    miss is never the real delimiter.

    Raises:
        ValueError: for an unknown variant.
    """
    if variant not in NEAR_MISSES:
        raise ValueError(f"variant={variant!r} must be one of {', '.join(NEAR_MISSES)}")
    origin = real.words or real
    return Delimiters(response=_miss(origin.response, variant), instruction=_miss(origin.instruction, variant))


_TAG = re.compile(r"([<\[][|｜/]*)(\w[\w▁ -]*)([|｜]*[>\]])")
_HASHES = re.compile(r"#+[ ]?")
_WORD = re.compile(r"[^\W\d_]+")

_SIMILAR = {
    "response": "answer", "instruction": "request", "input": "text", "assistant": "helper", "model": "machine",
    "user": "human", "human": "person", "bot": "robot", "ai": "robot", "chatbot": "robot", "gpt": "robot",
    "start": "begin", "begin": "open", "end": "stop", "turn": "round", "message": "note", "header": "heading",
    "inst": "order", "role": "speaker", "channel": "line", "final": "last", "sentence": "phrase", "return": "send",
}  # fmt: skip


def _miss(text: str, variant: NearMiss) -> str:
    for attempt in _ATTEMPTS[variant]:
        if (changed := attempt(text)) != text:
            return changed
    return f"-{text}"  # a word of one letter, a sign: nothing that a near miss could keep


def _tags(opening: Callable[[str], str], closing: Callable[[str], str]) -> Callable[[str], str]:
    """Change the marks around the words of tags."""
    return lambda text: _TAG.sub(lambda tag: opening(tag[1]) + tag[2] + closing(tag[3]), text)


def _hashes(count: int) -> Callable[[str], str]:
    """Keep so many hashes of a heading; none: not its space either."""
    return lambda text: _HASHES.sub(lambda run: "#" * count + run[0].lstrip("#") if count else "", text)


def _one_fewer(text: str) -> str:
    """A mark fewer: a hash of a heading, the inner closing mark of a tag."""
    return _tags(lambda mark: mark, lambda mark: mark[1:])(_hashes(2)(text))


def _one_left(text: str) -> str:
    """One mark on each side: a hash, the outer marks of a tag; a tag that has one only gets parentheses."""

    def opening(mark: str) -> str:
        return mark[0] if mark[1:].strip("/") else "(" + mark[1:]

    return _tags(opening, lambda mark: mark[-1] if len(mark) > 1 else ")")(_hashes(1)(text))


def _no_marks(text: str) -> str:
    return _tags(lambda mark: "", lambda mark: "")(_hashes(0)(text))


def _unspaced(text: str) -> str:
    """Without spaces inside."""
    return text.replace(" ", "")


def _unbroken(text: str) -> str:
    """Without line breaks inside."""
    core = text.strip()
    start = text.index(core)
    return text[:start] + core.replace("\n", "") + text[start + len(core) :]


def _swapped(text: str) -> str:
    """The first two differing neighbours within each word swapped, the first letter kept."""

    def swap(found: re.Match[str]) -> str:
        word = found[0]
        for place in range(1, len(word) - 1):
            if word[place] != word[place + 1]:
                return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
        return word

    return _WORD.sub(swap, text)


def _similar(text: str) -> str:
    """Words of like meaning, in the case of the word that they stand for."""

    def other(found: re.Match[str]) -> str:
        word = found[0]
        synonym = _SIMILAR.get(word.lower(), word)
        return synonym.upper() if word.isupper() else synonym.capitalize() if word[0].isupper() else synonym

    return _WORD.sub(other, text)


_ATTEMPTS: dict[NearMiss, tuple[Callable[[str], str], ...]] = {
    "2hash": (_one_fewer, lambda text: text.strip("\n")),
    "1hash": (_one_left, lambda text: f"({text.strip()})"),
    "0hash": (_no_marks, lambda text: f"{text}\n"),
    "upper": (str.upper, str.lower),
    "title": (str.title, str.lower, str.upper),
    "nospace": (_unspaced, _unbroken, lambda text: re.sub(r"(?<=[^\w\s])(?=\w)", " ", text, count=1)),
    "nocolon": (lambda text: text.replace(":", ""), _tags(lambda mark: "", lambda mark: mark)),
    "typo": (_swapped,),
    "similar": (_similar, lambda text: _WORD.sub(lambda found: found[0] + "s", text)),
}
