"""Recipes: typed, merged with their base, and refused with the remedy before anything runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rolewise.data.hierarchy import KINDS, load_recipe, recipe_from_dict

ROOT = Path(__file__).parents[1]
RECIPES = sorted(ROOT.glob("recipes/*/instruction-hierarchy/data-*.yaml"))

SMALL: dict[str, Any] = {
    "sources": {"alpaca": {"path": "alpaca.json"}},
    "stages": {"plain": {"kind": "take", "source": "alpaca", "take": 4}},
    "mix": {"plain": 4},
}
INJECT = {"kind": "inject", "source": "alpaca", "take": 1}
TEACHER = {"model": "mock", "base_url": "http://127.0.0.1:1/v1"}


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """SMALL with values at dotted keys put in; None takes a key out."""
    values = json.loads(json.dumps(SMALL))
    for key, value in changes:
        *above, last = key.split(".")
        place = values
        for name in above:
            place = place.setdefault(name, {})
        if value is None:
            del place[last]
        else:
            place[last] = value
    return values


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("stages.i", {**INJECT, "attacks": ["nave"]})], "did you mean 'naive'"),
        ([("stages.i", {**INJECT, "twins": 2})], "twins=2.0 must be between 0"),
        ([("source", {})], "unknown key 'source'; did you mean sources"),
        ([("sources.alpaca.max_char", 3)], "unknown key 'sources.alpaca.max_char'; did you mean max_chars"),
        ([("stages.plain.tak", 3)], "unknown key 'stages.plain.tak'; did you mean take"),
        ([("stages.plain.kind", "decomposed")], "not 'decomposed'; did you mean decompose"),
        ([("stages.plain.kind", None)], "stages.plain needs a kind of stage, not None; use one of take, decompose"),
        ([("stages.plain.take", "many")], "stages.plain.take must be int, not 'many'"),
        ([("stages.plain.take", 0)], "stages.plain: take=0 must be at least 1"),
        ([("stages.plain.take", None)], "lacks stages.plain.take"),
        ([("stages.plain.by", "teacher")], "by='teacher', but this kind of stage is made by program only"),
        ([("stages.plain.source", "alpac")], "takes from 'alpac', which is no source and no stage before it"),
        ([("stages.plain.source", None)], "stages.plain lacks a source"),
        ([("mix.plian", 3)], "mix names 'plian', which is no stage; did you mean plain"),
        ([("mix.plain", -1)], "mix.plain must be a number of rows or 'all', not -1"),
        ([("mix.plain", "some")], "mix.plain must be a number of rows or 'all', not 'some'"),
        ([("mix.plain", 0)], "the mix is empty"),
        ([("mix", None)], "lacks mix"),
        ([("sources.other", {"path": "b.json"})], "'other' is used by nothing"),
        ([("sources.alpaca.path", "")], "path is empty"),
        ([("sources.alpaca.min_chars", 9), ("sources.alpaca.max_chars", 5)], "min_chars=9 must be between 0 and"),
        ([("stages.alpaca", {"kind": "ask", "take": 2})], "'alpaca' names a source and a stage"),
        ([("stages.a/b", {"kind": "ask", "take": 2}), ("mix.a/b", 2)], "'a/b' must be made of letters, digits"),
        ([("stages.asks", {"kind": "ask", "take": 2, "source": "plain"}), ("mix.asks", 1)], "take the source out"),
        ([("stages.asks", {"kind": "ask", "take": 2, "by": "teacher"}), ("mix.asks", 1)], "the recipe has none"),
        ([("teacher", TEACHER), ("stages.asks", {"kind": "ask", "take": 2}), ("mix.asks", 1)], "asks lacks a source"),
        ([("teacher.model", ""), ("teacher.base_url", "x")], "teacher: model is empty"),
        ([("teacher.modle", "x")], "unknown key 'teacher.modle'; did you mean model"),
        ([("prompts.asks", "mine.md")], "prompts has 'asks'; did you mean ask"),
        ([("stages.c", {"kind": "conflict", "take": 1, "channels": ["dat"]})], "there is no channel 'dat'"),
        ([("seed", "one")], "seed must be int, not 'one'"),
        ([("drop_test", 3)], "drop_test must be a list of files, not 3"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_remedy(changes: list[tuple[str, Any]], said: str) -> None:
    with pytest.raises(ValueError, match=rf"^r\.yaml.*{re.escape(said)}"):
        recipe_from_dict(changed(*changes), place="r.yaml")


def test_a_stage_takes_from_earlier_ones_only() -> None:
    values = changed(("stages.plain.source", "late"), ("stages.late", {"kind": "ask", "take": 1}))
    with pytest.raises(ValueError, match=r"takes from 'late'.*stages run in their order in the recipe"):
        recipe_from_dict(values)


def test_who_makes_the_rows() -> None:
    stages = {
        "a": {"kind": "decompose", "source": "alpaca", "take": 1},
        "b": {"kind": "decompose", "source": "alpaca", "take": 1, "by": "program"},
        "c": {"kind": "inject", "source": "alpaca", "take": 1},
    }
    values = changed(*((f"stages.{name}", stage) for name, stage in stages.items()), *((f"mix.{n}", 1) for n in stages))
    alone, helped = recipe_from_dict(values), recipe_from_dict({**values, "teacher": TEACHER})
    assert [alone.taught(name) for name in ("plain", "a", "b", "c")] == [False] * 4
    assert [helped.taught(name) for name in ("plain", "a", "b", "c")] == [False, True, False, False]


def test_a_base_is_merged_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(json.dumps({**SMALL, "seed": 3, "output": "base.jsonl"}))
    more = {"base": "base.yaml", "output": "more.jsonl", "stages": {"asks": {"kind": "ask", "take": 2}}}
    (tmp_path / "more.yaml").write_text(json.dumps({**more, "mix": {"asks": 2, "plain": 3}}))
    recipe = load_recipe(tmp_path / "more.yaml", work="w", seed=None)
    assert list(recipe.stages) == ["plain", "asks"]
    assert (recipe.mix, recipe.seed, recipe.output, recipe.work) == ({"plain": 3, "asks": 2}, 3, "more.jsonl", "w")
    (tmp_path / "base.yaml").write_text("base: more.yaml\n")
    with pytest.raises(ValueError, match="is its own base"):
        load_recipe(tmp_path / "more.yaml")
    with pytest.raises(FileNotFoundError, match="no recipe at"):
        load_recipe(tmp_path / "none.yaml")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_the_recipes_of_the_repository_can_be_read(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.output
    assert all(type(stage) in KINDS.values() for stage in recipe.stages.values())
    for name, count in recipe.mix.items():
        assert isinstance(count, int)
        assert count <= 2 * recipe.stages[name].take


def test_the_papers_counts() -> None:
    def mix(name: str) -> dict[str, int | str]:
        return dict(load_recipe(ROOT / "recipes" / "paper" / "instruction-hierarchy" / f"data-{name}.yaml").mix)

    baseline = {"plain": 190_000, "decomposed": 10_000}
    follow = {**baseline, "follow": 5_000, "system_messages": 5_000}
    assert mix("plain") == baseline
    assert mix("system-follow") == follow
    attacks = {"inject": 2_000, "override": 2_000, "conflict": 200, "extract": 200, "ask": 2_000}
    assert mix("hierarchy") == {**follow, **attacks}
    recipe = load_recipe(ROOT / "recipes" / "paper" / "instruction-hierarchy" / "data-hierarchy.yaml")
    taught = {name for name in recipe.stages if recipe.taught(name)}
    assert taught == {"decomposed", "follow", "override", "conflict", "extract", "ask"}
