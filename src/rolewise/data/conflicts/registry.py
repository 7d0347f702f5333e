"""Every kind of rule, in one table."""

from __future__ import annotations

from collections.abc import Sequence

from rolewise.data.conflicts import format_kinds as form
from rolewise.data.conflicts import phrase_kinds as phrase
from rolewise.data.conflicts import value_kinds as value
from rolewise.data.conflicts.kinds import RuleKind
from rolewise.data.conflicts.language_kinds import language
from rolewise.data.pools import Split

_HELD_OUT: tuple[Split, ...] = ("test",)

KINDS: tuple[RuleKind, ...] = (
    RuleKind(name="case", make=form.case),
    RuleKind(name="json_key", make=form.json_key),
    RuleKind(name="list_marks", make=form.list_marks),
    RuleKind(name="lines", make=form.lines),
    RuleKind(name="separator", make=form.separator),
    RuleKind(name="how_many", make=form.how_many),
    RuleKind(name="sentences", make=form.sentences),
    RuleKind(name="language", make=language),
    RuleKind(name="opening", make=phrase.opening),
    RuleKind(name="address", make=phrase.address),
    RuleKind(name="required_word", make=phrase.required_word),
    RuleKind(name="banned_word", make=phrase.banned_word),
    RuleKind(name="secret", make=phrase.secret),
    RuleKind(name="refusal", make=phrase.refusal),
    RuleKind(name="offset", make=value.offset),
    RuleKind(name="units", make=value.units),
    RuleKind(name="numerals", make=value.numerals),
    RuleKind(name="currency", make=value.currency),
    RuleKind(name="sort_words", make=value.sort_words),
    RuleKind(name="no_commas", make=form.no_commas, splits=_HELD_OUT),
    RuleKind(name="tag", make=form.tag, splits=_HELD_OUT),
    RuleKind(name="repeat", make=form.repeat, splits=_HELD_OUT),
    RuleKind(name="words", make=form.words, splits=_HELD_OUT),
    RuleKind(name="ending", make=phrase.ending, splits=_HELD_OUT),
    RuleKind(name="sign_off", make=phrase.sign_off, splits=_HELD_OUT),
    RuleKind(name="private_number", make=phrase.private_number, splits=_HELD_OUT),
    RuleKind(name="date_format", make=value.date_format, splits=_HELD_OUT),
    RuleKind(name="rounding", make=value.rounding, splits=_HELD_OUT),
    RuleKind(name="sort_numbers", make=value.sort_numbers, splits=_HELD_OUT),
    RuleKind(name="labels", make=value.labels, splits=_HELD_OUT),
)
"""Add a kind here, or hand one of your own to `conflict_rows(kinds=[...])`."""

_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_names(split: Split | None = None) -> tuple[str, ...]:
    """The names of all kinds, or of those that occur in `split`."""
    return tuple(kind.name for kind in KINDS if split is None or split in kind.splits)


def held_out_kinds() -> tuple[str, ...]:
    """The names of the kinds that no training row has."""
    return tuple(kind.name for kind in KINDS if "train" not in kind.splits)


def chosen_kinds(kinds: Sequence[str | RuleKind] | None, split: Split) -> tuple[RuleKind, ...]:
    """The kinds that were asked for, or all of the split.

    Raises:
        ValueError: when a name is unknown, a kind does not occur in the split or is named twice, or none is given.
    """
    if kinds is None:
        return tuple(kind for kind in KINDS if split in kind.splits)
    if isinstance(kinds, str) or not kinds:
        raise ValueError(f"kinds={kinds!r} must be a list of one or more kinds, out of {', '.join(kind_names(split))}")
    found: list[RuleKind] = []
    for one in kinds:
        kind = _BY_NAME.get(one) if isinstance(one, str) else one
        if kind is None:
            raise ValueError(f"there is no kind of rule {one!r}; use one of {', '.join(kind_names(split))}")
        if split not in kind.splits:
            raise ValueError(
                f"the kind {kind.name!r} is held out of the {split!r} split; use one of {', '.join(kind_names(split))}"
            )
        if kind.name in {other.name for other in found}:
            raise ValueError(f"kinds names {kind.name!r} twice")
        found.append(kind)
    return tuple(found)
