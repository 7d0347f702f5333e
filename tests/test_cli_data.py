"""`rolewise data`: which data sets there are, and the one that is generated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from rolewise.cli import main
from rolewise.data.conflicts import held_out_kinds


def test_help_lists_the_data_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--help"]) == 0
    said = capsys.readouterr().out
    for name in ("structured-query", "conflicts"):
        assert name in said
        assert main(["data", name, "--help"]) == 0
        assert f"rolewise data {name}" in capsys.readouterr().out


def test_conflicts_are_written_counted_and_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "rows.jsonl"
    command = ["data", "conflicts", "--rows", "16", "--channels", "data", "tool", "-o", str(out)]
    assert main(command) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    counts = Counter(row["meta"]["condition"] for row in rows)
    assert counts == {"conflict": 6, "twin": 6, "rule": 2, "plain": 2}
    assert all(row["messages"][-1]["role"] == "assistant" for row in rows)
    assert {row["meta"]["channel"] for row in rows if row["meta"]["pair"]} == {"data", "tool"}
    assert not any(row["meta"]["kind"] in held_out_kinds() for row in rows)
    said = capsys.readouterr().err
    assert "twin                    6" in said
    before = out.read_bytes()
    assert main(command) == 2
    assert "exists; name another file with -o, or give --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite", "--seed", "1"]) == 0
    assert out.read_bytes() != before


def test_the_kinds_of_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "conflicts", "--list"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {name for name, where in listed.items() if where == "held out for tests"} == set(held_out_kinds())
    assert len(listed) >= 16


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a data set: structured-query, conflicts"),
        (["conflict"], "did you mean 'conflicts'?"),
        (["conflicts"], "-o is empty"),
        (["conflicts", "-o", "x.jsonl", "--rows", "0"], "--rows 0 must be at least 1"),
        (["conflicts", "-o", "x.jsonl", "--channels", "dat"], "'dat'"),
        (["conflicts", "-o", "x.jsonl", "--kinds", "cas"], "'cas'"),
    ],
)
def test_errors(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
