"""Whose is a template's own text? The rules by which the text between two leaves is split into roles.

They are learnt once for each template from fixed conversations, never from the conversation at hand: how a message
of each kind ends (its tail), how the next one opens (its header), and what the generation prompt is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rolewise.roles import Role

_DATA_NAMES = ("data", "input", "inpt")

_TWO_TURNS = [("user", "a"), ("data", "b"), ("assistant", "e"), ("user", "f")]

Render = Callable[..., list[str] | None]
"""Renders a fixed conversation of (kind, text) pairs; gives the frames, or None when the template cannot."""


@dataclass(frozen=True)
class Side:
    """What stands on one side of a frame."""

    owner: int
    """The turn (or `TOOLS`, `DOCUMENTS`) of the leaf there."""
    kind: str
    """The turn's kind as the template sees it; "tools" or "documents" for the two others."""
    role: Role
    """The role of the template's text there."""


@dataclass(frozen=True)
class Split:
    """Where a frame changes hands: body, tail | opening, rest."""

    tail: int
    """Where the tail of the message before begins; before it is text inside that message."""
    header: int
    """Where the next message's header begins."""
    answer: int
    """Where, in an assistant's header, the text ends that a generation prompt would give."""


@dataclass
class FrameRules:
    """How a template frames messages."""

    control: re.Pattern[str]
    tails: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By kind: what may follow a message's last string before the next message, the likeliest first."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    prompt: str = ""
    """The generation prompt."""
    first_header: str = ""
    """The user's header where no answer comes before it, if that is longer."""
    call_end: str = ""
    """What ends a tool call, whatever its last argument is, up to the result."""

    def split(self, frame: str, before: Side | None, after: Side | None, generation: bool) -> Split:
        """Split the text between two leaves (or at an end) among them."""
        if before is None:
            assert after is not None
            return self._header(frame, 0, self._first_header(frame, after), after)
        if after is None and not generation:
            return Split(self._last_tail(frame, before), len(frame), len(frame))
        if after is not None and after.owner == before.owner:
            return Split(len(frame), len(frame), len(frame))
        tail, header = self._tail(frame, before, after)
        return self._header(frame, tail, header, after)

    def _header(self, frame: str, tail: int, header: int, after: Side | None) -> Split:
        if after is None:
            return Split(tail, header, len(frame))
        answer = header + len(common_prefix(frame[header:], self.prompt)) if after.role is Role.OUTPUT else len(frame)
        return Split(tail, header, answer)

    def _tail(self, frame: str, before: Side, after: Side | None) -> tuple[int, int]:
        own = self.tails.get(before.kind, [])
        for tail in own:
            if frame.startswith(tail):
                return 0, len(tail)
        for tail in own:
            if (start := frame.find(tail)) >= 0:
                return start, start + len(tail)
        header = self._opening(after, first=before.kind != "assistant") if after is not None else self.prompt
        if header and frame.endswith(header):
            end = len(frame) - len(header)
            ends = [found.start() for found in self.control.finditer(frame[:end])]
            return (ends[-1] if ends else 0), end
        if (found := self.control.search(frame)) is not None:
            return found.start(), found.end()
        return 0, len(frame)

    def _last_tail(self, frame: str, before: Side) -> int:
        """Where the tail of the conversation's last message begins."""
        if before.role is not Role.OUTPUT or any(tail in frame for tail in self.tails.get(before.kind, [])):
            return self._tail(frame, before, None)[0]
        # A call that no result follows: its arguments and their tags, and then what ends it.
        ends = [found.start() for found in self.control.finditer(frame)]
        return ends[-1] if ends else len(frame)

    def _first_header(self, frame: str, after: Side) -> int:
        if after.role is Role.SYSTEM:
            return len(frame)
        return len(frame) - len(self.snap(common_suffix(frame, self._opening(after, first=True))))

    def _opening(self, after: Side, first: bool) -> str:
        """The header of the message that follows; `first`: no answer comes before it."""
        if after.kind == "user" and first and self.first_header:
            return self.first_header
        return self.headers.get(after.kind, "")

    def snap(self, suffix: str) -> str:
        """A common suffix shortened to begin at a control token, where it has one."""
        found = self.control.search(suffix)
        return suffix[found.start() :] if found else suffix


def learn(render: Render, control: re.Pattern[str]) -> FrameRules:
    """Learn a template's rules from fixed conversations.

    Raises:
        ValueError: when the template cannot even render a question and its answer.
    """
    rules = FrameRules(control)
    asked = render([("user", "a")])
    answered = render([("user", "a"), ("assistant", "b")])
    if asked is None or len(asked) != 2 or answered is None or len(answered) != 3:
        raise ValueError(
            "the chat template does not render a user's question and the assistant's answer as text, so it cannot "
            "express roles; use another, or rolewise.prepare_tokenizer(tokenizer, 'chatml')"
        )
    again = render([("user", "a"), ("assistant", "b"), ("user", "c")])
    prompted = render([("user", "a")], add_generation_prompt=True)
    user_tail, answer_tail = asked[1], answered[2]
    for frame in (answered[1], prompted[-1] if prompted else user_tail):
        if not frame.startswith(user_tail):
            user_tail = _token_prefix(common_prefix(user_tail, frame), control)
    rules.prompt = prompted[-1][len(user_tail) :] if prompted else ""
    rules.tails["user"] = [user_tail]
    rules.tails["assistant"] = [tail for tail in (answer_tail, user_tail) if tail]
    rules.headers["assistant"] = answered[1][len(user_tail) :]
    rules.headers["user"] = asked[0]
    if again is not None and len(again) == 4:
        # What a first and a later question have in common; a default system prompt may stand before it.
        shared = rules.snap(common_suffix(asked[0], again[2]))
        tail = next((tail for tail in rules.tails["assistant"] if again[2].startswith(tail)), None)
        if tail is None:
            tail = again[2][: len(again[2]) - len(shared)]
        rules.headers["user"] = again[2][len(tail) :]
        if control.search(rules.headers["user"]) is None and (ends := list(control.finditer(shared))):
            # The token that ends an answer also opens a question (GLM): in the first question it is the user's.
            rules.first_header = shared[ends[-1].start() :]
    _learn_system(rules, render)
    _learn_tool(rules, render)
    for kind in ("data", "tool"):
        rules.tails.setdefault(kind, [user_tail] if user_tail else [])
    return rules


def learn_data(rules: FrameRules, render: Render) -> bool:
    """Learn the frame of a `data` message; whether the template has one of its own, named after it.

    A frame that is the user's or the assistant's would say nothing of whose the text is.
    """
    frames = render([("user", "a"), ("data", "b")])
    # Some templates check that turns alternate, and would take a data message in every second place only.
    turns = [render([*before, ("data", "c"), ("assistant", "d")]) for before in ([], [("user", "a")], _TWO_TURNS)]
    if frames is None or len(frames) != 3 or None in turns:
        return False
    user_tail = rules.tails["user"][0]
    header = frames[1][len(user_tail) :] if frames[1].startswith(user_tail) else ""
    named = any(name in header.casefold() for name in _DATA_NAMES)
    if not named or header in (rules.headers["user"], rules.headers["assistant"]):
        return False
    rules.headers["data"] = header
    rules.tails["data"] = [frames[2]] if frames[2] else rules.tails["user"]
    return True


def _learn_system(rules: FrameRules, render: Render) -> None:
    frames = render([("system", "s"), ("user", "a")])
    rules.tails["system"] = []
    if frames is None or len(frames) != 3:
        return
    gap, header = frames[1], rules.first_header or rules.headers["user"]
    tail = gap[: len(gap) - len(header)] if header and gap.endswith(header) else gap
    for kind in ("system", "tools", "documents"):
        rules.tails[kind] = [tail] if tail else []


def _learn_tool(rules: FrameRules, render: Render) -> None:
    """Learn where a call ends and its result begins, by what stays when the one or the other is left out."""
    call = [("user", "a"), ("assistant", "call")]
    result = render([*call, ("tool", "r")], tools=True)
    answered = render([*call, ("tool", "r"), ("assistant", "b")], tools=True)
    if result is None:
        return
    tail = result[-1]
    rules.tails["tool"] = [tail] if tail else []
    if answered is not None and len(answered) == len(result) + 1:
        shared = _token_prefix(common_prefix(tail, answered[-2]), rules.control)
        if shared and shared not in rules.tails["tool"]:
            rules.tails["tool"].append(shared)
    end, header = _call_end(rules, render, "call")
    # A number is no string, so the frame after it begins earlier: what both have in common is the call's end.
    rules.call_end = common_suffix(end, _call_end(rules, render, "number call")[0])
    if header:
        rules.headers["tool"] = header


def _call_end(rules: FrameRules, render: Render, call: str) -> tuple[str, str]:
    """What follows the last string of a call: up to where its result begins, and from there."""
    called = render([("user", "a"), ("assistant", call)], tools=True)
    result = render([("user", "a"), ("assistant", call), ("tool", "r")], tools=True)
    if called is None or result is None or len(called) > len(result):
        return "", ""
    gap = result[len(called) - 1]
    end = called[-1] if gap.startswith(called[-1]) else _token_prefix(common_prefix(called[-1], gap), rules.control)
    return end, gap[len(end) :] if end else ""


def common_prefix(a: str, b: str) -> str:
    """The longest text with which both begin."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return a[:length]


def common_suffix(a: str, b: str) -> str:
    """The longest text with which both end."""
    return common_prefix(a[::-1], b[::-1])[::-1]


def _token_prefix(prefix: str, control: re.Pattern[str]) -> str:
    """A prefix cut after its last whole control token, so that it never ends inside one."""
    ends = [found.end() for found in control.finditer(prefix)]
    return prefix[: ends[-1]] if ends else ""
