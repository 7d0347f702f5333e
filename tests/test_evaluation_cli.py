"""`rolewise eval`: a table for a mock model, and errors that say what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("inspect_ai", reason="needs rolewise[eval]")

from rolewise.cli import main
from rolewise.commands.eval import UNASKED
from rolewise.commands.eval_options import EvalConfig, task_args
from rolewise.evaluation.logs import read_runs
from rolewise.evaluation.provider import RolewiseAPI
from tests.training_model import save_tiny_model


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps([{"instruction": "Shorten.", "input": "A cat sat.", "output": "Cat."}]))
    return str(path)


def test_a_table_and_a_second_call_that_asks_nothing(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    command = ["eval", "mockllm/model", "--data", data, "--attacks", "main", "--log-dir", str(tmp_path / "logs")]
    assert main(command) == 0
    first = capsys.readouterr()
    assert "main four: average" in first.out
    assert "ceiling" in first.out
    assert len(list((tmp_path / "logs").glob("*.eval"))) == 1
    assert main(command) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "finished before" in again.err
    assert "finished before" not in first.err
    assert "structured_query on alpaca.json" in first.out
    assert len(list((tmp_path / "logs").glob("*.eval"))) == 1
    assert main([*command, "--criterion", "begins_with"]) == 0
    assert "begins_with" in capsys.readouterr().out


def test_direct_injection_has_its_ceiling_in_the_system_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "rows.json").write_text(json.dumps([{"instruction": "Say it.", "input": "", "output": "It."}]))
    command = ["eval", "mockllm/model", "--data", str(tmp_path / "rows.json"), "--attacks", "main"]
    logs = ["--log-dir", str(tmp_path / "logs")]
    assert main([*command, *logs, "--suite", "direct-injection"]) == 0
    said = capsys.readouterr().out
    assert "direct_injection on rows.json" in said
    assert "ceiling: the payload is followed in the system message" in said
    assert main(["report", str(tmp_path / "logs"), "-o", str(tmp_path / "report")]) == 0
    assert "Ceiling: the payload is followed in the system message." in (tmp_path / "report/report.md").read_text()


def test_indirect_injection_is_structured_query(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    command = ["eval", "mockllm/model", "--data", data, "--attacks", "naive", "--log-dir", str(tmp_path / "logs")]
    assert main(command) == 0
    assert main([*command, "--suite", "indirect-injection"]) == 0
    assert "finished before" in capsys.readouterr().err


def test_attacks_in_turn_two_and_in_a_tools_result(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    command = ["eval", "mockllm/model", "--data", data, "--attacks", "naive", "--log-dir", str(tmp_path / "logs")]
    assert main(command) == 0
    assert main([*command, "--turn", "second", "--via", "tool"]) == 0
    assert "finished before" not in capsys.readouterr().err
    (second,) = (run for run in read_runs([tmp_path / "logs"]) if run.settings["task"]["turn"] == "second")
    assert second.settings["task"]["via"] == "tool"
    naive = next(one for one in second.outcomes if one.condition == "naive")
    assert [message["role"] for message in naive.messages][-1] == "tool"
    assert sum(message["role"] == "user" for message in naive.messages) == 2
    config = EvalConfig(models=("m",))
    assert "turn" not in task_args(config, {"data": data}), "runs from before there were turns are still known"
    assert task_args(replace(config, turn="second"), {"data": data})["turn"] == "second"


def test_the_table_names_a_probe_a_part_of_a_domain_and_deaf_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [{"instruction": f"Shorten {i}.", "input": "A cat sat.", "output": "Cat."} for i in range(2)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    command = ["eval", "mockllm/model", "--data", str(tmp_path / "rows.json"), "--log-dir", str(tmp_path / "logs")]
    assert main([*command, "--attacks", "naive,completion_real"]) == 0
    said = capsys.readouterr().out
    assert "in-domain (2 of 17): average" in said
    assert "in-domain: " not in said
    flat = " ".join(said.split())
    assert "The ceiling is under 30 % (model 0 %): few payloads" in flat
    assert "fewer than 20 samples (model 2): resampled" in flat


def test_no_name_in_the_table_is_read_as_markup():
    import io

    from rich.console import Console

    from rolewise.evaluation.table import comparison_table
    from tests.reporting_runs import outcome, run

    outcomes = [outcome("s1", name, name == "ceiling") for name in ("clean", "naive", "[bold]", "ceiling")]
    names = ("ise-a [data-as-user]", "ise-b [all-one-role]")
    settings = {"task": {"data": "eval/[red]rows.json"}}
    console = Console(width=160, file=io.StringIO())
    console.print(comparison_table([run(name, outcomes=outcomes, settings=settings) for name in names]))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    for shown in (*names, "[bold]", "[red]rows.json"):
        assert shown in said
    assert "The ceiling is under" not in said


def test_without_a_file_rows_are_generated_and_the_table_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "mockllm/model", "--attacks", "naive", "--limit", "2"]) == 0
    said = capsys.readouterr()
    assert "structured_query on generated" in said.out
    assert "rows are generated" in said.err


def test_rows_that_are_too_long_are_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = save_tiny_model(tmp_path / "model")
    rows = [{"instruction": f"Shorten {i}.", "input": "A cat sat." * (1 + 100 * i), "output": "Cat."} for i in range(2)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    common = ["--attacks", "naive", "--max-new-tokens", "2", "--log-dir", str(tmp_path / "logs")]
    command = ["eval", str(model), "--data", str(tmp_path / "rows.json"), *common]
    assert main(command) == UNASKED, "scripts must be able to tell"
    first = capsys.readouterr()
    line = "model: 3 of 6 rows could not be asked: too long for the model (up to "
    for said in (first.out, first.err):
        assert line in " ".join(said.split())
        assert "row-1/clean" in said
    assert "1 (3 of 6 answers)" in first.out
    assert "ceiling" in first.out
    assert main(command) == UNASKED, "a resumed run hides nothing"
    again = capsys.readouterr()
    assert "finished before" in again.err
    assert line in again.err
    assert again.out == first.out
    (tmp_path / "rows.json").write_text(json.dumps(rows[1:]))
    assert main([*command[:2], "mockllm/model", *command[2:]]) == UNASKED
    assert "the reference, has no answer; model takes its place" in " ".join(capsys.readouterr().err.split())
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "3 of 3 rows could not be asked" in said
    assert "Take shorter rows" in said


def test_answers_may_be_computed_in_another_dtype(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    model = save_tiny_model(tmp_path / "model")
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx2": True}, raising=False)
    for dtype in ([], ["--dtype", "bf16"]):
        command = ["eval", str(model), "--data", "generated", "--attacks", "naive", "--limit", "1"]
        assert main([*command, "--max-new-tokens", "2", "--log-dir", str(tmp_path / "logs"), *dtype]) == 0
        assert ("no bf16 instructions" in capsys.readouterr().err) == bool(dtype)
    found = [run.settings["model"].get("dtype") for run in read_runs([tmp_path / "logs"])]
    assert sorted(found, key=str) == [None, "bfloat16"], "two runs, as an answer in one is none in the other"
    tiny = RolewiseAPI(str(model), dtype="bfloat16").model
    assert tiny.get_input_embeddings().weight.dtype == torch.bfloat16
    assert tiny.segment_embedding.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--attacks", "naiv"], "did you mean 'naive'"),
        (["--probe", "scale-0"], "has no segment table"),
        (["--limit", "0"], "--limit 0 must be at least 1"),
        (["--epochs", "2"], "--temperature above 0"),
        (["--data", "absent.json"], "no test file 'absent.json'"),
        (["mockllm/model"], "is named twice"),
        (["--payload", "hackd"], "did you mean 'hacked'"),
        (["--delimiters", "chatm"], "chatml"),
        (["--suite", "sep", "--system", "Obey."], "--system is for the suites structured-query, direct-injection, ad"),
        (["--budget", "5"], "--budget is for the suite adaptive; structured-query has no such option"),
        (
            ["--suite", "sep", "--turn", "second"],
            "--turn is for the suites structured-query, direct-injection and prompt",
        ),
        (["--suite", "direct-injection", "--via", "tool"], "--via is for the suite structured-query"),
        (["--suite", "direct-injection"], "has no row without an input"),
        (["--suite", "direct-injection", "--data", "generated", "--system", " "], "the system message is empty"),
    ],
)
def test_errors(data: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    given = [] if "--data" in options else ["--data", data]
    assert main(["eval", "mockllm/model", *options, *given]) == 2
    assert said in capsys.readouterr().err
