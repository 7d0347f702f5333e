"""The solver of the suite `adaptive`: attack a conversation until the model gives in, and keep everything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import anyio
from anyio.to_thread import run_sync
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver

from rolewise.adaptive.best_of_n import best_of_n
from rolewise.adaptive.pair import pair
from rolewise.adaptive.placing import Carrier
from rolewise.adaptive.trajectory import Answered, Attacked, Trajectory
from rolewise.attacks import Delimiters, make_attack
from rolewise.engine.decoding import PromptTooLongError
from rolewise.evaluation.asking import answer_key, ask, model_identity
from rolewise.evaluation.conversations import from_rolewise
from rolewise.evaluation.outcomes import CEILING, CLEAN
from rolewise.evaluation.provider import OPTIONS_KEY, RolewiseAPI
from rolewise.evaluation.store import open_store
from rolewise.evaluation.unaskable import NOTHING_TO_ASK_KEY, TOO_LONG_KEY, refusal_of
from rolewise.evaluation.watching import tell_answered, tell_wrote
from rolewise.samples import Sample, to_messages


@dataclass(frozen=True, kw_only=True)
class AdaptivePlan:
    """What the solver needs to know; the task's arguments say what each is."""

    samples: Mapping[str, Sample]
    """By id, unattacked."""
    budgets: Mapping[str, int]
    """By method."""
    role: Carrier
    criterion: str
    seed: int
    attacks: Sequence[str]
    real: Delimiters
    streams: int
    attacker: Callable[[], Model] | None
    gcg: Mapping[str, Any]
    """Fields of `GCGConfig`."""
    base_attack: str
    data_role: str
    settings: Mapping[str, Any]
    """How the target answers."""
    answers: str | None


@solver
def adapt(plan: AdaptivePlan) -> Solver:
    """Ask clean and ceiling rows once; attack the others by the method that their condition names."""
    plain = ask(config=dict(plan.settings), answers=plan.answers)
    one_at_a_time = anyio.CapacityLimiter(1)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        method = state.metadata["condition"]
        if method in (CLEAN, CEILING):
            return await plain(state, generate)
        sample = plan.samples[state.metadata["id"]]
        target = _Target(plan, get_model(), sample, state.epoch)
        if method == "gcg":
            attacked = await _search(plan, sample, target, one_at_a_time)
        elif method == "best_of_n":
            attacked = await best_of_n(
                sample, target.ask, attempts=plan.budgets[method], attacks=plan.attacks, role=plan.role,
                real=plan.real, criterion=plan.criterion, seed=plan.seed + state.epoch - 1,
            )  # fmt: skip
        else:
            assert plan.attacker is not None, "the task has seen to it"
            attacked = await pair(
                sample, target.ask, partial(_ask_attacker, plan, plan.attacker(), state.epoch),
                attempts=plan.budgets[method], streams=plan.streams, role=plan.role, criterion=plan.criterion,
            )  # fmt: skip
        _finish(state, attacked, target, plan)
        tell_answered(not target.asked)
        return state

    return solve


class _Target:
    """The model under test, each of its answers kept."""

    def __init__(self, plan: AdaptivePlan, model: Model, sample: Sample, epoch: int) -> None:
        assert sample.payload is not None, "test samples have one"
        self.model, self._plan, self.epoch, self.witness = model, plan, epoch, sample.payload.witness
        self._count = 0
        self.asked = False
        """Whether anything was computed that was not known."""
        self.outputs: dict[str, ModelOutput] = {}
        """The last output with each text."""

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
        """The conversation as inspect_ai has it."""
        ours = isinstance(self.model.api, RolewiseAPI)
        return from_rolewise(messages, data_role=self._plan.data_role, with_calls=not ours)

    async def ask(self, messages: Sequence[Mapping[str, Any]]) -> Answered:
        """Its answer to a conversation."""
        chat, options = self.chat(messages), dict(self._plan.settings)
        self._count += 1
        if "seed" in options:  # sampling: the same conversation may be answered in another way the next time
            options["seed"] += self._count
        if isinstance(self.model.api, RolewiseAPI):
            options["extra_body"] = {OPTIONS_KEY: {"settled_by": self.witness}}
        output, known = await _kept(self._plan.answers, self.model, chat, options, self.epoch)
        self.asked |= not known
        reason = refusal_of(output)
        text = output.completion if reason is None else reason
        self.outputs[text] = output
        return Answered(text=text, refused=reason is not None)


async def _ask_attacker(
    plan: AdaptivePlan, attacker: Model, epoch: int, messages: Sequence[Mapping[str, str]], which: str
) -> str:
    """The attacker's reply."""
    chat = from_rolewise(messages)
    output, _ = await _kept(plan.answers, attacker, chat, {}, "attacker", plan.seed, epoch, which)
    return output.completion


async def _kept(
    answers: str | None, model: Model, chat: list[ChatMessage], options: dict[str, Any], *rest: Any
) -> tuple[ModelOutput, bool]:
    """A model's output, and whether the file `answers` had it."""
    store = open_store(answers) if answers else None
    key = answer_key(model, chat, options, *rest)
    if store is not None and (known := store.get(key)) is not None:
        return ModelOutput.model_validate(known), True
    output = await model.generate(chat, config=GenerateConfig(**options))
    if store is not None and (not output.error or refusal_of(output)):
        store.put(key, output.model_dump(mode="json", exclude_none=True, exclude={"time"}))
    return output, False


async def _search(plan: AdaptivePlan, sample: Sample, target: _Target, limiter: anyio.CapacityLimiter) -> Attacked:
    """GCG on a thread of its own, a sample at a time; when the evaluation is cancelled it ends with its step."""
    from rolewise.adaptive.gcg import GCGConfig, Step, gcg

    api, ended = target.model.api, threading.Event()
    assert isinstance(api, RolewiseAPI), "the task has seen to it"
    attack = make_attack(plan.base_attack, role=plan.role, real=plan.real)
    seed = plan.seed + target.epoch - 1
    attacked = attack(sample, Random(f"rolewise-gcg:{seed}:{sample.id}"))
    config = GCGConfig(
        steps=plan.budgets["gcg"], criterion=plan.criterion, max_new_tokens=plan.settings["max_tokens"], seed=seed,
        **plan.gcg,
    )  # fmt: skip

    def told(step: Step) -> None:
        if ended.is_set():
            raise _EndedError
        tell_wrote(0)  # whoever shows progress sees that it goes on

    def work() -> Attacked:
        return gcg(
            api.model, api.tokenizer, to_messages(attacked, answer=False), witness=target.witness, role=plan.role,
            config=config, batch_size=api.batch_size, segments=api.probe,
            store=open_store(plan.answers) if plan.answers else None, identity=model_identity(target.model), told=told,
        )  # fmt: skip

    target.asked = True
    try:
        return await run_sync(work, limiter=limiter, abandon_on_cancel=True)
    except PromptTooLongError as error:
        target.outputs[str(error)] = output = ModelOutput.from_content(
            api.model_name, str(error), stop_reason="model_length", error=str(error)
        )
        output.metadata = {TOO_LONG_KEY: {"tokens": error.tokens, "positions": error.positions}}
        nothing = Trajectory(
            method="gcg", unit="steps", budget=config.steps, criterion=plan.criterion, attempts=()
        )  # fmt: skip
        refused = Answered(text=str(error), refused=True)
        return Attacked(
            messages=to_messages(attacked, answer=False), answer=refused, injected="", trajectory=nothing
        )  # fmt: skip
    finally:
        ended.set()


class _EndedError(Exception):
    """Nobody waits for the search any more."""


def _made_output(model: Model, answer: Answered) -> ModelOutput:
    """An answer that no provider of inspect_ai gave."""
    if answer.refused:
        output = ModelOutput.from_content(model.name, answer.text, stop_reason="model_length", error=answer.text)
        output.metadata = {NOTHING_TO_ASK_KEY: True}
        return output
    return ModelOutput.from_content(model.name, answer.text)


def _finish(state: TaskState, attacked: Attacked, target: _Target, plan: AdaptivePlan) -> None:
    """Give the state the attempt that counts: its conversation, its answer, and the trajectory."""
    state.output = target.outputs.get(attacked.answer.text) or _made_output(target.model, attacked.answer)
    state.messages = [*target.chat(attacked.messages), state.output.message]
    state.metadata["conversation"] = [dict(message) for message in attacked.messages]
    state.metadata["trajectory"] = attacked.trajectory.to_dict()
    record = {"attack": attacked.trajectory.method, "role": plan.role, "position": "end", "text": attacked.injected}
    state.metadata["injections"] = [record]
