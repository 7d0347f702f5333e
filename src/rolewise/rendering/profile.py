"""A chat template as we know it: compiled, probed once, and rendered with every string marked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jinja2

from rolewise.messages import parse_messages
from rolewise.rendering.conversation import Draft, Layout, draft
from rolewise.rendering.frames import FrameRules, learn, learn_data
from rolewise.rendering.markers import DOCUMENTS, Leaf, Marked, Markers, choose_markers, locate, materialise
from rolewise.rendering.tokenization import PieceEncoder, TemplateText
from rolewise.roles import Role

_TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, KeyError, AttributeError)
_PROBE_CALLS = {
    text: [{"id": "call00001", "type": "function", "function": {"name": "lookup", "arguments": {"key": value}}}]
    for text, value in (("call", "value"), ("number call", 3))
}
_PROBE_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look a key up.",
            "parameters": {
                "type": "object",
                "properties": {"key": {"type": "string", "description": "The key."}},
                "required": ["key"],
            },
        },
    }
]


@dataclass(frozen=True)
class Rendered:
    """A rendering taken apart: frames[0] texts[0] frames[1] … texts[n-1] frames[n]."""

    frames: list[str]
    indices: list[int]
    texts: list[str]
    text: str


class TemplateProfile:
    """One chat template with one set of template arguments."""

    def __init__(
        self,
        tokenizer: Any,
        source: str,
        text: TemplateText,
        encoder: PieceEncoder,
        kwargs: dict[str, Any],
        stored_layout: str | None,
    ) -> None:
        self.source = source
        self.text = text
        self.encoder = encoder
        self.kwargs: dict[str, Any] = {**tokenizer.special_tokens_map, **kwargs}
        watched = sorted({*text.words, *encoder.special_surfaces}, key=lambda word: (-len(word), word))
        self.watched = re.compile("|".join(map(re.escape, watched))) if watched else None
        control = encoder.special_surfaces
        self.rules = FrameRules(re.compile("|".join(map(re.escape, control)) if control else "(?!)"))
        self.as_parts = False
        self.layout = Layout("header", True, "developer" in text.literals)
        self._probe(stored_layout)

    def _probe(self, stored_layout: str | None) -> None:
        if self._probe_frames([("user", "a")]) is None:
            self.as_parts = True
        called = [("user", "a"), ("assistant", "call"), ("tool", "r")]
        tool = self._probe_frames(called, tools=True) is not None
        if not tool:
            self.layout = replace(self.layout, arguments_as_text=True)
            tool = self._probe_frames(called, tools=True) is not None
            self.layout = replace(self.layout, arguments_as_text=tool)
        self.rules = learn(self._probe_frames, self.rules.control)
        data = "header" if learn_data(self.rules, self._probe_frames) else "inline"
        if stored_layout == "header" and data == "inline":
            raise ValueError(
                "the tokenizer was saved for data messages with a header of their own, but its chat template has none; "
                "restore the chat template that it was saved with"
            )
        data = stored_layout or data
        self.layout = replace(self.layout, data=data, tool=tool)

    def _probe_frames(self, pairs: list[tuple[str, str]], tools: bool = False, **options: Any) -> list[str] | None:
        """The frames of a fixed conversation, or None when the template cannot render it."""
        messages: list[dict[str, Any]] = []
        for kind, text in pairs:
            if text in _PROBE_CALLS:
                messages.append({"role": kind, "tool_calls": _PROBE_CALLS[text]})
            elif kind == "tool":
                messages.append({"role": kind, "name": "lookup", "tool_call_id": "call00001", "content": text})
            else:
                messages.append({"role": kind, "content": text})
        plan = draft(parse_messages(messages), self.layout, _PROBE_TOOLS if tools else None)
        markers = choose_markers([self.source])
        try:
            marked = markers.parse(self._run(plan, lambda leaf: markers.wrap(leaf, None, True), **options))
        except (*_TEMPLATE_ERRORS, ValueError):
            return None
        texts = {text for _, text in pairs}
        wanted = {leaf.index for leaf in plan.leaves if leaf.owner >= 0 and leaf.text in texts}
        return marked.frames if wanted <= set(marked.indices) else None

    def _run(self, plan: Draft, write: Callable[[Leaf], str], add_generation_prompt: bool = False) -> str:
        return self.text.compiled.render(
            messages=[turn.written(write, self.as_parts) for turn in plan.turns],
            tools=materialise(plan.tools, write),
            documents=materialise(plan.documents, write),
            add_generation_prompt=add_generation_prompt,
            **self.kwargs,
        )

    def render(self, plan: Draft, add_generation_prompt: bool) -> Rendered:
        """Render a conversation and take it apart.

        Raises:
            ValueError: when the template refuses the conversation, drops a string that it must not, or does
                something with a string that hides where it went.
        """
        markers = choose_markers([self.source, *map(str, self.kwargs.values()), *(leaf.text for leaf in plan.leaves)])
        skipped: frozenset[int] = frozenset()

        def run(edges: bool) -> str:
            return self._run(
                plan,
                lambda leaf: leaf.text if leaf.index in skipped else markers.wrap(leaf, self.watched, edges),
                add_generation_prompt,
            )

        try:
            marked = markers.parse(run(True))
            plain = self._plain(plan, add_generation_prompt)
            if marked.text != plain:
                # Templates may leave out what is empty: then it has no place, and needs no marker.
                skipped = frozenset(leaf.index for leaf in plan.leaves if not leaf.core)
                unmarked = markers.parse(run(True)) if skipped else marked
                if unmarked.text == plain or self._transparent(plan, markers, skipped, add_generation_prompt):
                    marked = unmarked
                else:
                    raise ValueError(
                        "the chat template changes the text of a message, so roles cannot be told from its output; "
                        "use another template, or rolewise.prepare_tokenizer(tokenizer, 'chatml')"
                    )
            self._check_present(plan, marked)
            if not any(leaf.lead or leaf.trail for leaf in plan.leaves):
                return Rendered(marked.frames, marked.indices, marked.cores, marked.text)
            bare = markers.parse(run(False))
        except _TEMPLATE_ERRORS as error:
            raise ValueError(self._refusal(plan, error)) from error
        frames, texts = locate(marked, bare, plan.leaves)
        return Rendered(frames, marked.indices, texts, marked.text)

    def _plain(self, plan: Draft, add_generation_prompt: bool) -> str | None:
        try:
            return self._run(plan, lambda leaf: leaf.text, add_generation_prompt)
        except _TEMPLATE_ERRORS:
            return None

    def _transparent(self, plan: Draft, markers: Markers, skipped: frozenset[int], prompt: bool) -> bool:
        """Whether the template renders this conversation with markers as without when its words are harmless.

        Then a difference comes from the words themselves (a template that looks for `</think>`), and the marked
        rendering, in which content steers nothing, is the one to use.
        """

        def word(leaf: Leaf) -> str:
            return f"w{leaf.index}" if leaf.core and leaf.index not in skipped else leaf.text

        def marked(leaf: Leaf) -> str:
            if leaf.index in skipped:
                return leaf.text
            return f"{markers.open}{leaf.index:06d}{markers.middle}{word(leaf)}{markers.close}"

        try:
            return self._run(plan, word, prompt) == markers.parse(self._run(plan, marked, prompt)).text
        except _TEMPLATE_ERRORS:
            return False

    def _check_present(self, plan: Draft, marked: Marked) -> None:
        present = set(marked.indices)
        owners = {plan.leaves[index].owner for index in present}
        for leaf in plan.leaves:
            if leaf.required and leaf.index not in present:
                raise ValueError(self._dropped(leaf))
        if plan.documents is not None and DOCUMENTS not in owners:
            raise ValueError("the chat template ignores documents; send them as data messages instead")
        for number, turn in enumerate(plan.turns):
            if number not in owners:
                raise ValueError(
                    f"{turn.label} ({turn.kind}) leaves no text in the rendering, so its place cannot be told; "
                    "give it content, or leave it out"
                )

    def _dropped(self, leaf: Leaf) -> str:
        if leaf.owner < 0:
            return f"the chat template drops {leaf.label} without a word; it does not support tools"
        if leaf.role is Role.SYSTEM:
            return f"the chat template drops {leaf.label}. {_SYSTEM_REMEDY}"
        return f"the chat template drops {leaf.label} without a word; use a template that renders it"

    def _refusal(self, plan: Draft, error: Exception) -> str:
        message = f"the chat template refuses the conversation: {error}."
        roles = ", ".join(turn.kind for turn in plan.turns)
        if any(turn.role is Role.SYSTEM for turn in plan.turns):
            return f"{message} (messages: {roles}) If it is about the system message: {_SYSTEM_REMEDY}"
        return f"{message} (messages: {roles}) Change their order, or use another template"


_SYSTEM_REMEDY = (
    "This template has no place for a system message; put its text into the first user message, "
    "or use rolewise.prepare_tokenizer(tokenizer, 'chatml')"
)
