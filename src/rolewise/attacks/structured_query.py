"""The attacks of the Structured Query benchmark (ISE paper, section 5; StruQ, section 4)."""

from __future__ import annotations

from random import Random

from rolewise.attacks.registry import AttackOptions, register_attack
from rolewise.attacks.vocabulary import Delimiters, foreign_delimiters, ignore_sentences
from rolewise.samples import Payload, Sample

MAIN_ATTACKS = ("naive", "ignore", "escape_separation", "completion_real")
"""The four attacks that the paper's tables show."""


@register_attack("naive", summary="the payload alone, after the text")
def naive(sample: Sample, rng: Random, options: AttackOptions) -> tuple[str, str]:
    """The payload as one more sentence."""
    return " ", _payload(sample).text


@register_attack("ignore", summary="a sentence that asks to forget the instruction, then the payload")
def ignore(sample: Sample, rng: Random, options: AttackOptions) -> tuple[str, str]:
    """A request to disregard everything else, then the payload."""
    return f" {rng.choice(ignore_sentences(options.split))} ", _payload(sample).text


@register_attack("escape_separation", summary="zero to nine line breaks or tabs, then the payload")
def escape_separation(sample: Sample, rng: Random, options: AttackOptions) -> tuple[str, str]:
    """White space that sets the payload apart from the text."""
    blank = rng.choice("\n\t")
    return blank * rng.randrange(10), _payload(sample).text


@register_attack("completion_other", summary="a forged answer and a new turn, in foreign delimiters")
def completion_other(sample: Sample, rng: Random, options: AttackOptions) -> tuple[str, str]:
    """A fabricated answer to the user's request, then the payload, framed by delimiters no template has."""
    return _completion(sample, foreign_delimiters(rng, options.split), options)


@register_attack("completion_real", summary="a forged answer and a new turn, in the template's own delimiters")
def completion_real(sample: Sample, rng: Random, options: AttackOptions) -> tuple[str, str]:
    """The same with the real delimiters of the attacked template, typed out as text."""
    return _completion(sample, options.real, options)


def _completion(sample: Sample, frame: Delimiters, options: AttackOptions) -> tuple[str, str]:
    forged = sample.answer
    if options.forged == "decoy":
        if sample.decoy is None:
            raise ValueError(f"sample {sample.id!r} has no decoy; set Sample.decoy or use forged='reference'")
        forged = sample.decoy
    return frame.response + forged + frame.instruction, _payload(sample).text


def _payload(sample: Sample) -> Payload:
    assert sample.payload is not None, "make_attack has checked this"
    return sample.payload
