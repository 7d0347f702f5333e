"""Leaves: the strings that reach a chat template, and the markers by which we find them again in its output.

A marker is built from private-use characters that occur nowhere in the conversation and nowhere in the template,
so no content can forge one. White space at the edges of a leaf stays outside its markers (templates trim it);
`locate` tells it apart from the template's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rolewise.roles import Role

TOOLS = -1
"""The owner of a tool schema's strings."""
DOCUMENTS = -2
"""The owner of a document's strings."""


@dataclass(eq=False)
class Leaf:
    """A string that the caller gave and that the template may render."""

    index: int
    text: str
    role: Role
    owner: int
    """The turn it belongs to, or `TOOLS` or `DOCUMENTS`."""
    label: str
    """Where the caller put it, for error messages."""
    required: bool = True
    """Whether it is an error when the template leaves it out."""
    lead: str = field(init=False)
    core: str = field(init=False)
    trail: str = field(init=False)

    def __post_init__(self) -> None:
        text = self.text
        self.core = text.strip()
        if len(self.core) == len(text):
            self.lead = self.trail = ""
        else:
            self.lead = text[: len(text) - len(text.lstrip())]
            self.trail = text[len(self.lead) + len(self.core) :]


@dataclass(frozen=True)
class Markers:
    """The marker characters of one rendering."""

    open: str
    middle: str
    close: str
    blind: str
    """Put into a word that the template looks for, so that content cannot steer the template."""

    def wrap(self, leaf: Leaf, watched: re.Pattern[str] | None, edges: bool) -> str:
        """The leaf between its markers, with or without the white space at its edges."""
        core = leaf.core
        if watched is not None and leaf.role is not Role.SYSTEM and watched.search(core):
            core = watched.sub(lambda match: match[0][0] + self.blind + match[0][1:], core)
        wrapped = f"{self.open}{leaf.index:06d}{self.middle}{core}{self.close}"
        return f"{leaf.lead}{wrapped}{leaf.trail}" if edges else wrapped

    def parse(self, rendered: str) -> Marked:
        """Split a rendering into the leaves in it and the template's text around them.

        Raises:
            ValueError: when the template cut or reordered a marked string.
        """
        pieces = _leaf_pattern(self).split(rendered)
        if self.blind in rendered:
            pieces[2::3] = [core.replace(self.blind, "") for core in pieces[2::3]]
        frames, indices, cores = pieces[::3], [int(index) for index in pieces[1::3]], pieces[2::3]
        outside = "".join(frames)
        if self.open in outside or self.middle in outside or self.close in outside or self.blind in outside:
            raise ValueError(
                "the chat template cuts a string of the conversation apart, so the roles of its text cannot be told; "
                "use another template"
            )
        del pieces[1::3]
        return Marked(frames, indices, cores, "".join(pieces))


@lru_cache(maxsize=64)
def _leaf_pattern(markers: Markers) -> re.Pattern[str]:
    """Matches one marked leaf: its index, its text."""
    inside = f"[^{markers.open}{markers.middle}{markers.close}]*"
    return re.compile(f"{markers.open}([0-9]+){markers.middle}({inside}){markers.close}")


@dataclass(frozen=True)
class Marked:
    """A parsed rendering: frames[0] leaf[0] frames[1] … leaf[n-1] frames[n]."""

    frames: list[str]
    indices: list[int]
    cores: list[str]
    text: str
    """The rendering without any marker."""


def choose_markers(texts: Iterable[str]) -> Markers:
    """Four private-use characters that occur in none of `texts`.

    Raises:
        ValueError: when the texts use all private-use characters of Unicode.
    """
    used: set[str] = set()
    for text in texts:
        # Nearly every text is without: look before collecting, since this runs once for each conversation.
        if not text.isascii() and _PRIVATE_USE.search(text):
            used.update(_PRIVATE_USE.findall(text))
    free: list[str] = []
    for character in _private_use():
        if character not in used:
            free.append(character)
            if len(free) == 4:
                return _markers(*free)
    raise ValueError("the conversation uses every private-use character of Unicode, so none is left to mark it with")


_markers = lru_cache(maxsize=64)(Markers)

_PRIVATE_USE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]")


def _private_use() -> Iterator[str]:
    for first, last in ((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)):
        yield from map(chr, range(first, last + 1))


def materialise(node: Any, write: Callable[[Leaf], str]) -> Any:
    """The plain value that the template sees, each leaf written by `write`."""
    if isinstance(node, Leaf):
        return write(node)
    if isinstance(node, dict):
        return {write(key) if isinstance(key, Leaf) else key: materialise(value, write) for key, value in node.items()}
    if isinstance(node, list):
        return [materialise(item, write) for item in node]
    return node


def locate(marked: Marked, bare: Marked, leaves: Sequence[Leaf]) -> tuple[list[str], list[str]]:
    """The template's own frames, and each leaf's text with the white space that the template left at its edges.

    Args:
        marked: the rendering with the leaves' edge white space.
        bare: the rendering without it, whose frames are the template's own.
        leaves: all leaves, by index.

    Raises:
        ValueError: when the template rewrites white space in a way that hides whose it is.
    """
    if marked.indices != bare.indices:
        raise ValueError("the chat template renders other strings when white space around them changes; use another")
    texts = list(marked.cores)
    for position, (found, own) in enumerate(zip(marked.frames, bare.frames, strict=True)):
        if found == own:
            continue
        before = leaves[marked.indices[position - 1]] if position else None
        after = leaves[marked.indices[position]] if position < len(marked.indices) else None
        left, right = _edges(found, own, before.trail if before else "", after.lead if after else "")
        if left:
            texts[position - 1] += left
        if right:
            texts[position] = right + texts[position]
    return bare.frames, texts


def _edges(found: str, own: str, trail: str, lead: str) -> tuple[str, str]:
    """What of `found` = (part of `trail`) + `own` + (part of `lead`) belongs to the leaves."""
    missing = len(found) - len(own)
    rights = (lead, json.dumps(lead, ensure_ascii=False)[1:-1], "")
    for left in (trail, json.dumps(trail, ensure_ascii=False)[1:-1], ""):
        for right in rights:
            if len(left) + len(right) == missing and found == left + own + right:
                return left, right
    # A template may strip some kinds of white space only (rstrip("\n")): look for the frame itself.
    start = found.find(own.strip()) - own.find(own.strip()) if own.strip() else min(len(trail), missing)
    left, right = found[: max(start, 0)], found[max(start, 0) + len(own) :]
    if found == left + own + right and trail.startswith(left) and lead.endswith(right):
        return left, right
    raise ValueError(
        f"the chat template rewrites the white space around a string ({own!r} became {found!r}), so the text of the "
        "template cannot be told from the text of the message; strip the message's white space"
    )
