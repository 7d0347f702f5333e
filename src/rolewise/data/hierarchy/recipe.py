"""A recipe: sources, the stages that make rows of them, and how many rows of each make the mix."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from rolewise.data.hierarchy.stages import KINDS, Stage
from rolewise.data.teacher import Price, TeacherConfig, load_prompt
from rolewise.training.config import build_settings, read_yaml  # the one reader of typed settings

ALL = "all"
"""A count in the mix: every row that the stage has made."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from: Alpaca's, conversations of `messages`, or ShareGPT's `conversations`."""

    path: tuple[str, ...]
    """Files (JSON, JSONL, Parquet, tasks of Super-NaturalInstructions), or names of hub datasets."""
    split: str = "train"
    """The split of hub datasets."""
    turns: Literal["first", "all"] = "first"
    """first ends a conversation after its first answer, as the paper does."""
    min_chars: int = 0
    """The fewest characters of a row, all its messages together."""
    max_chars: int | None = None
    """The most characters of a row; by default any number."""
    max_data_chars: int | None = None
    """The most characters of its data; by default any number."""
    max_rows: int | None = None
    """The most rows of each path, drawn: keeps a large file from drowning a small one."""

    def __post_init__(self) -> None:
        if not self.path or not all(path.strip() for path in self.path):
            raise ValueError("path is empty; name a file or a hub dataset")
        for name in ("max_chars", "max_data_chars", "max_rows"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1, or left out for no limit")
        if self.min_chars < 0 or (self.max_chars is not None and self.min_chars > self.max_chars):
            raise ValueError(f"min_chars={self.min_chars} must be between 0 and max_chars ({self.max_chars})")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What `rolewise data hierarchy` makes."""

    sources: Mapping[str, Source]
    stages: Mapping[str, Stage]
    """In the order in which they run, and take rows of the sources."""
    mix: Mapping[str, int | str]
    """How many rows of each stage; `all` for all that it has made, 0 for none."""
    seed: int = 0
    """Of every draw."""
    output: str | None = None
    """The file to write; the command's -o wins."""
    work: str | None = None
    """The directory for finished stages and paid answers, which several recipes may share; by default beside the
    output."""
    drop_test: tuple[str, ...] = ()
    """Files of test rows; what has the instruction and data of one of them is left out."""
    teacher: TeacherConfig | None = None
    """The model that writes rows; without one, programs do."""
    price: Price | None = None
    """What a million of the teacher's tokens cost, for the estimate."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Prompt files of your own (.md), by the name of the one that they replace."""
    place: str = "the recipe"
    """Where it was read from, for messages."""

    def __post_init__(self) -> None:
        _check(self)

    def taught(self, name: str) -> bool:
        """Whether a teacher makes the rows of the stage `name`."""
        return self.stages[name].taught(self.teacher is not None)


def load_recipe(path: str | Path, **overrides: Any) -> Recipe:
    """Read a YAML recipe.

    `base: FILE` takes over another recipe, beside this one: mappings are merged key by key, the base's first, and all
    else of this one wins. So several mixes share their rows.

    Args:
        path: the file.
        overrides: keys that win over the recipe's.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is no recipe: an unknown key or kind, a wrong value, a stage that takes from nothing known,
            a mix of what is not there, a teacher that is needed and missing. The message names place and remedy.
    """
    path = Path(path)
    values = {**_merged(path, ()), **{key: value for key, value in overrides.items() if value is not None}}
    return recipe_from_dict(values, place=str(path))


def recipe_from_dict(values: Mapping[str, Any], *, place: str = "the recipe") -> Recipe:
    """A recipe from plain values, as in YAML; see `load_recipe` for what it raises."""
    known = [item.name for item in dataclasses.fields(Recipe) if item.name != "place"]
    for key in values:
        if key not in known:
            raise ValueError(f"{place}: unknown key {key!r}; {_near(key, known)}")
    if missing := [key for key in ("stages", "mix") if not values.get(key)]:
        raise ValueError(f"{place} lacks {', '.join(missing)}; a recipe has stages, and a mix of their rows")
    sources = {
        name: _typed(Source, value, place, f"sources.{name}")
        for name, value in _mapping(values, "sources", place).items()
    }
    stages = {name: _stage(value, place, f"stages.{name}") for name, value in _mapping(values, "stages", place).items()}
    mix = _mapping(values, "mix", place)
    for name, count in mix.items():
        if count != ALL and (type(count) is not int or count < 0):
            raise ValueError(f"{place}: mix.{name} must be a number of rows or 'all', not {count!r}")
    others = {key: values[key] for key in ("output", "work", "seed") if values.get(key) is not None}
    for key, kind in (("output", str), ("work", str), ("seed", int)):
        if key in others and type(others[key]) is not kind:
            raise ValueError(f"{place}: {key} must be {kind.__name__}, not {others[key]!r}")
    teacher, price = values.get("teacher"), values.get("price")
    return Recipe(
        sources=sources,
        stages=stages,
        mix=cast("dict[str, int | str]", mix),
        drop_test=_texts(values.get("drop_test"), place, "drop_test"),
        teacher=None if teacher is None else _typed(TeacherConfig, teacher, place, "teacher"),
        price=None if price is None else _typed(Price, price, place, "price"),
        prompts={str(name): str(file) for name, file in _mapping(values, "prompts", place).items()},
        place=place,
        **others,
    )


def _merged(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"no recipe at {str(path)!r}; write one, or start from a data-*.yaml in recipes/")
    if path.resolve() in above:
        raise ValueError(f"{path} is its own base, by way of others; take the base out of one of them")
    values = read_yaml(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise ValueError(f"{path}: base must be the name of a recipe beside this one, not {base!r}")
    found = _merged(path.parent / base, (*above, path.resolve()))
    for key, value in values.items():
        before = found.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            found[key] = {**cast("dict[str, Any]", before), **cast("dict[str, Any]", value)}
        else:
            found[key] = value
    return found


def _stage(value: Any, place: str, key: str) -> Stage:
    fields = dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        hint = _near(kind, list(KINDS)) if isinstance(kind, str) else f"use one of {', '.join(KINDS)}"
        raise ValueError(f"{place}: {key} needs a kind of stage, not {kind!r}; {hint}")
    return _typed(KINDS[kind], fields, place, key)


def _typed(cls: type[Any], value: Any, place: str, key: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: {key} must be a mapping of settings, not {value!r}")
    try:
        return build_settings(cls, cast("dict[str, Any]", value), place, f"{key}.")
    except ValueError as error:
        if str(error).startswith(place):
            raise
        raise ValueError(f"{place}: {key}: {error}") from error


def _mapping(values: Mapping[str, Any], key: str, place: str) -> dict[str, Any]:
    value = values.get(key) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{place}: {key} must be a mapping by name, not {value!r}")
    return {str(name): item for name, item in cast("dict[Any, Any]", value).items()}


def _texts(value: Any, place: str, key: str) -> tuple[str, ...]:
    items: Any = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in cast("list[Any]", items)):
        raise ValueError(f"{place}: {key} must be a list of files, not {value!r}")
    return tuple(cast("list[str]", items))


def _check(recipe: Recipe) -> None:
    place, known = recipe.place, list(recipe.sources)
    if twice := sorted(set(recipe.sources) & set(recipe.stages)):
        raise ValueError(f"{place}: {twice[0]!r} names a source and a stage; rename one of them")
    for name in (*recipe.sources, *recipe.stages):
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{place}: {name!r} must be made of letters, digits, '-' and '_'")
    for name, stage in recipe.stages.items():
        _check_stage(recipe, name, stage, known)
        known.append(name)
    for name in recipe.mix:
        if name not in recipe.stages:
            raise ValueError(f"{place}: mix names {name!r}, which is no stage; {_near(name, list(recipe.stages))}")
    used = set(recipe.mix).union(*(stage.source for stage in recipe.stages.values()))
    if idle := [name for name in (*recipe.stages, *recipe.sources) if name not in used]:
        raise ValueError(f"{place}: {idle[0]!r} is used by nothing; name it in the mix or in a stage, or take it out")
    if not any(recipe.mix.values()):
        raise ValueError(f"{place}: the mix is empty; give at least one stage a count")
    for name in recipe.prompts:
        if name not in (prompts := [stage.prompt for stage in KINDS.values() if stage.prompt]):
            raise ValueError(f"{place}: prompts has {name!r}; {_near(name, prompts)}")


def _check_stage(recipe: Recipe, name: str, stage: Stage, known: list[str]) -> None:
    where = f"{recipe.place}: stages.{name}"
    for one in stage.source:
        if one not in known:
            later = " (stages run in their order in the recipe)" if one in recipe.stages else ""
            raise ValueError(f"{where} takes from {one!r}, which is no source and no stage before it{later}")
    taught = recipe.taught(name)
    if taught and recipe.teacher is None:
        raise ValueError(f"{where} is made by a teacher, and the recipe has none; add teacher: with a model")
    if not stage.source and (taught or stage.program_source == "needed"):
        raise ValueError(f"{where} lacks a source; name a source or an earlier stage whose rows it takes")
    if stage.source and not taught and stage.program_source == "none":
        raise ValueError(f"{where} has a source, but a program generates its rows; take the source out")
    if taught:
        load_prompt(recipe.prompts.get(stage.prompt, stage.prompt))


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(names)}"
