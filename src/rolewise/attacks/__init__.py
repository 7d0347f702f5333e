"""Prompt injections as pure, seeded functions on a sample.

    from random import Random
    from rolewise.attacks import make_attack

    attack = make_attack("ignore")                          # in the data, at its end, test vocabulary
    attacked = attack(sample, Random("my seed"))            # a new Sample; the old one is unchanged
    ceiling = make_attack("naive", role="user")             # the same payload where it is to be carried out

`attack_names()` lists what is registered, `register_attack` adds one. The constructions are those of StruQ, of the
ISE paper's Structured Query benchmark (sections 5 and A) and of SecAlign; every sentence, delimiter and translation
is our own.
"""

from rolewise.attacks import secalign as _secalign  # registers its attacks, after those of structured_query
from rolewise.attacks import structured_query as _structured_query
from rolewise.attacks.delimiters import NEAR_MISSES, RESERVED, filter_reserved, near_miss, template_delimiters
from rolewise.attacks.payloads import HACKED, LANGUAGES, PAYLOADS, payload_named, translated
from rolewise.attacks.registry import (
    Attack,
    AttackInfo,
    AttackOptions,
    attack_info,
    attack_names,
    make_attack,
    register_attack,
)
from rolewise.attacks.vocabulary import (
    CHATML,
    DELIMITER,
    NAMED_DELIMITERS,
    TEXT,
    Delimiters,
    contest_sentences,
    foreign_delimiters,
    ignore_sentences,
)

MAIN_ATTACKS = _structured_query.MAIN_ATTACKS
IN_DOMAIN_ATTACKS = _structured_query.IN_DOMAIN_ATTACKS
OOD_ATTACKS = _structured_query.OOD_ATTACKS
SECALIGN_ATTACKS = _secalign.SECALIGN_ATTACKS

__all__ = [
    "CHATML",
    "DELIMITER",
    "HACKED",
    "IN_DOMAIN_ATTACKS",
    "LANGUAGES",
    "MAIN_ATTACKS",
    "NAMED_DELIMITERS",
    "NEAR_MISSES",
    "OOD_ATTACKS",
    "PAYLOADS",
    "RESERVED",
    "SECALIGN_ATTACKS",
    "TEXT",
    "Attack",
    "AttackInfo",
    "AttackOptions",
    "Delimiters",
    "attack_info",
    "attack_names",
    "contest_sentences",
    "filter_reserved",
    "foreign_delimiters",
    "ignore_sentences",
    "make_attack",
    "near_miss",
    "payload_named",
    "register_attack",
    "template_delimiters",
    "translated",
]
