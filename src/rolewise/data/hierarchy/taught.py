"""Stages that a teacher makes: for each row a request, and from its answer a row or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from rolewise.data.hierarchy.programs import Job
from rolewise.data.hierarchy.records import Outcome, Record, Reject, Turn, generator
from rolewise.data.hierarchy.stages import Ask, Conflict, Decompose, Extract, Override, Regenerate, Stage
from rolewise.data.teacher import Accepted, Prompt, Reason, Rejected, Request, Result
from rolewise.evaluation.leakage import leaked

CHANGED, INVENTED, LEAKED = "data changed", "rule not in the system message", "system message told"
"""Why an answer is rejected that has the right shape."""

UNSETTLED = (Reason.GAVE_UP, Reason.OVER_BUDGET)
"""What asking again might bring."""


class UnfitError(Exception):
    """An answer that has the right shape, but cannot be used."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """How a kind of stage asks, and what it does with an answer."""

    condition: str
    """Of the rows."""
    values: Callable[[Turn], dict[str, str]]
    """What stands in the prompt's places, but for those that are drawn."""
    turn: Callable[[Turn, Any], Turn]
    """The row, from what went in and the answer: the fields of a JSON answer, else its text. Raises `UnfitError`."""
    kept: Callable[[Any], dict[str, Any]] = lambda answer: {}
    """What of the answer goes into the row's meta."""
    stand_in: Callable[[Turn], Any]
    """An answer of about the right length, for estimates of what comes after."""


def _whole(turn: Turn) -> str:
    """The prompt in one piece."""
    return "\n\n".join(filter(None, (turn.user, turn.data)))


def _decomposed(turn: Turn, answer: Any) -> Turn:
    if _squeezed(answer["data"]) not in _squeezed(_whole(turn)):
        raise UnfitError(CHANGED, "what is given as data does not stand in the prompt")
    return replace(turn, **{name: answer[name] for name in ("system", "user", "data")})


def _at_odds(turn: Turn, answer: Any) -> Turn:
    if _squeezed(answer["rule"]) not in _squeezed(turn.system):
        raise UnfitError(INVENTED, "what is given as the rule does not stand in the system message")
    return _replied(turn, answer)


def _withheld(turn: Turn, answer: Any) -> Turn:
    for name, text in (("user turn", answer["user"]), ("answer", answer["answer"])):
        if leaked(turn.system, text):
            raise UnfitError(LEAKED, f"the {name} holds the system message")
    return _replied(turn, answer)


def _replied(turn: Turn, answer: Any) -> Turn:
    return Turn(system=turn.system, user=answer["user"], answer=answer["answer"])


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _reply(turn: Turn) -> dict[str, str]:
    return {"rule": turn.system, "user": turn.user, "answer": turn.answer}


def _system(turn: Turn) -> dict[str, str]:
    return {"system": turn.system}


TEACHINGS: Mapping[type[Stage], Teaching] = {
    Decompose: Teaching(
        condition="decomposed",
        values=lambda turn: {"prompt": _whole(turn)},
        turn=_decomposed,
        # With data, so that whoever takes such rows finds some.
        stand_in=lambda turn: {"system": "You are a helpful assistant.", "user": turn.user, "data": turn.user},
    ),
    Regenerate: Teaching(
        condition="regenerated",
        values=lambda turn: {"system": turn.system, "user": turn.user, "data": turn.data},
        turn=lambda turn, answer: replace(turn, answer=answer.strip()),
        stand_in=lambda turn: turn.answer,
    ),
    Override: Teaching(
        condition="override",
        values=lambda turn: {"system": turn.system, "request": turn.user},
        turn=_replied,
        stand_in=_reply,
    ),
    Conflict: Teaching(
        condition="conflict",
        values=_system,
        turn=_at_odds,
        kept=lambda answer: {"rule": answer["rule"]},
        stand_in=_reply,
    ),
    Extract: Teaching(condition="extract", values=_system, turn=_withheld, stand_in=_reply),
    Ask: Teaching(condition="ask", values=_system, turn=_replied, stand_in=_reply),
}


def requests(job: Job, prompt: Prompt) -> Iterator[Request]:
    """One request for each row, in order; its meta tells the row's place and what was drawn."""
    teaching = TEACHINGS[type(job.stage)]
    for place, record in enumerate(job.records):
        values = teaching.values(_turn(record))
        rng = generator(job.seed, job.name, record.id)
        drawn = {name: _drawn(rng, texts) for name, texts in prompt.choices.items()}
        yield prompt.request({**values, **drawn}, meta={"place": place, "drawn": drawn})


def outcomes(job: Job, results: Iterable[Result]) -> list[Outcome]:
    """One outcome for each row, in the order of the rows, however the results come.

    Raises:
        AssertionError: when a row has no result, or two.
    """
    found: dict[int, Outcome] = {}
    for result in results:
        place = result.request.meta["place"]
        assert place not in found, "two results for one row"
        found[place] = _outcome(job, job.records[place], result)
    assert len(found) == len(job.records), "a row without a result"
    return [found[place] for place in range(len(job.records))]


def stand_ins(job: Job) -> list[Outcome]:
    """Rows as a teacher might make them, for estimates."""
    teaching = TEACHINGS[type(job.stage)]
    made: list[Outcome] = []
    for record in job.records:
        turn = _turn(record)
        made.append(record.made(teaching.turn(turn, teaching.stand_in(turn)), teaching.condition))
    return made


def _outcome(job: Job, record: Record, result: Result) -> Outcome:
    teaching, request = TEACHINGS[type(job.stage)], result.request
    if isinstance(result, Rejected):
        settled = result.reason not in UNSETTLED
        return Reject(id=record.id, reason=str(result.reason), detail=result.detail, raw=result.raw, settled=settled)
    answer = result.text if result.value is None else result.value
    try:
        turn = teaching.turn(_turn(record), answer)
    except UnfitError as unfit:
        return Reject(id=record.id, reason=unfit.reason, detail=unfit.detail, raw=result.text)
    meta = {**teaching.kept(answer), "teacher": _teacher(result), **request.meta["drawn"]}
    return record.made(turn, teaching.condition, **meta)


def _teacher(result: Accepted) -> dict[str, Any]:
    return {"prompt": result.request.prompt, "version": result.request.version, "model": result.usage.model}


def _drawn(rng: Random, texts: tuple[str, ...]) -> str:
    return rng.choice(texts)


def _turn(record: Record) -> Turn:
    turn = record.turn
    assert turn is not None, "the stage does not take such rows"
    return turn
