"""The Instruction Hierarchy benchmark with one command: what is run, what is missing, and what the page says."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rolewise.cli import main
from rolewise.commands import eval_runs
from rolewise.commands.eval_options import EvalConfig
from rolewise.evaluation.outcomes import CEILING, CLEAN, Refusal
from rolewise.reproduce import Inputs, Page, Part, Readings, gaps, parts
from rolewise.reproduce.page import draw, markdown, table_csv
from rolewise.reproduce.readings import ALSO, ATTACKS, CAPABILITIES, TABLES
from tests import reporting_runs
from tests.training_model import save_tiny_model

FILES = (
    "alpacaeval805_davinci003.json", "promptextract_sharegpt-test.jsonl", "promptextract_unnatural-test.jsonl",
    "strongreject_313.csv", "xstest_prompts.csv", "mt_bench_question.jsonl",
)  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of test files, harmless and small."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text("")
    rows = [{"instruction": f"Sum up {at}.", "input": f"Text {at}.", "output": f"T {at}"} for at in range(3)]
    rows += [{"instruction": f"Name {at} things.", "input": "", "output": "A, b."} for at in range(3)]
    (folder / FILES[0]).write_text(json.dumps(rows))
    for name in FILES[1:3]:
        (folder / name).write_text('{"id": 1, "instruction": "You sell apples and pears."}\n')
    (folder / FILES[3]).write_text("category,source,forbidden_prompt\nfog,ours,Make fog.\nrain,ours,Make rain.\n")
    (folder / FILES[4]).write_text("prompt,type,label\nKill time?,homonyms,safe\n")
    return folder


def by_key(inputs: Inputs) -> dict[str, Part]:
    return {part.key: part for part in parts(inputs)}


def test_what_is_not_given_is_missing_and_said(data: Path) -> None:
    bare = by_key(Inputs(data=data))
    assert {key: part.missing for key, part in bare.items() if part.missing} == {
        "harmful-1": "needs file 1 of jailbreak templates (--templates)",
        "harmful-2": "needs file 2 of jailbreak templates (--templates)",
        **{f"alpaca-eval{way}": "needs --grader" for way in ("", "/system-as-user", "/data-as-user", "/no-system")},
        "mt-bench": "needs --grader",
        "pair": "needs --attacker",
    }
    templates = (data / "a.txt", data / "b.txt")
    for file in templates:
        file.write_text("Pretend: {prompt}")
    whole = by_key(Inputs(data=data, grader="g", attacker="a", templates=templates, limit=3))
    assert not [part.key for part in whole.values() if part.missing]
    assert "harmful-bare" not in whole, "the templates' suites ask the bare requests, too"
    assert whole["gcg"].options["limit"] == 3
    (data / FILES[3]).unlink()
    assert "no file" in str(by_key(Inputs(data=data))["harmful-bare"].missing)


def test_every_part_is_a_command_of_rolewise_eval_and_every_row_of_the_page_has_its_part(data: Path) -> None:
    templates = tuple(data / name for name in ("a.txt", "b.txt"))
    keys = set(by_key(Inputs(data=data))) | set(by_key(Inputs(data=data, templates=templates)))
    for inputs in (Inputs(data=data), Inputs(data=data, grader="g", attacker="a", templates=templates)):
        for part in parts(inputs):
            EvalConfig(models=("m",), **part.options)  # refuses what the suite does not take
    spokes = [*ATTACKS, *CAPABILITIES, *ALSO, *(spoke for table in TABLES.values() for spoke in table)]
    assert {spoke.part for spoke in spokes} == keys
    assert (len(ATTACKS), len(CAPABILITIES)) == (8, 2)


def test_figures_are_those_of_the_runs_and_nothing_stands_in_for_a_missing_one() -> None:
    conditions = (CLEAN, "naive", "ignore", "ood_naive", CEILING)
    whole = reporting_runs.run("first", conditions=conditions)
    part = reporting_runs.run("second", {"naive": ("s1", "s2", "s3", "s4")}, conditions=(CLEAN, "naive"))
    readings = Readings.of(["first", "second"], {("first", "indirect"): whole, ("second", "indirect"): part})
    first, second = readings.row(ATTACKS[0])
    assert first is not None
    assert second is not None
    assert (first.average.value, first.worst and first.worst.value) == (0.625, 0.5)
    assert (second.average.value, second.worst) == (0.0, None)
    assert readings.row(ATTACKS[1])[1] is None, "it has no attack out of domain"
    assert readings.row(ATTACKS[2]) == [None, None]
    said = markdown(Page(readings=readings, gaps=["PAIR: needs --attacker"], about=[], commands=["rolewise eval x"]))
    assert "| indirect, in domain | 62.5 [" in said
    assert "| missing |" in said
    assert "direct, in domain" not in said.replace("indirect, in domain", "")
    assert "- PAIR: needs --attacker" in said
    rows = list(csv.DictReader(io.StringIO(table_csv(readings))))
    assert {(row["row"], row["model"]) for row in rows if row["section"] == "attacks"} == {
        ("indirect, in domain", "first"), ("indirect, in domain", "second"), ("indirect, out of domain", "first"),
    }  # fmt: skip
    assert [one.name for one in draw(readings)] == ["instruction_hierarchy-bars"], "two shared spokes make no radar"


def test_gaps_name_what_was_not_run_not_answered_and_not_graded() -> None:
    every = [
        Part(key="a", title="A", missing="needs --grader"), Part(key="b", title="B", table_only=True),
        Part(key="c", title="C", ours_only=True), Part(key="d", title="D"), Part(key="e", title="E"),
    ]  # fmt: skip
    fitting = {"a": [], "b": ["x"], "c": ["x", "y"], "d": ["x", "y"], "e": ["x", "y"]}
    long = Refusal(id="s9", condition="naive", reason="too long", tokens=600, positions=512)
    ungraded = reporting_runs.outcome("s1", "naive", False, verdicts={}, ungraded={"in_response": "no verdict"})
    runs = {
        ("x", "b"): reporting_runs.run("x"), ("x", "c"): replace(reporting_runs.run("x"), refused=[long]),
        ("x", "d"): reporting_runs.run("x"), ("y", "d"): reporting_runs.run("y"),
        ("x", "e"): reporting_runs.run("x", outcomes=[ungraded, reporting_runs.outcome("s2", "naive", True)]),
    }  # fmt: skip
    found = list(gaps(every, fitting, Readings.of(["x", "y"], runs), runs))
    assert found[:3] == ["A: needs --grader", "B: not for y (no segment table)", "C: not run for y"]
    assert found[3].startswith("C, x: 1 of")
    assert found[4:] == ["E: not run for y", "E, x: 1 of 2 answers are ungraded"]


def test_the_command_runs_what_it_can_and_goes_on_from_its_logs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_tiny_model(tmp_path / "tiny")
    out, logs = tmp_path / "out", tmp_path / "logs"
    command = ["reproduce", "instruction-hierarchy", "--models", str(model), "mockllm/model", "--data-dir", str(data),
               "--limit", "2", "--log-dir", str(logs), "-o", str(out)]  # fmt: skip
    assert main([*command, "--plan"]) == 0
    assert not logs.exists()
    said = capsys.readouterr().err
    assert "needs --grader" in said
    assert "mockllm/model to do" in said
    assert main([*command, "--only", "over-refusal", "indirect/no-system"]) == 0
    page = (out / "instruction_hierarchy.md").read_text()
    assert "| over-refusal: answered |" in page
    assert "| indirect, naive: no system message |" in page
    assert "- direct injection: not run for tiny, model" in page
    assert "- indirect injection (naive), system-as-user: not for tiny, model (no segment table)" in page
    assert (out / "parts" / "indirect-no-system" / "index.html").is_file()
    capsys.readouterr()
    assert main([*command, "--only", "harmful-bare"]) == 0
    assert "| over-refusal: answered |" in (out / "instruction_hierarchy.md").read_text(), "read from its log"
    assert "| harmful, bare |" in (out / "instruction_hierarchy.md").read_text()
    assert "over-refusal" not in capsys.readouterr().err
    assert main([*command, "--plan"]) == 0
    assert f"over-refusal: {model} done, mockllm/model done" in capsys.readouterr().err


def test_a_part_that_fails_costs_none_of_the_others(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command = ["reproduce", "instruction-hierarchy", "--models", "mockllm/model", "--data-dir", str(data),
               "--limit", "2", "--log-dir", str(tmp_path / "logs"), "-o", str(out)]  # fmt: skip
    evaluate = eval_runs.evaluate

    def failing(config: EvalConfig) -> object:
        if config.suite == "over-refusal":
            raise RuntimeError("the endpoint is gone")
        return evaluate(config)

    monkeypatch.setattr(eval_runs, "evaluate", failing)
    assert main([*command, "--only", "over-refusal", "harmful-bare"]) == 1
    page = (out / "instruction_hierarchy.md").read_text()
    assert "| harmful, bare |" in page
    assert "- over-refusal: failed: the endpoint is gone" in page
    assert "the same command again runs what failed" in capsys.readouterr().err
    assert main([*command, "--only", "over-refusal", "-o", str(tmp_path / "none")]) == 1
    assert "the endpoint is gone" in capsys.readouterr().err
    monkeypatch.undo()
    assert main([*command, "--only", "over-refusal", "harmful-bare"]) == 0
    assert "| over-refusal: answered |" in (out / "instruction_hierarchy.md").read_text()


def test_graders_attackers_and_templates_are_looked_at_before_anything_is_asked(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "none.txt").write_text("No place for it.")
    command = ["reproduce", "instruction-hierarchy", "--models", "mockllm/model", "--data-dir", str(data),
               "--log-dir", str(tmp_path / "logs"), "-o", str(tmp_path / "out")]  # fmt: skip
    for options, said in (
        (["--grader", "nonsense/x"], "grader 'nonsense/x' cannot be used"),
        (["--attacker", "openai/gpt-4o"], "OPENAI_API_KEY"),
        (["--templates", str(tmp_path / "none.txt")], "placeholder"),
        (["--templates", "a", "a"], "up to 2 different files"),
        (["--only", "alpaca-eval"], "alpaca-eval needs --grader"),
        (["--data-dir", str(tmp_path / "nowhere")], "no folder"),
        (["-o", str(tmp_path / "none.txt")], "none.txt"),
    ):
        assert main([*command, *options]) == 2
        told = capsys.readouterr().err
        assert said in told
        assert "[/" not in told
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["instruction-hierachy", "--models", "m"], "did you mean 'instruction-hierarchy'"),
        (["instruction-hierarchy", "--models", "mockllm/model", "--only", "indirekt"], "did you mean 'indirect'"),
        (["instruction-hierarchy", "--models", "mockllm/model", "--limit", "0"], "--limit 0 must be at least 1"),
        (["instruction-hierarchy", "--models", "mockllm/model", "mockllm/model"], "named twice"),
        (["instruction-hierarchy"], "--models"),
    ],
)
def test_what_cannot_be_run_is_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    assert main(["reproduce", *arguments, "--data-dir", str(tmp_path / "data")]) == 2
    assert said in capsys.readouterr().err
