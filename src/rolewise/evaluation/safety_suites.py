"""The suites of refusals as tasks of inspect_ai: `harmful` and `over_refusal`."""

from __future__ import annotations

from pathlib import Path

from inspect_ai import Task, task

from rolewise.evaluation.graded import answered, declined, has_grader, helped, refused
from rolewise.evaluation.kinds import spread
from rolewise.evaluation.safety import (
    benign_conditions,
    generated_benign,
    harmful_conditions,
    load_benign,
    load_harmful,
    load_templates,
    system_text,
)
from rolewise.evaluation.suite_task import make_task
from rolewise.evaluation.testsets import GENERATED, check_limit, find_data


@task
def harmful(
    data: str | None = None,
    templates: str | None = None,
    system: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    epochs: int = 1,
    max_tokens: int = 512,
    temperature: float = 0.0,
    judge: bool = False,
    answers: str | None = None,
) -> Task:
    """Are harmful requests refused, bare and inside a jailbreak? StrongREJECT's requests, by category.

    A classifier says of each answer whether it refuses (`answered`). With `judge` a grader also says how much it helps
    (`helped`), which is what counts: eager nonsense is no help.

    Args:
        data: a StrongREJECT file (category, source, forbidden_prompt); by default the one in ../shared/data/eval.
        templates: a file of jailbreak templates, of which each request gets one, drawn by the seed and its own words;
            without it, requests are asked bare only.
        system: a system message in front.
        limit: the number of requests, of each category as many as of the others.
        seed: of the draw, and of sampling.
        epochs: how often each row is asked.
        max_tokens: the most new tokens of an answer.
        temperature: 0 is greedy.
        judge: also ask the model role `grader`.
        answers: a file that keeps answers and verdicts, so that a killed run asks nothing twice.

    Raises:
        ValueError: when a file cannot be used (the row is named), or `judge` lacks its grader.
        FileNotFoundError: when there is no such file; the message says what it is and where to get it.
    """
    source = find_data("harmful", data)
    check_limit(limit)
    requests = spread(load_harmful(Path(source).expanduser()), lambda one: one.category, limit)
    drawn_from = load_templates(Path(templates).expanduser()) if templates else ()
    scorers = [answered(), *([helped(answers=answers)] if _graded(judge) else [])]
    return make_task(
        harmful_conditions(requests, drawn_from, seed, system=system_text(system)), "harmful", source, scorers=scorers,
        max_tokens=max_tokens, temperature=temperature, epochs=epochs, answers=answers, seed=seed,
        files={"templates": templates},
    )  # fmt: skip


@task
def over_refusal(
    data: str | None = None,
    system: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    epochs: int = 1,
    max_tokens: int = 256,
    temperature: float = 0.0,
    judge: bool = False,
    answers: str | None = None,
) -> Task:
    """Are harmless prompts answered, however they sound? XSTest's safe prompts, by type, or any others.

    A classifier says of each answer whether it refuses (`refused`); with `judge` a grader does, too (`declined`).

    Args:
        data: an XSTest file, another file of benign prompts (`safety.load_benign`), or `generated`; by default the one
            in ../shared/data/eval if it is there, else generated prompts.
        system: a system message in front.
        limit: the number of prompts, of each type as many as of the others.
        seed: of sampling.
        epochs: how often each row is asked.
        max_tokens: the most new tokens of an answer.
        temperature: 0 is greedy.
        judge: also ask the model role `grader`.
        answers: a file that keeps answers and verdicts, so that a killed run asks nothing twice.

    Raises:
        ValueError: when the file cannot be used (the row is named), or `judge` lacks its grader.
        FileNotFoundError: when there is no such file; the message says what it is and where to get it.
    """
    source = find_data("over_refusal", data)
    check_limit(limit)
    prompts = generated_benign() if source == GENERATED else load_benign(Path(source).expanduser())
    scorers = [refused(), *([declined(answers=answers)] if _graded(judge) else [])]
    return make_task(
        benign_conditions(spread(prompts, lambda one: one.type, limit), system=system_text(system)), "over_refusal",
        source, scorers=scorers, max_tokens=max_tokens, temperature=temperature, epochs=epochs, answers=answers,
        seed=seed,
    )  # fmt: skip


def _graded(judge: bool) -> bool:
    if judge and not has_grader():
        raise ValueError("judge=True needs a grader: --model-role grader=MODEL, any model of inspect_ai")
    return judge
