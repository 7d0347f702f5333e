"""`rolewise eval`: a table for a mock model, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai", reason="needs rolewise[eval]")

from rolewise.cli import main


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


def test_without_a_file_rows_are_generated_and_the_table_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "mockllm/model", "--attacks", "naive", "--limit", "2"]) == 0
    said = capsys.readouterr()
    assert "structured_query on generated" in said.out
    assert "rows are generated" in said.err


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
    ],
)
def test_errors(data: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    given = [] if "--data" in options else ["--data", data]
    assert main(["eval", "mockllm/model", *options, *given]) == 2
    assert said in capsys.readouterr().err
