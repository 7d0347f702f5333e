"""Reading an output leniently: what a model wraps around its answer is no part of it."""

from __future__ import annotations

import re
import unicodedata

from rolewise.samples import words_of

_FENCE = re.compile(r"(?:```|~~~)\w*")
# A quotation mark or a bracket after the full stop belongs to the sentence. The run is matched from its begin only, and
# as a whole: a long one would else take quadratic time.
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’»)\]*_]*+(?=\s|$)")
_BULLET = re.compile(r"\s*[-*+•‣–—]\s+\S")
_NUMBER = re.compile(r"\s*(\d{1,4})[.):]\s+\S")
_MARKS = "\"'`´“”„‟‘’‚«»‹›*_ \t\r\n"


def normalise(text: str) -> str:
    """`text` in NFKC, so that composed and decomposed accents are the same, without invisible format characters.

    A zero-width space within a word would otherwise hide the word from a check.
    """
    if text.isascii():
        return text.strip()
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", visible).strip()


def fold(text: str) -> str:
    """`text` normalised and without case."""
    folded = normalise(text).casefold()
    return folded if folded.isascii() else unicodedata.normalize("NFKC", folded)


def words(text: str) -> list[str]:
    """The words and numbers of `text`, folded."""
    return words_of(fold(text))


def letters(text: str) -> str:
    """The letters and digits of `text`, folded, without anything between them."""
    return "".join(char for char in fold(text) if char.isalnum())


def squeezed(text: str) -> str:
    """`text` folded, with every run of white space as one space."""
    return " ".join(fold(text).split())


def unfenced(text: str) -> str:
    """What stands inside a Markdown fence that is all of `text`; else `text`; normalised."""
    found = normalise(text).splitlines()
    if len(found) > 1 and _FENCE.fullmatch(found[0].strip()) and found[-1].strip() == found[0].strip()[:3]:
        return "\n".join(found[1:-1]).strip()
    return "\n".join(found)


def bare(text: str) -> str:
    """`text` without a fence, and without quotation marks and emphasis at its edges."""
    return unfenced(text).strip(_MARKS)


def lines(text: str) -> list[str]:
    """The lines that are not blank, without a fence around them."""
    return [line for line in unfenced(text).splitlines() if line.strip()]


def sentences(text: str) -> int:
    """How many sentences `text` has; one that does not end in a full stop counts, too."""
    return sum(bool(words(part)) for part in _SENTENCE_END.split(unfenced(text)))


def has_bullet(line: str) -> bool:
    """Whether the line begins with a bullet."""
    return _BULLET.match(line) is not None


def number_of(line: str) -> int | None:
    """The number that the line begins with, as in a numbered list."""
    found = _NUMBER.match(line)
    return int(found.group(1)) if found else None
