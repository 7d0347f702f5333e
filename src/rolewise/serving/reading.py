"""Reading an answer as it grows: from tokens to text, thoughts and tool calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolewise.engine.decoding import Ending, TokenLogprob
from rolewise.engine.detokenizing import Detokenizer
from rolewise.serving.backend import Delta
from rolewise.serving.cutting import CallCutter, StopCutter, ThoughtSplitter
from rolewise.tools.calls import CALL_BEGIN, Call
from rolewise.tools.format import Said, ToolFormat


@dataclass(frozen=True)
class TokenInfo:
    """A token of an answer."""

    id: int
    text: str
    """As it reads alone: U+FFFD where it is no whole character."""
    bytes: bytes
    logprob: float | None = None
    likeliest: tuple[TokenInfo, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The next stretch of an answer. All pieces' texts joined are the answer, whether it is streamed or not."""

    text: str = ""
    reasoning: str = ""
    """Of the thought with which an answer may begin; no part of `text`."""
    tokens: tuple[TokenInfo, ...] = ()
    """What was written, thoughts and calls included, up to a stop string."""
    calls: tuple[Call, ...] = ()
    """Tool calls; in the last piece only."""
    ending: Ending | None = None
    """In the last piece, and in no other."""
    written: int = 0
    """How many tokens the model has written so far."""
    cached_tokens: int = 0
    """How many tokens of the prompt came from a prefix computed before."""


class TokenTexts:
    """What tokens read as, for one tokenizer and one way to call tools.

    Special tokens are left out, but for those of which a call is made. In a form that the tokenizer itself reads
    (`response_template`) all may count, so that all are kept until it has read them.
    """

    def __init__(self, tokenizer: Any, tools: ToolFormat | None) -> None:
        self.specials = tuple(tokenizer.all_special_tokens)
        kept = () if tools is None else self.specials if tools.name == "template" else _CALL_SURFACES
        self.detokenizer = Detokenizer(tokenizer, kept)
        self._known: dict[int, TokenInfo] = {}

    def of(self, token: int, logprob: TokenLogprob | None) -> TokenInfo:
        """A token, with what is known of its chances."""
        if (plain := self._known.get(token)) is None:
            surface = self.detokenizer.surface(token)
            plain = self._known[token] = TokenInfo(token, surface.decode(errors="replace"), surface)
        if logprob is None:
            return plain
        _, chance, likeliest = logprob
        others = tuple(self._with(self.of(other, None), its) for other, its in likeliest)
        return TokenInfo(token, plain.text, plain.bytes, chance, others)

    @staticmethod
    def _with(plain: TokenInfo, chance: float) -> TokenInfo:
        return TokenInfo(plain.id, plain.text, plain.bytes, chance)


class AnswerReader:
    """Makes pieces of one answer's deltas.

    While tools are offered, text is handed over up to where a call may begin, and the rest when the answer has ended.
    Where a call is all of an answer (Llama's bare JSON), one that begins like a call is held back as a whole, and
    where the tokenizer reads calls itself, any is. Calls that cannot be read stay in the text, as written.
    """

    def __init__(
        self,
        texts: TokenTexts,
        *,
        stop: Sequence[str] = (),
        opening: str = "",
        tools: ToolFormat | None = None,
        schemas: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.written = 0
        """How many tokens the model has written, the one that completed a stop string included."""
        self.ended = False
        self._texts = texts
        self._decoder = texts.detokenizer.start()
        self._cutter = StopCutter(stop)
        self._opening = opening
        self._thoughts = ThoughtSplitter(opening)
        self._tools = tools
        self._schemas = schemas
        markers = () if tools is None else _MARKERS.get(tools.name, ())
        self._calls = CallCutter(markers, alone=tools is not None and tools.name == "json")
        self._whole: list[str] | None = [] if tools is not None and tools.name == "template" else None
        self._length = 0
        self._certain = 0
        self._waiting: deque[tuple[int, TokenInfo]] = deque()
        self._cached = 0

    def take(self, delta: Delta) -> Piece | None:
        """The next piece; None when a delta settles nothing. After the last one `ended` is true."""
        self._cached = self._cached or delta.cached_tokens
        logprobs = delta.logprobs if delta.logprobs is not None else [None] * len(delta.token_ids)
        certain: list[str] = []
        for token, logprob in zip(delta.token_ids, logprobs, strict=True):
            self.written += 1
            self._waiting.append((self._length, self._texts.of(token, logprob)))
            new = self._decoder.push(token)
            self._length += len(new)
            certain.append(self._cutter.push(new))
            if self._cutter.stopped:
                break
        ending = "stop" if self._cutter.stopped else delta.ending
        if ending is not None:
            self.ended = True
            if not self._cutter.stopped:
                certain += [self._cutter.push(self._decoder.finish()), self._cutter.finish()]
        # A character that was never completed may itself complete a stop string.
        ending = "stop" if self._cutter.stopped else ending
        return self._piece("".join(certain), ending)

    def _piece(self, raw: str, ending: Ending | None) -> Piece | None:
        self._certain += len(raw)
        tokens: list[TokenInfo] = []
        all_of_them = ending is not None and not self._cutter.stopped
        while self._waiting and (all_of_them or self._waiting[0][0] < self._certain):
            tokens.append(self._waiting.popleft()[1])
        reasoning, text, calls = self._parted(raw, last=ending is not None)
        if not (reasoning or text or tokens or ending):
            return None
        return Piece(
            text=text, reasoning=reasoning, tokens=tuple(tokens), calls=calls, ending=ending, written=self.written,
            cached_tokens=self._cached,
        )  # fmt: skip

    def _parted(self, raw: str, *, last: bool) -> tuple[str, str, tuple[Call, ...]]:
        """(thought, said, calls) of what is certain now."""
        if self._whole is not None:
            self._whole.append(raw)
            if not last:
                return "", "", ()
            return self._parsed("".join(self._whole))
        reasoning, said = self._thoughts.push(raw)
        text = self._calls.push(said)
        if not last:
            return reasoning, text, ()
        more, said = self._thoughts.finish()
        text += self._calls.push(said)
        rest, calls = self._called()
        return reasoning + more, text + rest, calls

    def _called(self) -> tuple[str, tuple[Call, ...]]:
        held = self._calls.held
        if not self._calls.found or self._tools is None:
            return held, ()
        said = self._tools.read(held.lstrip(), "", self._schemas)
        if not said.calls or any(call.error for call in said.calls):
            return held, ()
        return (f"\n{said.text}" if said.text else ""), said.calls

    def _parsed(self, whole: str) -> tuple[str, str, tuple[Call, ...]]:
        assert self._tools is not None
        said = self._tools.read(whole, self._opening, self._schemas)
        if any(call.error for call in said.calls):
            said = Said(whole)
        return self._without_special(said.thoughts), self._without_special(said.text), said.calls

    def _without_special(self, text: str) -> str:
        for token in self._texts.specials:
            text = text.replace(token, "")
        return text


_MARKERS = {
    "plain": (CALL_BEGIN,),
    "tagged": (CALL_BEGIN,),
    "mistral": ("[TOOL_CALLS]",),
    "json": ("{", "<|python_tag|>"),
}
"""With what a call begins, by the name of its form."""

_CALL_SURFACES = frozenset(
    {CALL_BEGIN, "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "[TOOL_CALLS]", "[ARGS]",
     "[CALL_ID]", "<|python_tag|>"}
)  # fmt: skip
"""Tokens of which calls are made, some of which are special in some tokenizers."""
