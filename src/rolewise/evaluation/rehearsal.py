"""Making a suite's task once without the model, so that what is wrong with its files shows before hours of answers."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import copy_context
from typing import Any


def rehearse(suite: str, task_args: Mapping[str, Any]) -> None:
    """Make the task of `suite` as `run_plan` will, with a stand-in for every model.

    Args:
        suite: the name of the task.
        task_args: its arguments.

    Raises:
        ValueError, OSError: what the task says of an argument, or of a row of a file.
    """
    copy_context().run(_made, suite, task_args)  # inspect_ai keeps the models in context variables


def _made(suite: str, task_args: Mapping[str, Any]) -> None:
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.model._model import init_active_model, init_model_roles

    from rolewise.evaluation import registry
    from rolewise.evaluation.watching import unwatched

    stand_in = get_model("mockllm/model", memoize=False)
    init_active_model(stand_in, GenerateConfig())
    init_model_roles({"grader": stand_in})
    with unwatched():
        getattr(registry, suite)(**_without_weights(task_args))


def _without_weights(task_args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with another method in place of gcg, which asks at once for weights; `look_up` has seen to them."""
    from rolewise.evaluation.adaptive_suite import chosen_methods

    if "method" not in task_args:
        return dict(task_args)
    others = [name for name in chosen_methods(task_args["method"]) if name != "gcg"]
    return {**task_args, "method": others or ["best_of_n"]}
