"""So many rows of each stage, pairs whole, in one drawn order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rolewise.data.hierarchy.recipe import ALL, Recipe
from rolewise.data.hierarchy.records import Record, generator


def mix(recipe: Recipe, made: Mapping[str, Sequence[Record]]) -> list[Record]:
    """The rows of the mix. A row's `meta` gets the name of its stage.

    Raises:
        ValueError: when a stage has fewer rows than the mix wants, or cannot give so many without parting a pair.
    """
    rows: list[Record] = []
    for name, count in recipe.mix.items():
        wanted = len(made[name]) if count == ALL else int(count)
        rows += [_named(record, name) for record in _drawn(recipe, name, made[name], wanted)]
    # One order for all mixes of a seed: rows that two mixes share come in the same order in both.
    places = {id(row): generator(recipe.seed, "mix", row.meta["stage"], *_identity(row)).random() for row in rows}
    return sorted(rows, key=lambda row: places[id(row)])


def check_counts(recipe: Recipe, made: Mapping[str, Sequence[Record]]) -> None:
    """Refuse a mix that cannot be had, as far as can be told before a teacher has answered.

    A teacher makes a row of a row at most, so that stand-ins are as many rows as there can be.

    Raises:
        ValueError: as `mix` does.
    """
    for name, count in recipe.mix.items():
        if count != ALL:
            _drawn(recipe, name, made[name], int(count))


def _drawn(recipe: Recipe, name: str, records: Sequence[Record], wanted: int) -> list[Record]:
    if wanted > len(records):
        raise ValueError(
            f"{recipe.place}: mix wants {wanted:,} rows of {name}, which has made {len(records):,}; raise "
            f"stages.{name}.take (what is finished or paid for is kept), or lower mix.{name}"
        )
    groups: dict[str, list[Record]] = {}
    for number, record in enumerate(records):
        pair = record.meta.get("pair")
        groups.setdefault(f"pair {pair}" if pair is not None else f"row {number}", []).append(record)
    chosen: list[Record] = []
    for group in groups.values():  # stages make their rows in a drawn order
        if len(chosen) + len(group) <= wanted:
            chosen += group
    if len(chosen) != wanted:
        raise ValueError(
            f"{recipe.place}: mix.{name}: {wanted} rows cannot be had without parting a row from its twin; "
            f"use {len(chosen)}"
        )
    return chosen


def _named(record: Record, name: str) -> Record:
    return Record(id=record.id, messages=record.messages, meta={"stage": name, **record.meta})


def _identity(record: Record) -> tuple[str, str]:
    return record.id, str(record.meta.get("condition"))
