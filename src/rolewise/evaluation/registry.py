"""What inspect_ai finds through our entry point: the provider and the tasks, under the name `rolewise`."""

from inspect_ai.model import ModelAPI, modelapi

from rolewise.evaluation.hierarchy_suites import prompt_extraction, rules
from rolewise.evaluation.suites import direct_injection, sep, structured_query


@modelapi(name="rolewise")
def rolewise() -> type[ModelAPI]:
    """The provider `rolewise/<path>`, imported when a model of it is asked for."""
    from rolewise.evaluation.provider import RolewiseAPI

    return RolewiseAPI


__all__ = ["direct_injection", "prompt_extraction", "rolewise", "rules", "sep", "structured_query"]
