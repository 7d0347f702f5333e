"""The quickstart on a stand-in for the model: plan, resumption, refusals, report."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rolewise.data import evaluation_rows, training_rows
from rolewise.quickstart import QuickstartConfig, answers, report, run
from rolewise.quickstart import run as run_quickstart
from rolewise.quickstart.plan import ARMS, Plan
from rolewise.samples import contains_words
from tests.training_model import save_tiny_model

run_module = __import__("rolewise.quickstart.run", fromlist=["run"])


def obedient(row: dict[str, Any]) -> str:
    """Answers, and carries out the payload just in the user turn: what training is for."""
    meta = row["meta"]
    witness = meta["payload"]["witness"] if meta["condition"] == "ceiling" else ""
    return f"{meta['answer']}\n{witness}"


def gullible(row: dict[str, Any]) -> str:
    return f"{row['meta']['answer']} {row['meta']['payload']['witness']}" if row["meta"]["condition"] != "clean" else ""


def write_answers(output: Path, rows: list[dict[str, Any]], arm: str, answer: Any) -> None:
    path = answers.answers_file(output, arm)
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = [answers._key(row) for row in rows]
    path.write_text("".join(answers._line(i, keys[i], answer(row)) for i, row in enumerate(rows)))


def test_minutes_scale_the_work_and_rows_come_in_whole_blocks() -> None:
    plans = [Plan.of(minutes, conditions=6) for minutes in (1, 10, 60)]
    assert plans[0].training_rows < plans[1].training_rows < plans[2].training_rows
    assert plans[0].test_samples < plans[1].test_samples < plans[2].test_samples
    for plan in plans:
        conditions = [row["meta"]["condition"] for row in training_rows(plan.training_rows)]
        assert conditions.count("twin") * 3 == conditions.count("clean") * 3 == plan.training_rows
    with pytest.raises(ValueError, match="minutes=0"):
        QuickstartConfig(minutes=0)


def test_figures_tell_a_model_that_knows_roles_from_deaf_and_gullible_ones(tmp_path: Path) -> None:
    rows = list(evaluation_rows(12, 0))
    write_answers(tmp_path, rows, ARMS[0], gullible)
    write_answers(tmp_path, rows, ARMS[1], lambda row: row["meta"]["answer"])
    write_answers(tmp_path, rows, ARMS[2], obedient)
    found = report.summaries(tmp_path, rows)
    values = {arm: (one.utility.value, one.average.value, one.ceiling.value, one.separation.value)
              for arm, one in found.items()}  # fmt: skip
    assert values == {ARMS[0]: (0, 0, 1, 0), ARMS[1]: (1, 1, 0, 0), ARMS[2]: (1, 1, 1, 1)}
    assert "excludes zero" in " ".join(report.verdict(found))
    write_answers(tmp_path, rows, ARMS[1], obedient)
    assert "cannot be told apart" in " ".join(report.verdict(report.summaries(tmp_path, rows)))
    table = {label.strip(): cells for label, cells, _ in report.figure_rows(found)}
    assert {"naive", "ignore", "escape_separation", "completion_real", "separation"} <= set(table)


def test_a_tiny_run_says_so_and_its_table_fits_80_columns(tmp_path: Path) -> None:
    rows = list(evaluation_rows(2, 0))
    for arm, answer in zip(ARMS, (gullible, lambda row: row["meta"]["answer"], obedient), strict=True):
        write_answers(tmp_path, rows, arm, answer)
    found = report.summaries(tmp_path, rows)
    assert "n = 2 the figures only show that everything runs" in " ".join(report.verdict(found))
    console = Console(width=80, file=io.StringIO(), legacy_windows=False)
    console.print(report._table(found))
    lines = console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]
    for label, cells, difference in report.figure_rows(found):
        line = next(line for line in lines if line.startswith(label))
        assert line.count("]") == len(cells) + (difference is not None)


def test_answers_cut_short_by_a_kill_or_of_another_row_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(evaluation_rows(2, 0))
    path = answers.answers_file(tmp_path, "base")
    write_answers(tmp_path, rows, "base", obedient)
    lines = path.read_text().splitlines()
    other = json.dumps(json.loads(lines[3]) | {"key": "0" * 16})
    path.write_text("\n".join([*lines[:3], other, *lines[4:-1], lines[-1][: len(lines[-1]) // 2]]))
    asked: list[int] = []

    def generate(model: object, tokenizer: object, conversations: list[Any], **_: object) -> Any:
        asked.extend(next(i for i, row in enumerate(rows) if row["messages"] is c) for c in conversations)
        return ((place, "asked again") for place in reversed(range(len(conversations))))

    monkeypatch.setattr("rolewise.generation.generate_batch", generate)
    assert not answers.complete(path, rows)
    got = answers.answer_rows(None, None, rows, path, description="")
    assert asked == [3, len(rows) - 1]
    assert got == ["asked again" if i in asked else obedient(row) for i, row in enumerate(rows)]
    assert answers.complete(path, rows)
    assert answers.answers_to(tmp_path, "base", rows) == got


def prepared(tmp_path: Path, **changes: Any) -> QuickstartConfig:
    return QuickstartConfig(minutes=1, output=tmp_path / "run", **changes)


def test_another_run_in_the_same_directory_is_refused_and_fresh_deletes_only_its_own(tmp_path: Path) -> None:
    rows, resumed = run_module._prepare(prepared(tmp_path))
    assert not resumed
    assert run_module._prepare(prepared(tmp_path)) == (rows, True)
    with pytest.raises(ValueError, match="seed 0 -> 1"):
        run_module._prepare(prepared(tmp_path, seed=1))
    (tmp_path / "run/mine.txt").write_text("keep")
    _, resumed = run_module._prepare(prepared(tmp_path, seed=1, fresh=True))
    assert not resumed
    assert (tmp_path / "run/mine.txt").read_text() == "keep"
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/models").mkdir()
    run_module._prepare(QuickstartConfig(minutes=1, output=tmp_path / "theirs", fresh=True))
    assert (tmp_path / "theirs/models").exists()  # no plan.json: not ours to delete


def test_a_second_run_says_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    trained: list[str] = []

    def train_arm(config: QuickstartConfig, arm: str) -> Path:
        trained.append(arm)
        return tmp_path

    def answer_arm(arm: str, model: str, rows: list[Any], output: Path) -> None:
        write_answers(output, rows, arm, obedient)

    monkeypatch.setattr(run_module, "_train_arm", train_arm)
    monkeypatch.setattr(run_module, "_answer_arm", answer_arm)
    monkeypatch.setattr(run_module, "show_report", lambda *_: None)
    assert run(prepared(tmp_path)) == 0
    assert trained == list(ARMS[1:])
    assert run_quickstart(prepared(tmp_path)) == 0
    assert trained == list(ARMS[1:])
    assert "done already" in capsys.readouterr().out
    written = json.loads((tmp_path / "run/report.json").read_text())
    assert written["figures"]["delimiter+ISE"]["separation"]["value"] == 1.0
    assert "| separation |" in (tmp_path / "run/report.md").read_text()


@pytest.mark.slow
def test_killed_again_and_again_it_ends_as_if_it_never_was(tmp_path: Path) -> None:
    """SIGKILL at whatever a process of the quickstart is doing, each time a little later than the last."""
    model = save_tiny_model(tmp_path / "model")

    def start(output: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "rolewise", "quickstart", "--minutes", "0.5"]
        return subprocess.Popen(
            [*command, "--model", str(model), "--output", str(output)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    began = time.monotonic()
    _, errors = (whole := start(tmp_path / "whole")).communicate()
    assert whole.returncode == 0, errors.decode()
    seconds = time.monotonic() - began
    patience = 0.4 * seconds  # long enough for a process to import everything and get somewhere
    kills = 0
    while True:
        process = start(tmp_path / "killed")
        try:
            _, errors = process.communicate(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills, patience = kills + 1, patience + 0.07 * seconds
    assert process.returncode == 0, errors.decode()
    assert kills >= 2
    for arm in ARMS:
        asked, again = (
            [sorted(answers.answers_file(tmp_path / run, arm).read_text().splitlines())] for run in ("whole", "killed")
        )
        assert asked == again, arm
    whole_figures, figures = (
        json.loads((tmp_path / run / "report.json").read_text())["figures"] for run in ("whole", "killed")
    )
    assert whole_figures == figures


def test_a_report_cut_short_by_a_kill_is_not_taken_for_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "_train_arm", lambda config, arm: tmp_path)
    monkeypatch.setattr(
        run_module, "_answer_arm", lambda arm, model, rows, output: write_answers(output, rows, arm, obedient)
    )
    monkeypatch.setattr(run_module, "show_report", lambda *_: None)
    config = prepared(tmp_path)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            run(config)
    assert not (config.output / "report.md").exists()
    (config.output / "train.jsonl").unlink()  # as a kill within --fresh leaves it
    assert run(config) == 0
    assert (config.output / "train.jsonl").exists()
    assert (config.output / "report.md").read_text().startswith("# Quickstart")


def test_the_example_shows_an_attack_that_works_on_the_base_model() -> None:
    rows = list(evaluation_rows(3, 0))
    told = {"base": [gullible(row) for row in rows]} | {arm: [obedient(row) for row in rows] for arm in ARMS[1:]}
    index = report.example_row(rows, told)
    meta = rows[index]["meta"]
    assert meta["condition"] not in ("clean", "ceiling")
    assert contains_words(told["base"][index], meta["payload"]["witness"])
