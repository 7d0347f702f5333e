"""What inspect_ai finds through our entry point: the provider and the tasks, under the name `rolewise`."""

from inspect_ai.model import ModelAPI, modelapi

from rolewise.evaluation.adaptive_suite import adaptive
from rolewise.evaluation.capability_suites import capability
from rolewise.evaluation.guardrail_suite import guardrails
from rolewise.evaluation.hierarchy_suites import prompt_extraction, rules
from rolewise.evaluation.safety_suites import harmful, over_refusal
from rolewise.evaluation.suites import direct_injection, sep, structured_query


@modelapi(name="rolewise")
def rolewise() -> type[ModelAPI]:
    """The provider `rolewise/<path>`, imported when a model of it is asked for."""
    from rolewise.evaluation.provider import RolewiseAPI

    return RolewiseAPI


__all__ = [
    "adaptive",
    "capability",
    "direct_injection",
    "guardrails",
    "harmful",
    "over_refusal",
    "prompt_extraction",
    "rolewise",
    "rules",
    "sep",
    "structured_query",
]
