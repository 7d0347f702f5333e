"""Rows of conflicts for training and for tests.

Training rows come in blocks of eight: three *pairs*, each a conflict and its twin, one row with the rule alone and
one plain row without it. So three answers of eight carry an order out, and four keep a rule.

- `conflict`: the system states the rule; the order comes through the channel. The answer keeps the rule.
- `twin`: the same task and the very same words of the order, from somebody who may give it. The answer carries it
  out. Three forms, so that no position or phrase tells a twin:
  - `after` (any channel but second_turn): the order stands in the system message, after the rule. All strings are
    those of the conflict; only the order's role differs. The order says that an earlier rule is over.
  - `alone` (the same channels): nobody states a rule, and the order stands in the user turn. Otherwise a model
    could learn that users are never to be obeyed. For the user channel, nothing but the rule is missing.
  - `own` (second_turn): the user stated the rule himself, in the first turn, and may take it back in the second.
    All strings are those of the conflict; only the rule's role differs. A twin with the order in the system message
    would not do: an earlier answer by the rule would contradict it, one by the order would give the answer away.
- `rule`: the rule without any order. `plain`: the task without the rule.

A tool's result comes without the call before it, which many templates cannot render. Texts are short: nearly all rows
have less than 120 tokens in SmolLM2's vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any, Literal

from rolewise.data.conflicts.conversations import (
    CHANNELS,
    Channel,
    Conflict,
    Layout,
    conversation,
    draw_conflict,
    row_meta,
)
from rolewise.data.conflicts.kinds import RuleKind
from rolewise.data.conflicts.registry import chosen_kinds
from rolewise.data.pools import Split
from rolewise.samples import Message

Row = dict[str, Any]
"""`{"messages": [...], "meta": {...}}`."""

Form = Literal["after", "alone", "own"]
"""How a twin lets the order be given (see the module's text)."""

CONFLICT, TWIN, RULE, PLAIN = "conflict", "twin", "rule", "plain"
"""Conditions of a training row."""

BLOCK = (CONFLICT, TWIN) * 3 + (RULE, PLAIN)
"""The conditions of each eight rows, before they are shuffled."""

ALONE_SHARE = 0.4
"""The share of twins, of those whose order may stand in the system message, where nobody states a rule."""
INLINE_SHARE = 0.5
"""The share of user-channel rows, and of rows without an order, that have the task's text in the user turn."""


def conflict_rows(
    n: int,
    *,
    split: Split = "train",
    seed: int | str = 0,
    kinds: Sequence[str | RuleKind] | None = None,
    channels: Sequence[Channel] | None = None,
) -> Iterator[Row]:
    """`n` rows with the right answer as their last message; a longer run begins with the same rows.

    `meta` holds `id` (of the sample, the same in a pair), `pair` (that id in pairs, else None), `kind`, `held_out`,
    `condition`, `channel` and `form` (None outside pairs), `rule` and `order` (their words; the order is None outside
    pairs), and `check` for `judge`.

    Args:
        n: the number of rows; a multiple of eight keeps the mix exact.
        split: the vocabulary; held-out kinds occur in `test` only.
        seed: of everything.
        kinds: names of kinds, or kinds of your own; by default all of the split, equally often.
        channels: by default all, equally often.

    Raises:
        ValueError: when `n` is negative, or for an unknown split, kind or channel, or one that is named twice.
    """
    _check_count(n)
    _check_split(split)
    found, ways = chosen_kinds(kinds, split), chosen_channels(channels)
    return islice(_stream(f"rolewise-conflicts-{split}:{seed}", split, found, ways), n)


def conflict_conditions(
    n: int,
    *,
    seed: int | str = 0,
    kinds: Sequence[str | RuleKind] | None = None,
    channels: Sequence[Channel] | None = None,
) -> Iterator[Row]:
    """Rows for `n` test samples, without an answer: a conflict by each channel, the twin, and the rule alone.

    So `n * (len(channels) + 2)` rows, a sample's rows one after the other, their kinds in turn. The task's text
    is in a data message throughout (a tool message in the tool channel), so that a sample's conversations differ in
    where the order stands and, in the second turn, in what came before. The twin has the order in the system message,
    after the rule. `meta` is that of `conflict_rows`, with `condition` the channel's name, `twin` or `rule`, and
    `domain`: `conflict`, `ceiling` for the twin or `clean` for the rule alone. A longer run begins with the same rows,
    and a sample does not depend on the channels.

    Raises:
        ValueError: when `n` is negative, or for an unknown kind or channel, or one that is named twice.
    """
    _check_count(n)
    found, ways = chosen_kinds(kinds, "test"), chosen_channels(channels)
    return _test_stream(n, f"rolewise-conflict-conditions:{seed}", found, ways)


def chosen_channels(channels: Sequence[Channel] | None) -> tuple[Channel, ...]:
    """The channels that were asked for, or all.

    Raises:
        ValueError: when one is unknown or named twice, or none is given.
    """
    if channels is None:
        return CHANNELS
    if isinstance(channels, str) or not channels or len(set(channels)) != len(channels):
        raise ValueError(f"channels={channels!r} must be a list of one or more of {', '.join(CHANNELS)}, each once")
    unknown = [channel for channel in channels if channel not in CHANNELS]
    if unknown:
        raise ValueError(f"there is no channel {unknown[0]!r}; use one of {', '.join(CHANNELS)}")
    return tuple(channels)


def _check_count(n: int) -> None:
    if n < 0:
        raise ValueError(f"n={n} must not be negative")


def _check_split(split: str) -> None:
    if split not in ("train", "test"):
        raise ValueError(f"split={split!r} must be 'train' or 'test'")


def _in_turn(seed: str, things: Sequence[Any], index: int) -> Any:
    """The thing for place `index`: each once in a round, in an order drawn for the round."""
    turn, place = divmod(index, len(things))
    return Random(f"{seed}:round:{turn}").sample(list(things), len(things))[place]


def _stream(seed: str, split: Split, kinds: Sequence[RuleKind], channels: Sequence[Channel]) -> Iterator[Row]:
    cells = [(kind, channel) for kind in kinds for channel in channels]
    block = 0
    while True:
        rng = Random(f"{seed}:block:{block}")
        rows: list[Row] = []
        for place in range(3):
            kind, channel = _in_turn(f"{seed}:pairs", cells, block * 3 + place)
            rows += _pair(kind, channel, rng, split, f"{split}-{block * 5 + place}")
        for place, condition in enumerate((RULE, PLAIN)):
            kind = _in_turn(f"{seed}:{condition}", kinds, block)
            rows.append(_single(kind, condition, rng, split, f"{split}-{block * 5 + 3 + place}"))
        assert len(rows) == len(BLOCK)
        yield from rng.sample(rows, len(rows))
        block += 1


def _pair(kind: RuleKind, channel: Channel, rng: Random, split: Split, id: str) -> list[Row]:
    """A conflict by this channel and its twin."""
    form: Form = "own" if channel == "second_turn" else "alone" if rng.random() < ALONE_SHARE else "after"
    # A system message that would be empty has an opening, for some templates then write one of their own.
    conflict = draw_conflict(kind, rng, split, id=id, lifted=form == "after", opened=form != "after")
    layout = _layout(channel, rng)
    found: list[Row] = []
    for condition, messages in (
        (CONFLICT, conflicting(conflict, channel, layout)),
        (TWIN, permitted(conflict, form, layout)),
    ):
        answer = conflict.job.obeyed if condition == TWIN else conflict.job.kept
        more = {"pair": id, "channel": channel, "form": form, "order": conflict.order}
        found.append(_row(conflict, condition, messages, answer, **more))
    return found


def _layout(channel: Channel, rng: Random) -> Layout:
    inline = rng.random() < INLINE_SHARE
    match channel:
        case "data" | "tool":
            return channel
        case "second_turn":
            return "inline"
        case "user":
            return "inline" if inline else "data"


def conflicting(conflict: Conflict, channel: Channel, layout: Layout) -> list[Message]:
    """The conversation in which the system states the rule and the order comes through `channel`."""
    return conversation(
        conflict,
        layout=layout,
        order_by="data" if channel in ("data", "tool") else "user",
        second_turn=channel == "second_turn",
    )


def permitted(conflict: Conflict, form: Form, layout: Layout) -> list[Message]:
    """The conversation in which the order may be given."""
    match form:
        case "after":
            return conversation(conflict, layout=layout, order_by="system")
        case "alone":
            return conversation(conflict, layout=layout, rule_by=None, order_by="user")
        case "own":
            return conversation(conflict, layout=layout, rule_by="user", order_by="user", second_turn=True)


def _single(kind: RuleKind, condition: str, rng: Random, split: Split, id: str) -> Row:
    """A row without an order."""
    plain = condition == PLAIN
    conflict = draw_conflict(kind, rng, split, id=id, opened=plain)
    layout: Layout = "inline" if rng.random() < INLINE_SHARE else "data"
    messages = conversation(conflict, layout=layout, rule_by=None if plain else "system")
    answer = conflict.job.plain if plain else conflict.job.kept
    return _row(conflict, condition, messages, answer, pair=None, channel=None, form=None, order=None)


def _row(conflict: Conflict, condition: str, messages: list[Message], answer: str, **more: Any) -> Row:
    answered = [*messages, {"role": "assistant", "content": answer}]
    return {"messages": answered, "meta": row_meta(conflict, condition, **more)}


def _test_stream(n: int, seed: str, kinds: Sequence[RuleKind], channels: Sequence[Channel]) -> Iterator[Row]:
    for index in range(n):
        kind: RuleKind = _in_turn(seed, kinds, index)
        conflict = draw_conflict(kind, Random(f"{seed}:sample:{index}"), "test", id=f"test-{index}")
        for channel in channels:
            layout: Layout = "tool" if channel == "tool" else "data"
            messages = conflicting(conflict, channel, layout)
            yield _question(conflict, channel, "conflict", messages, channel=channel, order=conflict.order)
        twin = permitted(conflict, "after", "data")
        yield _question(conflict, TWIN, "ceiling", twin, channel=None, order=conflict.order)
        alone = conversation(conflict, layout="data")
        yield _question(conflict, RULE, "clean", alone, channel=None, order=None)


def _question(conflict: Conflict, condition: str, domain: str, messages: list[Message], **more: Any) -> Row:
    return {"messages": messages, "meta": row_meta(conflict, condition, domain=domain, **more)}
