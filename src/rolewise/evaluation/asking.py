"""The solver of our suites: ask the model once, unless the answer is known; tell whoever shows progress."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import ChatMessage, Model, ModelOutput, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver

from rolewise.commands.answer_file import model_stamp
from rolewise.evaluation.conversations import ROLE_KEY
from rolewise.evaluation.outcomes import CEILING, CLEAN
from rolewise.evaluation.provider import OPTIONS_KEY, RolewiseAPI
from rolewise.evaluation.store import content_key, open_store, told_arguments
from rolewise.evaluation.unaskable import refusal_of
from rolewise.evaluation.watching import tell_answered


@solver
def ask(
    config: dict[str, Any] | None = None,
    utility_tokens: int | None = None,
    answers: str | None = None,
    early_stop: bool = True,
) -> Solver:
    """Get the model's answer to the sample's conversation.

    Args:
        config: generation settings, by the names of `GenerateConfig`.
        utility_tokens: the most new tokens of answers to unattacked rows, if not those of `config`.
        answers: a file that keeps answers; what it knows is not asked again.
        early_stop: let an answer to an attacked row end once it has shown the witness (our provider only): that
            decides both criteria. Unattacked rows always run to their end.
    """
    settings = dict(config or {})

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model()
        options = dict(settings)
        if utility_tokens is not None and state.metadata.get("condition") == CLEAN:
            options["max_tokens"] = utility_tokens
        witness = _witness(state)
        if early_stop and witness and isinstance(model.api, RolewiseAPI):
            options["extra_body"] = {OPTIONS_KEY: {"settled_by": witness}}
        store = open_store(answers) if answers else None
        key = answer_key(model, state.messages, options, state.epoch)
        known = store.get(key) if store is not None else None
        if known is not None:
            output = ModelOutput.model_validate(known)
            state.output = output
            state.messages.append(output.message)
        else:
            state = await generate(state, **options)
            # A prompt that is too long stays so: it is not asked again either. Other errors may pass.
            if store is not None and (not state.output.error or refusal_of(state.output)):
                store.put(key, state.output.model_dump(mode="json", exclude_none=True, exclude={"time"}))
        tell_answered(known is not None)
        return state

    return solve


def answer_key(model: Model, messages: list[ChatMessage], options: dict[str, Any], *rest: Any) -> str:
    """A hash of all that decides an answer."""
    conversation = [
        {
            "role": (message.metadata or {}).get(ROLE_KEY, message.role),
            "content": message.model_dump(mode="json", include={"content"})["content"],
            "calls": message.model_dump(mode="json", include={"tool_calls"}),
        }
        for message in messages
    ]
    return content_key(model_identity(model), conversation, options, *rest)


def model_identity(model: Model) -> list[Any]:
    """What tells a model from another: name, arguments, generation settings, and the state of local weights."""
    settings = model.config.model_dump(exclude_none=True, exclude={"max_connections"})
    stamp = model_stamp(model.api.model_name) if isinstance(model.api, RolewiseAPI) else None
    return [str(model), told_arguments(model.model_args), settings, stamp]


def _witness(state: TaskState) -> str | None:
    if state.metadata.get("condition") in (CLEAN, CEILING):
        return None
    return (state.metadata.get("payload") or {}).get("witness")


def known_value(answers: str | None, key: str) -> Any:
    """What the file `answers` has under `key`, or None."""
    return open_store(answers).get(key) if answers else None


def keep_value(answers: str | None, key: str, value: Any) -> None:
    """Keep a value in the file `answers`, if there is one."""
    if answers:
        open_store(answers).put(key, value)
