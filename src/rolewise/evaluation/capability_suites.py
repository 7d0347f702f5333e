"""What a model can do beside resisting, as a task of inspect_ai: MT-Bench and AlpacaEval 1.0, both by a grader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from inspect_ai import Task, task, task_with
from inspect_ai.model import ChatMessageUser, ModelOutput, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver

from rolewise.evaluation.asking import answer_key, keep_value, known_value
from rolewise.evaluation.graded import both_turns, first_turn, has_grader
from rolewise.evaluation.kinds import spread
from rolewise.evaluation.mt_bench import CAPABILITY, load_questions, question_rows
from rolewise.evaluation.safety import system_text
from rolewise.evaluation.scorers import ALPACA_EVAL, win_rate
from rolewise.evaluation.suite_task import make_task
from rolewise.evaluation.testsets import check_limit, chosen_benchmarks, find_data, find_references
from rolewise.evaluation.unaskable import refusal_of
from rolewise.evaluation.watching import tell_answered

NEEDS_GRADER = (
    "capability is measured by a grader, and none is named; give any capable model of inspect_ai with --grader MODEL, "
    "such as --grader openai/gpt-4o (inspect eval: --model-role grader=MODEL)"
)


@task
def capability(
    data: str | None = None,
    references: str | None = None,
    benchmarks: str | list[str] = "mt_bench,alpaca_eval",
    turns: int = 2,
    system: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    epochs: int = 1,
    max_tokens: int = 1024,
    temperature: float = 0.0,
    answers: str | None = None,
) -> Task:
    """MT-Bench's ratings by category, and the win rate on AlpacaEval; the model role `grader` judges both.

    MT-Bench's follow-ups are about the model's own first answer, which is asked for first. `first_turn` is the rating
    of that answer, `both_turns` the rating of the second, the first in view; 1 to 10. Where the questions have
    references (some of mathematics, reasoning and coding), the grader sees them. Published ratings have other graders,
    and references for all of these: compare only what one grader rated.

    Args:
        data: MT-Bench's questions; by default the file in ../shared/data/eval.
        references: AlpacaEval's rows with reference answers; by default the file in ../shared/data/eval.
        benchmarks: mt_bench, alpaca_eval, or both.
        turns: 1 asks MT-Bench's first turns only.
        system: a system message in front.
        limit: the number of questions, of each category as many as of the others, and of AlpacaEval's rows.
        seed: of sampling.
        epochs: how often each row is asked.
        max_tokens: the most new tokens of an answer.
        temperature: 0 is greedy.
        answers: a file that keeps answers and verdicts, so that a killed run asks nothing twice.

    Raises:
        ValueError: when there is no grader, a file cannot be used (the row is named), or an option has another value.
        FileNotFoundError: when there is no such file; the message says what it is and where to get it.
    """
    if not has_grader():
        raise ValueError(NEEDS_GRADER)
    check_limit(limit)
    chosen = chosen_benchmarks(benchmarks)
    rows: list[dict[str, Any]] = []
    sources: dict[str, str] = {}
    if "mt_bench" in chosen:
        sources["data"] = find_data("capability", data)
        questions = spread(load_questions(Path(sources["data"])), lambda one: one.category, limit)
        rows += question_rows(questions, turns=turns, system=system_text(system))
    if "alpaca_eval" in chosen:
        sources["references"] = find_references(references)
        rows += alpaca_rows(Path(sources["references"]), limit, system_text(system))
    settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    if temperature > 0:
        settings["seed"] = seed
    made = make_task(
        rows, "capability", next(iter(sources.values())), max_tokens=max_tokens, temperature=temperature,
        scorers=[first_turn(answers=answers), both_turns(answers=answers), win_rate(answers=answers)],
        epochs=epochs, answers=answers, seed=seed, files={"references": sources.get("references")},
    )  # fmt: skip
    return task_with(made, solver=ask_turns(config=settings, answers=answers))


def alpaca_rows(path: Path, limit: int | None = None, system: str | None = None) -> Iterator[dict[str, Any]]:
    """AlpacaEval's rows, inputs as data, with the answers that they are compared with.

    Raises:
        ValueError: when a row of the file cannot be used.
    """
    from rolewise.data.structured_query import load_samples
    from rolewise.samples import to_messages

    for sample in load_samples(path, with_input=None)[:limit]:
        yield {
            "messages": to_messages(replace(sample, system=system), answer=False),
            "meta": {
                "id": sample.id,
                "condition": ALPACA_EVAL,
                "domain": CAPABILITY,
                "reference": sample.answer.strip(),
            },
        }


@solver
def ask_turns(config: dict[str, Any] | None = None, answers: str | None = None) -> Solver:
    """Get the model's answer to the sample's conversation, and to each further turn behind its own answers.

    A further turn that is too long for the model is left out, with its answer; what was answered before it stays.

    Args:
        config: generation settings, by the names of `GenerateConfig`.
        answers: a file that keeps answers; what it knows is not asked again.
    """
    settings = dict(config or {})

    async def answer(state: TaskState, generate: Generate) -> tuple[TaskState, bool]:
        model = get_model()
        key = answer_key(model, state.messages, settings, state.epoch)
        known = known_value(answers, key)
        if known is not None:
            state.output = ModelOutput.model_validate(known)
            state.messages.append(state.output.message)
            return state, True
        state = await generate(state, **settings)
        # A prompt that is too long stays so: it is not asked again either. Other errors may pass.
        if not state.output.error or refusal_of(state.output):
            keep_value(answers, key, state.output.model_dump(mode="json", exclude_none=True, exclude={"time"}))
        return state, False

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        turns: list[str] = state.metadata.get("turns", [])
        state, all_known = await answer(state, generate)
        for turn in turns[1:]:
            if state.output.error or refusal_of(state.output):
                break
            before, output = list(state.messages), state.output
            state.messages.append(ChatMessageUser(content=turn))
            state, known = await answer(state, generate)
            all_known = all_known and known
            if refusal_of(state.output):
                state.messages, state.output = before, output
                break
        tell_answered(all_known)
        return state

    return solve
