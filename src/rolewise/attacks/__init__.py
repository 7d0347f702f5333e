"""Prompt injections as pure, seeded functions on a sample.

    from random import Random
    from rolewise.attacks import make_attack

    attack = make_attack("ignore")                          # in the data, at its end, test vocabulary
    attacked = attack(sample, Random("my seed"))            # a new Sample; the old one is unchanged
    ceiling = make_attack("naive", role="user")             # the same payload where it is to be carried out

`attack_names()` lists what is registered, `register_attack` adds one. The constructions are those of StruQ and
of the ISE paper's Structured Query benchmark (sections 5 and A); every sentence and delimiter is our own.
"""

from rolewise.attacks import structured_query as _structured_query  # registers its attacks
from rolewise.attacks.registry import (
    Attack,
    AttackInfo,
    AttackOptions,
    attack_info,
    attack_names,
    make_attack,
    register_attack,
)
from rolewise.attacks.vocabulary import CHATML, Delimiters, foreign_delimiters, ignore_sentences

MAIN_ATTACKS = _structured_query.MAIN_ATTACKS

__all__ = [
    "CHATML",
    "MAIN_ATTACKS",
    "Attack",
    "AttackInfo",
    "AttackOptions",
    "Delimiters",
    "attack_info",
    "attack_names",
    "foreign_delimiters",
    "ignore_sentences",
    "make_attack",
    "register_attack",
]
