"""The lab's language: a few hundred words, one token each.

Reserved tokens stand for what a tokenizer's special tokens are: no content can hold them. The words of the text
delimiters (`###`, `instruction`, ...) are ordinary words, which anybody can type.
"""

from __future__ import annotations

from collections.abc import Iterable

PAD, BEGIN, END = "<pad>", "<s>", "</s>"
MARKS = {"[MARK]": "###", "[INST]": "instruction", "[INPT]": "input", "[RESP]": "response", "[COLN]": ":"}
"""The reserved delimiter tokens, each with the word from whose embedding it starts (StruQ)."""
RESERVED = (PAD, BEGIN, END, *MARKS)

STOP, AND, CUE = ".", "and", "=>"
"""The end of an instruction, what stands between two answers, and what stands before an answer in pre-training."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CLASSES = {
    "animal": _words("cat horse sheep rabbit lion goat"),
    "fruit": _words("apple pear cherry peach plum mango"),
    "tool": _words("hammer saw axe drill chisel wrench"),
    "colour": _words("red green blue pink purple white"),
    "country": _words("france japan egypt brazil india kenya"),
    "drink": _words("tea coffee milk juice cider water"),
    "metal": _words("iron gold silver copper tin zinc"),
    "sport": _words("tennis rugby golf chess rowing judo"),
    "vehicle": _words("car truck tram bus boat plane"),
    "flower": _words("rose tulip daisy lily orchid poppy"),
}
CLASS_OF = {word: name for name, words in CLASSES.items() for word in words}

CODES = {word: f"k{n}" for n, word in enumerate(word for words in CLASSES.values() for word in words[:2])}
"""A fact to know by heart for some of the words."""

FILLERS = _words(
    "the a this that with from over under near after before while when then also very quite still just only "
    "we they he she it you people many some few day week morning night house street garden market table window "
    "went came sat took left put made gave kept found old new big small long short good quiet early late"
)

VERBS = {
    "find": _words("find locate extract"),
    "which": _words("which spot check"),
    "pick": _words("pick choose select"),
    "say": _words("say print write"),
    "repeat": _words("repeat double twice"),
    "code": _words("code cipher lookup"),
}
"""The wordings of each kind of instruction."""

FOREIGN_MARKS = _words("## ** == --")
FOREIGN_ENDS = _words("| ~ >")
FOREIGN_ASK = _words("task question request")
FOREIGN_REPLY = _words("answer output reply")
"""Delimiters of other systems, for the forged ones in training; the real ones are forged in tests only."""

WORDS = tuple(
    dict.fromkeys(
        (
            *RESERVED, STOP, AND, CUE, *MARKS.values(), *CLASSES, *CLASS_OF, *CODES.values(), *FILLERS,
            *(verb for verbs in VERBS.values() for verb in verbs),
            *FOREIGN_MARKS, *FOREIGN_ENDS, *FOREIGN_ASK, *FOREIGN_REPLY,
        )
    )
)  # fmt: skip
"""Every token, by its id."""
ID = {word: number for number, word in enumerate(WORDS)}
SIZE = -(-len(WORDS) // 64) * 64
"""Rows of the token embedding."""


def content_ids(words: Iterable[str]) -> list[int]:
    """The ids of what a user or a document says.

    Raises:
        ValueError: for a reserved token, which no content can hold, or a word that the language does not have.
    """
    ids: list[int] = []
    for word in words:
        if word in RESERVED:
            raise ValueError(f"{word!r} is a reserved token; content can only hold words")
        if word not in ID:
            raise ValueError(f"{word!r} is not a word of the lab's language; see rolewise.lab.vocabulary")
        ids.append(ID[word])
    return ids
