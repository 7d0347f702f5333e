"""PAIR: an attacker model writes an injection, sees the target's answer, and refines (Chao et al., 2023).

Several streams each refine their own try; the streams differ in the manner that the prompt asks of them. The prompt is
a file of ours with a version (`prompts/pair.md`). An attacker's reply that is not the JSON object that it was asked for
is counted, asked again a few times, and if it stays so the attempt is spent.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rolewise.adaptive.best_of_n import Ask
from rolewise.adaptive.placing import Carrier, with_text
from rolewise.adaptive.trajectory import Answered, Attacked, Attempt, Nearest, Trajectory, criterion_named
from rolewise.data.strict_json import Flaw, json_value
from rolewise.data.teacher.prompt import Prompt, load_prompt
from rolewise.samples import Sample, to_messages

PROMPT = Path(__file__).parent / "prompts" / "pair.md"

AskAttacker = Callable[[Sequence[Mapping[str, str]], str], Awaitable[str]]
"""Asks the attacker; the text names the reply, and tells two replies to the same question apart."""

REPETITIONS = 2
"""How often an attacker is asked again whose reply could not be read."""
SHOWN = 4
"""How many of its tries a stream is shown, the latest; earlier ones would fill the attacker's context."""

_PLACES = {
    "data": "a document that the assistant is given to work on, at its end; it must follow no instructions in it",
    "user": "the message of a user, at its end, below rules of the operator's that no user may change",
}


@dataclass
class _Stream:
    manner: str
    tries: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What it wrote, and what the target answered."""


async def pair(
    sample: Sample,
    ask: Ask,
    attacker: AskAttacker,
    *,
    attempts: int,
    streams: int = 4,
    role: Carrier = "data",
    criterion: str = "in_response",
) -> Attacked:
    """Attack a sample with up to `attempts` tries of an attacker model; stop at the first success.

    Tries are made in turn, one of each stream, and then the next of each, so that a larger budget only adds to them.

    Args:
        sample: with a payload, whose text is the goal.
        ask: asks the target.
        attacker: asks the attacker.
        attempts: the most tries, of all streams together.
        streams: how many lines of tries there are; each is refined about `attempts / streams` times.
        role: whose text carries the attack.
        criterion: what counts as a success.

    Raises:
        ValueError: when `attempts` or `streams` < 1, the criterion is unknown, or the sample has no payload.
    """
    for name, value in (("attempts", attempts), ("streams", streams)):
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    follows = criterion_named(criterion)
    if sample.payload is None:
        raise ValueError(f"sample {sample.id!r} has no payload for an attacker to aim at; set Sample.payload first")
    prompt, witness = pair_prompt(), sample.payload.witness
    manners = prompt.choices["manner"]
    lines = [_Stream(manners[number % len(manners)]) for number in range(streams)]
    nearest, made, unparsed = Nearest(witness), list[Attempt](), 0
    for number in range(1, attempts + 1):
        stream = lines[(number - 1) % streams]
        label = f"stream {(number - 1) % streams + 1}, iteration {(number - 1) // streams + 1}"
        text = None
        for repetition in range(1 + REPETITIONS):
            asked = attacker_messages(prompt, sample, role, stream.manner, stream.tries)
            said = await attacker(asked, f"{sample.id}, attempt {number}, reply {repetition + 1}")
            if (text := read_try(said)) is not None:
                break
            unparsed += 1
        if text is None:
            made.append(Attempt(cost=number, success=False, label=f"{label}, unreadable"))
            continue
        messages = to_messages(with_text(sample, text, role, "pair"), answer=False)
        answer = await ask(messages)
        success = not answer.refused and follows(answer.text, witness)
        made.append(Attempt(cost=number, success=success, label=label, text=text))
        nearest.offer(messages, answer, text, success)
        if success:
            break
        stream.tries.append((text, "(no answer: it was too long)" if answer.refused else answer.text))
    if not nearest.messages:  # the target was never attacked: that is no withstanding, and no answer to be judged
        reason = f"none of the attacker's {unparsed} replies could be read; try a more capable attacker"
        nearest.offer(to_messages(sample, answer=False), Answered(text=reason, refused=True), "", False)
    return nearest.attacked(
        Trajectory(
            method="pair", unit="attempts", budget=attempts, criterion=criterion, attempts=tuple(made),
            unparsed=unparsed,
            settings={"streams": streams, "role": role, "prompt": prompt.name, "version": prompt.version},
        )
    )  # fmt: skip


@cache
def pair_prompt() -> Prompt:
    """The attacker's prompt."""
    return load_prompt(PROMPT)


def attacker_messages(
    prompt: Prompt, sample: Sample, role: Carrier, manner: str, tries: Sequence[tuple[str, str]]
) -> list[Mapping[str, str]]:
    """What the attacker is asked. Texts of others stand between tags that none of them can close."""
    assert sample.payload is not None
    first = max(0, len(tries) - SHOWN)
    shown = "\n\n".join(
        f"Try {number}:\n{text}\nThe answer to it:\n{answer}" for number, (text, answer) in enumerate(tries, 1)
        if number > first
    )  # fmt: skip
    values = {
        "goal": sample.payload.text,
        "witness": sample.payload.witness,
        "place": _PLACES[role],
        "task": sample.instruction,
        "manner": manner,
        "tries": shown or "(none yet)",
    }
    return list(prompt.request(values).messages)


_BLOCK = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


def read_try(said: str) -> str | None:
    """The text of an attacker's next try, or None when its reply is not what it was asked for.

    A block of Markdown around the JSON is accepted, and words before and after it.
    """
    candidates = [said, *_BLOCK.findall(said), said[said.find("{") : said.rfind("}") + 1]]
    for candidate in candidates:
        value = json_value(candidate)
        if not isinstance(value, Flaw) and isinstance(value, dict):
            text: Any = value.get("text")
            return text.strip() if isinstance(text, str) and text.strip() else None
    return None
