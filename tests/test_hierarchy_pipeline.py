"""The pipeline without a teacher: regimes that share rows, the same bytes anywhere, finished stages, whole pairs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rolewise.cli import main
from rolewise.data.conflicts import held_out_kinds
from rolewise.data.hierarchy import Made, Pipeline, load_recipe, recipe_from_dict
from rolewise.data.hierarchy.review import review_page, sample_by_stage
from rolewise.messages import parse_messages
from rolewise.training.rows import parse_row
from tests.hierarchy_teacher import write_sources

ROOT = Path(__file__).parents[1]
CORPORA = ROOT.parent / "shared" / "data" / "sft"
SMOLLM2 = ROOT / "recipes" / "smollm2" / "instruction-hierarchy"


def values(folder: Path) -> dict[str, Any]:
    """A recipe with every stage that a program makes."""
    sources = write_sources(folder)
    stages: dict[str, dict[str, Any]] = {
        "plain": {"kind": "take", "source": "alpaca", "take": 6, "system": "You help."},
        "parts": {"kind": "decompose", "source": "alpaca", "take": 6},
        "follow": {"kind": "regenerate", "source": "alpaca", "take": 6},
        "rules": {"kind": "rules", "take": 4},
        "inject": {"kind": "inject", "source": "parts", "take": 6, "twins": 0.5},
        "override": {"kind": "override", "source": "alpaca", "take": 6},
        "conflict": {"kind": "conflict", "take": 4, "channels": ["data", "user"]},
        "extract": {"kind": "extract", "take": 4},
        "ask": {"kind": "ask", "take": 6},
    }
    return {
        "sources": {"alpaca": {"path": sources["alpaca"]}},
        "stages": stages,
        "mix": dict.fromkeys(stages, "all"),
    }


def make(recipe: dict[str, Any], work: Path) -> Made:
    with Pipeline(recipe_from_dict(recipe), work) as pipeline:
        return pipeline.make()


def test_every_stage_makes_rows_that_training_reads(tmp_path: Path) -> None:
    made = make(values(tmp_path), tmp_path / "work")
    stages = Counter(row["meta"]["stage"] for row in made.rows)
    assert stages == {"plain": 6, "parts": 6, "follow": 6, "rules": 4, "inject": 9, "override": 12, "conflict": 8,
                      "extract": 8, "ask": 6}  # fmt: skip
    for row in made.rows:
        parse_row(row, place="here")
        parse_messages(row["messages"])
        assert list(row) == ["messages", "meta"]
        assert {"id", "stage", "condition", "pair"} <= row["meta"].keys()
        assert row["meta"].get("kind") not in held_out_kinds()
    identities = [(row["meta"]["stage"], row["meta"]["id"], row["meta"]["condition"]) for row in made.rows]
    assert len(set(identities)) == len(identities)
    assert {row["meta"]["channel"] for row in made.rows if row["meta"]["stage"] == "conflict"} <= {"data", "user"}


def test_a_row_of_a_source_goes_into_one_stage_only(tmp_path: Path) -> None:
    made = make(values(tmp_path), tmp_path / "work")
    of_source = {name: {row["meta"]["id"] for row in made.rows if row["meta"]["stage"] == name}
                 for name in ("plain", "parts", "follow", "override")}  # fmt: skip
    assert sum(map(len, of_source.values())) == len(set().union(*of_source.values())) == 24
    injected = {row["meta"]["id"] for row in made.rows if row["meta"]["stage"] == "inject"}
    assert injected == of_source["parts"]  # of a stage, copies


def test_a_mix_with_more_stages_has_the_rows_of_the_smaller_one_in_their_order(tmp_path: Path) -> None:
    large = values(tmp_path)
    names = ("plain", "parts", "follow")
    small = {
        **large,
        "stages": {n: large["stages"][n] for n in names},
        "mix": {"plain": 5, "parts": 4, "follow": "all"},
    }
    large["mix"] = {**large["mix"], **small["mix"]}
    few, many = make(small, tmp_path / "work").rows, make(large, tmp_path / "work").rows
    assert len(few) == 15
    assert [row for row in many if row in few] == few


def test_the_same_seed_gives_the_same_bytes_in_any_process_and_another_seed_others(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(values(tmp_path)))

    def rows(name: str, hash_seed: str, *more: str) -> bytes:
        out = tmp_path / name / "rows.jsonl"
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "rolewise", "data", "hierarchy", str(recipe), "-o", str(out), *more]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return out.read_bytes()

    first = rows("a", "1")
    assert rows("b", "2") == first
    assert rows("c", "1", "--seed", "7") != first


def test_a_finished_stage_is_not_made_again_unless_it_changed_or_was_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, work = values(tmp_path), tmp_path / "work"
    first = make(recipe, work)
    assert not any(count.kept for count in first.counts)
    again = make(recipe, work)
    assert [count.name for count in again.counts if count.kept] == list(recipe["stages"])
    assert again.rows == first.rows
    assert again.rejects == first.rejects
    (shard,) = work.glob("stages/ask-*/rows-00000.jsonl")
    shard.write_text(shard.read_text().replace("I ", "We ", 1))
    (shard,) = work.glob("stages/extract-*/rows-00000.jsonl")
    shard.unlink()
    recipe["stages"]["override"]["twins"] = 0
    mended = make(recipe, work)
    assert {count.name for count in mended.counts if not count.kept} == {"alpaca", "ask", "extract", "override"}
    others = [row for row in first.rows if row["meta"]["stage"] != "override"]
    assert [row for row in mended.rows if row["meta"]["stage"] != "override"] == others
    monkeypatch.setattr("rolewise.data.hierarchy.store._code", lambda: "another version")
    assert not any(count.kept for count in make(recipe, work).counts)


def test_stages_are_kept_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make(values(tmp_path), tmp_path / "work").rows
    monkeypatch.setattr("rolewise.data.hierarchy.store.SHARD_ROWS", 4)
    assert make(values(tmp_path), tmp_path / "other").rows == first
    assert len(list((tmp_path / "other").glob("stages/override-*/rows-*.jsonl"))) == 3
    assert make(values(tmp_path), tmp_path / "other").rows == first


def test_two_runs_do_not_share_a_work_directory_at_one_time(tmp_path: Path) -> None:
    recipe = recipe_from_dict(values(tmp_path))
    with Pipeline(recipe, tmp_path / "work"), pytest.raises(BlockingIOError, match="another run"):
        Pipeline(recipe, tmp_path / "work").__enter__()
    with Pipeline(recipe, tmp_path / "work"):
        pass


def test_pairs_stay_together_and_counts_that_would_part_them_are_refused(tmp_path: Path) -> None:
    recipe = values(tmp_path)
    recipe["mix"]["override"] = 6
    rows = [row for row in make(recipe, tmp_path / "work").rows if row["meta"]["stage"] == "override"]
    assert sorted(Counter(row["meta"]["pair"] for row in rows).values()) == [2, 2, 2]
    recipe["mix"]["override"] = 7
    with pytest.raises(ValueError, match=r"mix.override: 7 rows cannot be had without parting .* use 6"):
        make(recipe, tmp_path / "work")
    recipe["mix"]["override"] = 13
    with pytest.raises(
        ValueError, match=r"mix wants 13 rows of override, which has made 12; raise stages.override.take"
    ):
        make(recipe, tmp_path / "work")


def test_too_few_rows_are_told(tmp_path: Path) -> None:
    recipe = values(tmp_path)
    recipe["stages"]["parts"]["take"] = 60
    with pytest.raises(ValueError, match=r"stages.parts takes 60 rows, but alpaca has only \d+ left that suit it"):
        make(recipe, tmp_path / "work")


def test_the_command_writes_rows_rejects_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "deep" / "rows.jsonl"
    changed = values(tmp_path)
    changed["sources"]["alpaca"]["max_rows"] = 40
    recipe.write_text(json.dumps(changed))
    command = ["data", "hierarchy", str(recipe), "-o", str(out)]
    assert main([*command, "--review", "20"]) == 0
    said = capsys.readouterr().err
    assert "inject           inject by program            6 in         9 out         0 rejected" in said
    assert "65 rows in" in said
    assert len(out.read_text().splitlines()) == 65
    rejects = [json.loads(line) for line in (out.parent / "rows.rejects.jsonl").read_text().splitlines()]
    assert Counter((reject["step"], reject["reason"]) for reject in rejects) == {("alpaca", "over max_rows"): 8}
    assert "<article>" in (out.parent / "rows.review.html").read_text()
    assert main(command) == 2
    assert "exists; name another file with -o, or give --overwrite" in capsys.readouterr().err
    before = out.read_bytes()
    assert main([*command, "--overwrite"]) == 0
    assert out.read_bytes() == before
    capsys.readouterr()
    assert main([*command, "--overwrite", "--budget-tokens", "5"]) == 2
    assert "has no teacher" in capsys.readouterr().err
    assert main(["data", "hierarchy", str(recipe), "--estimate"]) == 2
    assert "names no output" in capsys.readouterr().err


def test_the_page_is_self_contained_and_nothing_in_a_row_becomes_markup(tmp_path: Path) -> None:
    recipe = values(tmp_path)
    evil = "</p><script>alert(1)</script><img src=x onerror=alert(2)>"
    (tmp_path / "alpaca.jsonl").write_text(
        "".join(
            json.dumps({"instruction": f"{evil} {i}", "input": evil * (i % 2), "output": f"\u202e{evil}. Yes. {i}"})
            + "\n"
            for i in range(48)
        )
    )
    made = make(recipe, tmp_path / "work")
    page = review_page(made, 40, recipe_from_dict(recipe))
    assert "<script" not in page.lower()
    assert "<img" not in page.lower()
    assert "&lt;script&gt;alert(1)" in page
    assert "\u202e" not in page
    assert "default-src 'none'" in page
    assert not any(word in page for word in ("http://", "https://", 'src="', "url(", "@import"))
    assert "prefers-color-scheme: dark" in page
    for name in recipe["stages"]:
        assert f'<h2 id="{name}">' in page
    for role in ("system", "user", "data", "output"):
        assert f'<div class="message {role}">' in page


def test_a_sample_is_even_over_the_stages_and_keeps_pairs(tmp_path: Path) -> None:
    rows = make(values(tmp_path), tmp_path / "work").rows
    chosen = sample_by_stage(rows, 27)
    sizes = {stage: len(found) for stage, found in chosen.items()}
    assert len(sizes) == 9
    assert 27 <= sum(sizes.values()) <= 28
    assert min(sizes.values()) >= 2
    for found in chosen.values():
        for pair, count in Counter(row["meta"]["pair"] for row in found).items():
            assert pair is None or count == 2
    assert sum(map(len, sample_by_stage(rows, 1000).values())) == len(rows)


@pytest.mark.slow
@pytest.mark.skipif(not CORPORA.is_dir(), reason="the corpora of ../shared/data are not there")
def test_the_small_recipes_give_three_regimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("plain", "system-follow", "hierarchy"):
        with Pipeline(load_recipe(SMOLLM2 / f"data-{name}.yaml"), tmp_path / "work") as pipeline:
            found[name] = pipeline.make().rows
    sizes = {name: len(rows) for name, rows in found.items()}
    assert sizes == {"plain": 1500, "system-follow": 2000, "hierarchy": 2810}
    lines = {name: [json.dumps(row) for row in rows] for name, rows in found.items()}
    for small, large in (("plain", "system-follow"), ("system-follow", "hierarchy")):
        shared = set(lines[small])
        assert [line for line in lines[large] if line in shared] == lines[small]
    for row in found["hierarchy"]:
        parse_row(row, place="here")
        assert sum(len(message["content"]) for message in row["messages"]) < 2400
