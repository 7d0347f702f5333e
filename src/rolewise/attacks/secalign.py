"""SecAlign's further attacks: other places, encoded and translated completions, contest-style sentences."""

from __future__ import annotations

import base64
from random import Random

from rolewise.attacks.payloads import LANGUAGES, translated
from rolewise.attacks.registry import AttackOptions, Wrap, register_attack
from rolewise.attacks.structured_query import completion, ignore, payload_text
from rolewise.attacks.vocabulary import contest_sentences
from rolewise.samples import Position, Sample

SECALIGN_ATTACKS = (
    "ignore_begin", "ignore_middle", "completion_real_base64",
    *(f"completion_real_{language}" for language in LANGUAGES), "hackaprompt",
)  # fmt: skip
"""SecAlign's attacks without optimisation, besides the seventeen."""

_PLACES: tuple[Position, ...] = ("begin", "middle")

for _place in _PLACES:
    register_attack(
        f"ignore_{_place}", summary=f"ignore, at the {_place} of the text", domain="secalign", positions=(_place,)
    )(ignore)


@register_attack(
    "completion_real_base64",
    summary="completion_real, encoded in base64 from end to end",
    domain="secalign",
    forges=True,
)
def completion_real_base64(sample: Sample, rng: Random, options: AttackOptions) -> tuple[str, str]:
    """The whole completion, payload included, as base64 on lines of its own."""
    text = completion(sample, options.real, options) + payload_text(sample, options)
    return "\n\n", base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def _translated(language: str) -> Wrap:
    def wrap(sample: Sample, rng: Random, options: AttackOptions) -> tuple[str, str]:
        assert sample.payload is not None, "make_attack has checked this"
        return completion(sample, options.real, options), translated(sample.payload, language)

    return wrap


for _language in LANGUAGES:
    register_attack(
        f"completion_real_{_language}",
        summary=f"completion_real with the payload in {_language.capitalize()}",
        domain="secalign",
        forges=True,
    )(_translated(_language))


@register_attack("hackaprompt", summary="a trick as in injection contests, with the payload in it", domain="secalign")
def hackaprompt(sample: Sample, rng: Random, options: AttackOptions) -> tuple[str, str]:
    """One of the split's contest sentences, drawn or chosen, around the payload."""
    sentences = contest_sentences(options.split)
    if options.sentence is not None and not 0 <= options.sentence < len(sentences):
        raise ValueError(f"sentence={options.sentence} must be between 0 and {len(sentences) - 1}")
    sentence = rng.choice(sentences) if options.sentence is None else sentences[options.sentence]
    return " ", sentence.format(p=payload_text(sample, options, lowered=False))
