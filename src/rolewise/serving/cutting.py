"""Text as it comes, cut: at stop strings, into thoughts and what is said, and before tool calls.

Each holds back no more than what later text may change, so that what is streamed is what is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal


def held_back(text: str, markers: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a marker (never a whole one)."""
    longest = 0
    for marker in markers:
        at = text.find(marker[0], max(0, len(text) - len(marker) + 1))
        while at >= 0 and len(text) - at > longest:
            if marker.startswith(text[at:]):
                longest = len(text) - at
                break
            at = text.find(marker[0], at + 1)
    return longest


class StopCutter:
    """Ends a text at the first place where a stop string is complete; the string itself is left out.

    Where several end at that place, the longest counts.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stopped = False
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> str:
        """What of the text so far is certain, and was not before."""
        if not self._stops:
            return text
        if self.stopped:
            return ""
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = len(text) - held_back(text, self._stops)
        self._held = text[keep:]
        return text[:keep]

    def finish(self) -> str:
        """What was held back for a stop string that never came."""
        held, self._held = self._held, ""
        return held


class ThoughtSplitter:
    """Parts the thought (`<think>` … `</think>`) with which an answer may begin from what is said after it.

    White space around both is left out. A thought that never ends is a thought all the same.

    Args:
        opening: the generation prompt, in which a template may have begun the thought.
    """

    def __init__(self, opening: str = "") -> None:
        self._opened = opening.rstrip().endswith(_THINK)
        self._state: Literal["start", "thought", "gap", "said"] = "start"
        self._held = ""

    def push(self, text: str) -> tuple[str, str]:
        """(thought, said): what is certain now, and was not before."""
        if self._state == "said":
            return "", text
        if self._state == "start":
            text = self._held + text
            begun = text.lstrip()
            if len(begun) < len(_THINK) and _THINK.startswith(begun):
                self._held = text
                return "", ""
            self._held = ""
            if begun.startswith(_THINK):
                self._state, text = "thought", begun.removeprefix(_THINK).lstrip()
            elif self._opened:
                self._state, text = "thought", begun
            else:
                self._state = "said"
                return "", text
        if self._state == "thought":
            return self._thought(text)
        return "", self._gap(text)

    def finish(self) -> tuple[str, str]:
        """What was held back."""
        held, self._held = self._held, ""
        if self._state == "start":
            return (held.strip(), "") if self._opened else ("", held)
        return (held.rstrip(), "") if self._state == "thought" else ("", "")

    def _thought(self, text: str) -> tuple[str, str]:
        text = self._held + text
        if not self._any_thought:
            text = text.lstrip()
        thought, end, rest = text.partition(_END_THINK)
        if end:
            self._state, self._held = "gap", ""
            return thought.rstrip(), self._gap(rest)
        certain = text[: len(text) - held_back(text, (_END_THINK,))].rstrip()
        self._held = text[len(certain) :]
        self._any_thought = self._any_thought or bool(certain)
        return certain, ""

    _any_thought = False

    def _gap(self, text: str) -> str:
        if text := text.lstrip():
            self._state = "said"
        return text


class CallCutter:
    """Holds an answer back from where a tool call may begin, to its end: `held` has it then.

    Args:
        markers: with any of which a call begins.
        alone: whether a call begins an answer or there is none; white space may stand before.
    """

    def __init__(self, markers: Sequence[str], *, alone: bool = False) -> None:
        self.found = False
        """Whether what is held begins with a marker (after white space)."""
        self.held = ""
        self._markers = tuple(markers)
        self._alone = alone
        self._none = False

    def push(self, text: str) -> str:
        """What is no call for certain, and was not before."""
        if self.found:
            self.held += text
            return ""
        if self._none or not self._markers:
            return text
        text = self.held + text
        if self._alone:
            return self._at_start(text)
        places = [at for marker in self._markers if (at := text.find(marker)) >= 0]
        if places:
            self.found = True
            certain = text[: min(places)].rstrip()
        else:
            certain = text[: len(text) - held_back(text, self._markers)].rstrip()
        self.held = text[len(certain) :]
        return certain

    def _at_start(self, text: str) -> str:
        begun = text.lstrip()
        if any(begun.startswith(marker) for marker in self._markers):
            self.found = True
        elif not any(marker.startswith(begun) for marker in self._markers):
            self._none, self.held = True, ""
            return text
        self.held = text
        return ""


_THINK, _END_THINK = "<think>", "</think>"
