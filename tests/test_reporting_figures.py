"""Figures: there, not blank, the same each time, and readable without colour."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from rolewise.attacks import MAIN_ATTACKS
from rolewise.evaluation.outcomes import CEILING, CLEAN, Run
from rolewise.evaluation.statistics import Estimate, wilson
from rolewise.reporting import build_sections, write_report
from rolewise.reporting.drawings import accompanying, drawings
from rolewise.reporting.figures import HATCHES, Drawing, bars, radar

from .reporting_runs import ATTACKS, SECOND, run

MANY = (CLEAN, *ATTACKS, "escape_separation", "ood_naive", CEILING)


def drawn(runs: list[Run]) -> dict[str, Drawing]:
    with pytest.MonkeyPatch.context() as patch:  # the hand-made runs have four samples
        patch.setattr("rolewise.reporting.sections.LEAST_IN_PART", 1)
        (section,) = build_sections(runs)
    return {one.name: one for one in drawings(section)}


@pytest.fixture(scope="module")
def figures() -> dict[str, Drawing]:
    return drawn([run(conditions=MANY), run("second", SECOND, conditions=MANY)])


def text_of(svg: bytes) -> str:
    """matplotlib writes each text as a comment before its outlines."""
    return " ".join(re.findall(r"<!--(.*?)-->", svg.decode("utf-8"), re.DOTALL))


def test_every_kind_is_there(figures: dict[str, Drawing]) -> None:
    kinds = ("overall", "separation", "attacks", "radar", "length", "separation-length")
    assert list(figures) == [f"structured-query-{kind}" for kind in kinds]
    placed = [
        one.name for key in ("overview", "attacks", "lengths") for one in accompanying(key, list(figures.values()))
    ]
    assert sorted(placed) == sorted(figures)


def test_none_is_blank(figures: dict[str, Drawing]) -> None:
    from PIL import Image

    for drawing in figures.values():
        image = Image.open(io.BytesIO(drawing.png)).convert("RGB")
        assert image.width > 600
        pixels = image.getcolors(image.width * image.height)
        assert pixels is not None
        ink = sum(count for count, colour in pixels if colour != (255, 255, 255))
        assert 0.01 < ink / (image.width * image.height) < 0.6, drawing.name
        assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")


def test_the_same_runs_give_the_same_bytes(figures: dict[str, Drawing]) -> None:
    assert drawn([run(conditions=MANY), run("second", SECOND, conditions=MANY)]) == figures
    for drawing in figures.values():
        assert b"<dc:date>" not in drawing.svg
        assert b"Software" not in drawing.png


def test_every_figure_says_what_it_is_of(figures: dict[str, Drawing]) -> None:
    for drawing in figures.values():
        said = " ".join(text_of(drawing.svg).split())
        for words in (
            "rolewise/runs/second",
            "eval/rows.json",
            "Seed: 7",
            "torch 2.13.0",
            "n = 4",
            "95 %",
            drawing.title,
        ):
            assert words in said, (drawing.name, words)


def test_bars_are_told_apart_without_colour(figures: dict[str, Drawing]) -> None:
    assert len(set(HATCHES)) == len(HATCHES)
    assert b"<pattern" in figures["structured-query-attacks"].svg


def test_what_a_run_lacks_is_marked() -> None:
    found = drawn([run(), run("second", SECOND, conditions=(CLEAN, "naive", CEILING))])
    assert "no figure" in text_of(found["structured-query-attacks"].svg)
    assert "structured-query-radar" not in found


def test_deaf_runs_are_marked_and_a_radar_does_not_praise_them() -> None:
    found = drawn([run("deaf", {}, conditions=MANY), run("second", SECOND, conditions=MANY)])
    for kind in ("overall", "attacks", "radar"):
        said = " ".join(text_of(found[f"structured-query-{kind}"].svg).split())
        assert "deaf (ceiling 0 %)" in said, kind
        assert "second (ceiling" not in said
    radar_text = " ".join(text_of(found["structured-query-radar"].svg).split())
    assert "the better" not in radar_text
    assert "more robust, or deaf: see the ceiling" in radar_text


def test_separation_is_of_the_group_that_the_title_names() -> None:
    main = (CLEAN, *MAIN_ATTACKS, CEILING)
    found = drawn([run("single", conditions=(CLEAN, "naive", CEILING)), run("second", SECOND, conditions=main)])
    drawing = found["structured-query-separation"]
    assert "main four" in drawing.title
    assert "second" in drawing.description
    assert "single" not in drawing.description
    found = drawn([run()])
    assert found["structured-query-separation"].title.endswith("in-domain (2 of 17)")
    assert "(2 of 17)" in text_of(found["structured-query-overall"].svg)


def test_names_that_look_like_mathematics_or_are_long() -> None:
    estimate = wilson(1, 2)
    series: dict[str, list[Estimate | None]] = {r"$\frac{x$": [estimate], "<b>&\u202e\u4e2d" * 30: [None]}
    drawing = bars("name", "$ title", [("$", "$_{")], series, axis="percent", note="\ud800 $")
    assert ElementTree.fromstring(drawing.svg) is not None
    assert r"$\frac{x$" in text_of(drawing.svg)


def test_a_radar_needs_three_spokes() -> None:
    with pytest.raises(ValueError, match="three spokes or more"):
        radar("name", "title", ["a", "b"], {"run": [wilson(1, 2)] * 2}, axis="percent", note="")


def test_figures_are_written_both_ways(tmp_path: Path) -> None:
    write_report(build_sections([run()]), tmp_path)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"structured-query-attacks.png", "structured-query-attacks.svg"} <= names
