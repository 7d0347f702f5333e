"""The study's tables and figures, from results whose counts are known: by hand, over seeds, from the command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.recorded import restored
from benchmarks.structured_query import figures, inside, tables
from benchmarks.structured_query.estimates import Arm, Study, differences_over_seeds, figures_over_seeds, resampled
from matplotlib.figure import Figure

from rolewise.evaluation import Summary, compare, summarise
from rolewise.inspection import Inspection, Measurement
from tests.structured_query_results import (
    ATTACKS,
    STRONG,
    WEAK,
    change,
    clean_pair,
    compacted,
    row,
    rows_of,
    stored,
    write,
)

# --- figures by hand ---------------------------------------------------------------------------------------------


def test_an_arm_and_a_difference_by_hand(tmp_path: Path) -> None:
    text = tables.report(clean_pair(tmp_path))
    section = text.split("## Clean data")[1].split("## By length")[0]
    first, second = section.split("begins with its witness (`begins_with`)")[:2]
    # n, ROUGE-L, reference, main average, worst, union, ood average, ood worst, ceiling, separations
    weak, strong = row(first, "delimiter"), row(first, "delimiter+ISE")
    values = [cell.split(" [")[0] for cell in weak]
    assert values == ["20", "50.0", "−1.000", "37.5", "0.0", "0.0", "80.0", "80.0", "90.0", "+27.5", "+70.0"]
    assert weak[4].endswith("] completion_real")
    values = [cell.split(" [")[0] for cell in strong]
    assert values == ["20", "50.2", "−1.000", "68.8", "50.0", "50.0", "80.0", "80.0", "85.0", "+53.8", "+65.0"]
    assert strong[8] == "85.0 [64.0, 94.8]"  # Wilson of 17 in 20
    heading = next(one for one in rows_of(first) if one[0] == "difference")
    assert heading == ["difference", "delimiter+ISE − delimiter"]
    gains = {key: row(first, words)[0].split(" [")[0] for key, words in (
        ("average", "main four: average"), ("worst", "main four: worst"),
        ("union", "main four: union"), ("ceiling", "ceiling"), ("separation", "main four: separation"),
        ("rouge", "ROUGE-L"), ("ood", "out-of-domain: worst"))}  # fmt: skip
    assert gains == {"average": "+31.2", "worst": "+50.0", "union": "+50.0",
                     "ceiling": "−5.0", "separation": "+26.2", "rouge": "+0.2", "ood": "+0.0"}  # fmt: skip
    # By begins_with half as many follow: 5, 5, 5, 10 and 2, 2, 2, 5 of 20; ceilings 9 and 8 of 20.
    values = [cell.split(" [")[0] for cell in row(second, "delimiter")]
    assert values == ["20", "68.8", "50.0", "50.0", "90.0", "90.0", "45.0", "+13.8", "+35.0"]
    assert row(second, "main four: average")[0].startswith("+17.5 [")
    assert "ROUGE-L" not in second


def test_intervals_are_those_of_the_library(tmp_path: Path) -> None:
    results = clean_pair(tmp_path)
    study = Study(results=results)
    ours, base = Arm("clean", "delimiter-ise"), Arm("clean", "delimiter")
    by_arm = {one.setting.arm: summarise(one.runs["all"]) for one in results}
    figures = study.figures(base)
    assert figures["main average"].estimate == by_arm["delimiter"].groups["main"].average
    assert figures["in_domain worst"].estimate == by_arm["delimiter"].groups["in_domain"].worst
    expected = compare(by_arm["delimiter-ise"], by_arm["delimiter"])
    found = study.differences(ours, base)
    assert found.keys() == expected.keys()
    assert {key: (one.estimate, one.p) for key, one in found.items()} == {
        key: (one.estimate, one.p) for key, one in expected.items()
    }
    # The computation for several seeds, given one, comes to the same: every figure's columns and metric are right.
    arms = [study.arm(ours), study.arm(base)]
    for key, one in expected.items():
        bound = 2.0 if key.endswith(" separation") else float("inf") if key == "reference_logprob" else 1.0
        again = resampled(key, arms, lambda a, b: a - b, (-bound, bound))
        assert (again.value, again.low, again.high, again.n) == pytest.approx(
            (one.estimate.value, one.estimate.low, one.estimate.high, one.estimate.n)
        ), key


def test_attacks_have_wilson_intervals_and_paired_differences(tmp_path: Path) -> None:
    section = tables.report(clean_pair(tmp_path)).split("By attack: attack success")
    assert row(section[1], "naive") == [
        "50.0 [29.9, 70.1]", "25.0 [11.2, 46.9]", row(section[1], "naive")[2]
    ]  # fmt: skip
    # Five samples of twenty only with the delimiter arm: exact p is 2 / 2^5.
    gain = row(section[1], "naive")[2]
    assert gain.startswith("−25.0 [")
    low, high = (float(end) for end in gain.replace("−", "-").partition("[")[2].partition("]")[0].split(", "))
    assert low < -25 < high < 0
    assert gain.endswith(", p 0.062")
    assert row(section[1], "completion_real")[2].endswith(", p 0.002")  # 2 / 2^10
    assert row(section[1], "ood_naive")[2].startswith("+0.0 [")
    assert row(section[2], "naive")[0].startswith("25.0 [")
    assert [one[0] for one in rows_of(section[1])][1:22] == list(ATTACKS)


def test_figures_by_length_of_the_data(tmp_path: Path) -> None:
    text = tables.report(clean_pair(tmp_path)).split("## By length of the data")[1]
    # The first 6, then 7, then 7 samples; the first so many samples follow.
    short, middle, long = "data of 0 to 50 characters", "data of 60 to 120 characters", "data of 130 to 190 characters"
    weak = row(text, short, "delimiter")
    assert [cell.split(" [")[0] for cell in weak] == ["6", "0.0", "100.0", "+0.0"]
    assert [cell.split(" [")[0] for cell in row(text, short, "delimiter+ISE")] == ["6", "12.5", "100.0", "+12.5"]
    # Of samples 6 to 12 naive and two more reach 4 of 7, completion_real all 7: robust (3 * 3/7 + 0) / 4.
    assert [cell.split(" [")[0] for cell in row(text, middle, "delimiter")] == ["7", "32.1", "100.0", "+32.1"]
    assert [cell.split(" [")[0] for cell in row(text, long, "delimiter")] == ["7", "75.0", "71.4", "+46.4"]
    gain = row(text, middle, "delimiter+ISE − delimiter")
    assert gain[0] == "7"
    assert gain[1].startswith("+53.6 [")  # ours: completion_real 4 of 7, the others none: (3 + 3/7) / 4


def test_probes_are_changes_of_the_same_model(tmp_path: Path) -> None:
    told = {"naive": 9, "ignore": 5, "escape_separation": 5, "completion_real": 10}
    probes = {"data-as-user": compacted(told, probe="data-as-user", rouge=0.49, ceiling=16, logprob=-1.25)}
    results = write(tmp_path, stored("twins/delimiter-ise/0", STRONG, probes=probes))
    text = tables.report(results).split("## Probes")[1]
    cells = row(text, "twins, delimiter+ISE: data-as-user")
    assert [re.sub(r" \[[^]]*\]", "", cell) for cell in cells] == [
        "20", "63.8<br>−5.0", "+43.8<br>−15.0", "80.0<br>−10.0", "49.0<br>−1.0", "−1.250<br>−0.250"
    ]  # fmt: skip
    assert "scale-0:" not in text
    assert "## Probes" not in tables.report(write(tmp_path / "other", stored("twins/delimiter/0")))


def test_figures_show_success_separation_and_ceiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [*clean_pair(tmp_path), *write(tmp_path / "text", stored("adversarial/text/0", WEAK))]
    drawn: dict[str, Figure] = {}

    def keep(name: str, draw: Callable[[Figure], None], height: float, folder: Path) -> str:
        drawn[name] = Figure()
        draw(drawn[name])
        return name

    monkeypatch.setattr(figures, "_save", keep)
    names = figures.draw_all(Study(results=results), tmp_path)
    assert names == [f"structured-query-{name}" for name in (
        "attacks-clean", "attacks-adversarial", "separation-by-length", "ceiling")]  # fmt: skip
    (bars,) = drawn[names[0]].axes
    by_arm = {one.get_label(): [patch.get_width() for patch in one] for one in bars.containers if len(one) == 21}
    assert by_arm["delimiter"] == pytest.approx([50, 50, 20, 50, 100, *[20] * 16])
    assert by_arm["delimiter+ISE"] == pytest.approx([25, 25, 20, 25, 50, *[20] * 16])
    assert {one[0].get_hatch() for one in bars.containers if len(one) == 21} == {"", "/////"}
    panels = {one.get_title(): one for one in drawn[names[2]].axes}
    assert list(panels) == ["clean", "adversarial"]
    lines = [list(one.lines[0].get_ydata()) for one in panels["clean"].containers]
    assert lines[0] == pytest.approx([0, 100 * 2.25 / 7, 100 * (5 / 7 - 0.25)])
    (plane,) = drawn[names[3]].axes
    marks = [(*one.lines[0].get_xdata(), *one.lines[0].get_ydata()) for one in plane.containers]
    assert sorted(marks) == [pytest.approx(one) for one in ((37.5, 90), (37.5, 90), (68.75, 85))]


def sep(followed: int, ceiling: int, n: int = 10) -> dict[str, Any]:
    """A run on SEP as `recorded.compact` keeps it: the first so many samples answer the question in the data."""
    run = compacted({}, n=n)
    domains = {"sep": ("in_domain", followed), "ceiling": ("ceiling", ceiling)}
    conditions = {
        name: {"domain": domain, "in_response": [int(at < count) for at in range(n)], "begins_with": [0] * n}
        for name, (domain, count) in domains.items()
    }
    return {**run, "conditions": conditions, "data_chars": [0] * n}


def test_sep_has_a_section_of_its_own(tmp_path: Path) -> None:
    contents = [stored("twins/delimiter/0", WEAK, probes={"sep": sep(6, 8)}),
                stored("twins/delimiter-ise/0", STRONG, probes={"sep": sep(2, 8)})]  # fmt: skip
    text = tables.report(write(tmp_path / "one", *contents))
    section = text.split("## SEP")[1]
    assert [one.split(" [")[0] for one in row(section, "twins, delimiter")] == ["10", "25.0", "40.0", "80.0", "+20.0"]
    assert [one.split(" [")[0] for one in row(section, "twins, delimiter+ISE")] == [
        "10",
        "75.0",
        "80.0",
        "80.0",
        "+60.0",
    ]
    gain = row(section, "twins, delimiter+ISE − delimiter")
    assert [one.split(" [")[0] for one in gain] == ["10", "", "+40.0", "+0.0", "+40.0"]
    assert row(text, "twins/delimiter/0")[7] == "sep"
    more = stored("twins/delimiter-ise/1", STRONG, probes={"sep": sep(4, 8)})
    section = tables.report(write(tmp_path / "one", more)).split("## SEP")[1]
    assert row(section, "twins, delimiter+ISE")[1] == "75.0, 50.0"
    assert "## SEP" not in tables.report(clean_pair(tmp_path / "two"))
    with pytest.raises(ValueError, match="the number of test samples is 10 in one and 9 in the other"):
        write(tmp_path / "one", stored("twins/delimiter/1", WEAK, probes={"sep": sep(6, 8, n=9)}))


def test_the_table_of_runs_tells_versions_and_settings(tmp_path: Path) -> None:
    other = change(stored("clean/text-ise/0"), "versions.torch", "2.14.0")
    text = tables.report(write(tmp_path, stored("clean/delimiter/0"), other))
    assert row(text, "clean/text-ise/0")[:7] == ["done", "1000", "187", "1.5", "1.234", "0.500", "120"]
    assert "Versions (not the same for all runs): rolewise 0.1.0, torch 2.14.0." in text
    settings = next(line for line in text.splitlines() if line.startswith("Settings of all runs"))
    assert "batch_size 8" in settings
    assert "template" not in settings


# --- seeds -------------------------------------------------------------------------------------------------------


def seeded(followed: Mapping[int, int], ceiling: Mapping[int, int] | None = None) -> dict[int, Summary]:
    """Summaries by seed; so many samples follow every attack."""
    return {
        seed: summarise(restored(compacted({}, default=count, ceiling=(ceiling or {}).get(seed, 20)), f"seed {seed}"))
        for seed, count in followed.items()
    }


def test_several_seeds_give_their_mean_and_each_value() -> None:
    found = figures_over_seeds(seeded({0: 4, 1: 8, 2: 3}))
    average = found["main average"]
    assert average.estimate.value == pytest.approx((16 + 12 + 17) / 60)
    assert average.by_seed == pytest.approx({0: 0.8, 1: 0.6, 2: 0.85})
    assert average.n == "20 × 3 seeds"
    assert average.estimate.low < 0.7 < average.estimate.value < 0.8 < average.estimate.high
    assert tables.cell("main average", average).endswith("<br>(80.0, 60.0, 85.0)")
    gain = differences_over_seeds(seeded({0: 4, 1: 8}), seeded({0: 10, 1: 10, 2: 10}))["main separation"]
    assert gain.by_seed == pytest.approx({0: 0.3, 1: 0.1})
    assert gain.estimate.value == pytest.approx(0.2)
    assert gain.p is None
    assert differences_over_seeds(seeded({0: 4}), seeded({1: 4})) == {}
    assert figures_over_seeds({}) == {}


def test_an_interval_over_seeds_draws_one_seed_less_than_there_are() -> None:
    # Every sample agrees within a seed, so that the seeds alone decide: of ceilings 1, 0, 0, 0 three are drawn, and
    # two or three of them are the 1 with 15.6 percent, three with 1.6. Four draws would reach 3/4 with 5.1 percent.
    ceiling = figures_over_seeds(seeded(dict.fromkeys(range(4), 4), {0: 20, 1: 0, 2: 0, 3: 0}))["ceiling"].estimate
    assert (ceiling.value, ceiling.low) == (0.25, 0.0)
    assert ceiling.high == pytest.approx(2 / 3)


def test_seeds_are_paired_in_a_difference() -> None:
    # Seeds differ much, the two arms in each of them by nothing.
    arm = seeded({0: 0, 1: 20, 2: 0})
    gain = differences_over_seeds(arm, arm)["main average"].estimate
    certain = summarise(restored(compacted({}, default=0), "none")).robust["naive"].low
    assert gain.value == 0
    assert gain.high == pytest.approx(1 - certain)  # as where 20 samples agree: no seed adds to it
    assert figures_over_seeds(arm)["main average"].estimate.high == pytest.approx(1)


def test_seeds_of_one_arm_stand_in_the_tables(tmp_path: Path) -> None:
    contents = [stored(f"twins/{arm}/{seed}", followed) for seed in (0, 1, 2)
                for arm, followed in (("delimiter", WEAK), ("delimiter-ise", STRONG))]  # fmt: skip
    results = write(tmp_path, *contents[:-1])  # the last seed of +ISE is missing
    text = tables.report(results)
    section = text.split("## Adversarial data with twins")[1]
    assert row(section, "delimiter")[0] == "20 × 3 seeds"
    assert row(section, "delimiter+ISE")[0] == "20 × 2 seeds"
    assert row(text, "separation, adversarial data with twins: gain over delimiter")[2] == "20 × 2 seeds"
    assert row(section, "main four: average")[0].endswith("<br>(+31.2, +31.2)")
    assert row(section, "naive")[2].endswith("<br>(−25.0, −25.0)")
    assert ", p " not in text
    assert "![" not in text  # no figure was drawn


# --- command -----------------------------------------------------------------------------------------------------


def run_command(monkeypatch: pytest.MonkeyPatch, *given: str) -> None:
    monkeypatch.setattr("sys.argv", ["tables", *given])
    tables.main()


def test_the_command_writes_the_page_and_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    clean_pair(results)
    made: list[dict[str, bytes]] = []
    for name in ("one", "two"):
        run_command(monkeypatch, "--results", str(results), "--output", str(tmp_path / name))
        made.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert made[0] == made[1]
    names = ("attacks-clean", "ceiling", "separation-by-length")
    figures = {f"structured-query-{name}.{suffix}" for name in names for suffix in ("svg", "png")}
    assert made[0].keys() == {"structured_query.md", *figures}
    assert all(len(content) > 1000 for content in made[0].values())
    page = made[0]["structured_query.md"].decode()
    assert all(f"]({name})" in page for name in figures if name.endswith("svg"))
    assert str(tmp_path) not in page
    assert "3 figures" in capsys.readouterr().out


def test_a_trial_does_not_replace_the_studys_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = stored("clean/delimiter/0", n=6)
    content["runs"]["all"]["settings"]["task"]["limit"] = 6
    write(tmp_path, content)
    monkeypatch.setattr(tables, "OUTPUT", tmp_path / "published")
    run_command(monkeypatch, "--results", str(tmp_path))
    assert not (tmp_path / "published").exists()
    assert "6 test samples (a trial" in (tmp_path / "structured_query.md").read_text()
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    run_command(monkeypatch, "--results", str(tmp_path))
    assert (tmp_path / "published" / "structured_query.md").exists()


def test_without_results_the_command_names_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SystemExit, match=r"no results; run python -m benchmarks\.structured_query\.study first"):
            run_command(monkeypatch, "--results", str(folder))
    (tmp_path / "clean-text-0.json").write_text("{")
    with pytest.raises(SystemExit, match=r"clean-text-0\.json is not the study's result"):
        run_command(monkeypatch, "--results", str(tmp_path))


def inspected(lift: float, accuracy: float) -> dict[str, Any]:
    """Two samples, two layers: attention to the payload, and a probe."""
    common: dict[str, Any] = {"layers": (1, 2), "units": ("a", "b")}
    return Inspection(
        label="",
        model={"architecture": "X", "layers": 2, "segment_scale": 1.0, "table_ratio": 0.3},
        settings={"samples": 2, "pairs": 2, "seed": 0},
        measurements=(
            Measurement(kind="attention", condition="naive", role="payload", measure="lift_without_first",
                        values=((lift, lift), (lift, lift)), **common),
            Measurement(kind="probe", condition="segments", role="user, data", measure="accuracy",
                        values=((accuracy, accuracy), (accuracy, accuracy)), **common),
        ),
    ).to_dict()  # fmt: skip


def test_what_was_measured_inside_stands_beside_each_other(tmp_path: Path) -> None:
    first, second = stored("clean/delimiter/0"), stored("clean/delimiter-ise/0")
    first["inspection"], second["inspection"] = inspected(2.5, 0.5), inspected(0.25, 0.875)
    results = write(tmp_path, first, second)
    drawn = inside.draw_inside(results, tmp_path)
    assert drawn == [f"structured-query-inside-clean-{name}" for name in ("attention-naive", "probe-accuracy")]
    assert all((tmp_path / f"{name}.svg").stat().st_size > 1000 for name in drawn)
    lines = tables.report(results, drawn).splitlines()
    (lift,) = [line for line in lines if line.startswith("| attention, naive: payload: lift, all layers")]
    assert [cell.split()[0] for cell in lift.split("|")[2:4]] == ["2.500", "0.250"]
    (accuracy,) = [line for line in lines if line.startswith("| probe, segments only: accuracy, layer 2")]
    assert [cell.split()[0] for cell in accuracy.split("|")[2:4]] == ["50.0", "87.5"]
    assert sum(line.startswith("![probe-accuracy](structured-query-inside-clean-") for line in lines) == 1
    assert "| | delimiter | delimiter+ISE |" in lines
    assert "## Inside" not in tables.report([replace(one, inspection=None) for one in results])
    second["inspection"] = {"attention": [0.1]}
    with pytest.raises(ValueError, match="no stored inspection"):
        write(tmp_path, first, second)
