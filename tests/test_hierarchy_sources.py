"""Sources: rows of any known shape become conversations; what cannot or must not be used is left out, and told."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rolewise.data.hierarchy.recipe import Source
from rolewise.data.hierarchy.records import Record, Reject
from rolewise.data.hierarchy.sources import keys_of_tests, read_source


def read(
    path: Path, *, tested: Any = frozenset(), seen: Any = None, **settings: Any
) -> tuple[list[Record], list[Reject]]:
    source = Source(path=(str(path),), **settings)
    found = read_source("s", source, 0, set(tested), set() if seen is None else seen)
    return [o for o in found if isinstance(o, Record)], [o for o in found if isinstance(o, Reject)]


def write(folder: Path, rows: list[Any], name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def turn(record: Record) -> tuple[str, str, str, str]:
    found = record.turn
    assert found is not None
    return found.system, found.user, found.data, found.answer


def alpaca(instruction: str, data: str = "", answer: str = "A.") -> dict[str, str]:
    return {"instruction": instruction, "input": data, "output": answer}


def chat(*turns: tuple[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_alpaca_messages_and_sharegpt_come_out_alike(tmp_path: Path) -> None:
    shared = {"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "C?"},
                                {"from": "gpt", "value": "c"}, {"from": "human", "value": "more"}]}  # fmt: skip
    long = chat(("system", ""), ("user", "B?"), ("assistant", "b"), ("user", "x"), ("assistant", "y"))
    rows = [alpaca("A?", "D"), alpaca("A2?", "No input"), long, shared]
    records, rejects = read(write(tmp_path, rows))
    assert not rejects
    assert {record.id: turn(record) for record in records} == {
        "s[0]": ("", "A?", "D", "A."),
        "s[1]": ("", "A2?", "", "A."),
        "s[2]": ("", "B?", "", "b"),
        "s[3]": ("S", "C?", "", "c"),
    }
    records, _ = read(write(tmp_path, [rows[2]]), turns="all")
    assert [len(record.messages) for record in records] == [4]
    assert records[0].turn is None


def test_parquet_is_read_as_jsonl_is(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [chat(("user", f"Q{i}?"), ("assistant", f"a{i}")) for i in range(5)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert read(tmp_path / "rows.parquet")[0] == read(write(tmp_path, rows))[0]
    (tmp_path / "broken.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match="no Parquet file that can be read"):
        read(tmp_path / "broken.parquet")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read(tmp_path / "none.parquet")


def test_a_row_that_cannot_be_used_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = json.dumps(alpaca("Fine?"))
    bad = [alpaca("Empty?", answer=" "), {"instruction": 3, "input": "", "output": "x"}, ["list"],
           chat(("user", "No answer")), chat(("robot", "x"), ("assistant", "y")), chat(),
           {"conversations": [{"from": "alien", "value": "x"}]}, chat(("user", "u"), ("assistant", " ")),
           chat(("user", {"a": 1}), ("assistant", "y"))]  # fmt: skip
    path.write_text("\n".join([good, "{no json", '{"instruction": "a", "instruction": "b"}', *map(json.dumps, bad)]))
    records, rejects = read(path)
    assert [record.id for record in records] == ["s[0]"]
    assert len(rejects) == 11
    assert {reject.reason for reject in rejects} == {"unusable"}
    assert all(reject.detail for reject in rejects)
    assert len({reject.id for reject in rejects}) == 11


def test_duplicates_and_rows_of_the_test_sets_are_left_out(tmp_path: Path) -> None:
    tests = write(tmp_path, [alpaca("Name the sea.", "Map 1", "")], "test.json")
    secrets = write(tmp_path, [{"id": 1, "instruction": "You are a pirate."}], "secrets.jsonl")
    keys = keys_of_tests([str(tests), str(secrets)])
    same = chat(("user", "Name the sea."), ("data", "Map 1"), ("assistant", "x"))
    rows = [alpaca("Name  the SEA.", "map 1"), alpaca("Name the sea.", "Map 2"), alpaca("name the sea.", "MAP 2 ")]
    rows += [alpaca("You are a pirate."), same]
    seen: set[Any] = set()
    records, rejects = read(write(tmp_path, rows), tested=keys, seen=seen)
    assert [record.id for record in records] == ["s[1]"]
    assert Counter(reject.reason for reject in rejects) == {"in a test set": 2, "duplicate": 2}
    again, rejects = read(write(tmp_path, rows), tested=keys, seen=seen)  # another source with the same rows
    assert not again
    assert {reject.reason for reject in rejects} == {"duplicate"}


def test_a_test_row_that_cannot_be_read_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test.json:1: .*a test row, drop_test"):
        keys_of_tests([str(write(tmp_path, [{"input": "x"}], "test.json"))])
    with pytest.raises(FileNotFoundError, match="no test file at"):
        keys_of_tests([str(tmp_path / "none.json")])


def test_the_same_request_under_another_system_message_is_no_duplicate(tmp_path: Path) -> None:
    rows = [chat(("system", name), ("user", "Hi"), ("assistant", "Hello")) for name in ("S1", "S2", "s1")]
    records, rejects = read(write(tmp_path, rows))
    assert (len(records), len(rejects)) == (2, 1)


def test_limits(tmp_path: Path) -> None:
    rows = [alpaca("Q" * n, "d" * n, "a") for n in range(1, 21)]
    path = write(tmp_path, rows)
    records, rejects = read(path, min_chars=9, max_chars=31, max_data_chars=14)
    assert {len(turn(record)[1]) for record in records} == set(range(4, 15))
    assert {reject.reason for reject in rejects} == {"too short or long"}
    records, rejects = read(path, max_rows=7)
    assert (len(records), Counter(reject.reason for reject in rejects)) == (7, {"over max_rows": 13})
    assert records == read(path)[0][:7]  # the first in the drawn order


def test_an_input_under_another_name_is_not_lost_in_silence(tmp_path: Path) -> None:
    path = write(tmp_path, [{"instruction": "Q", "text": "the data", "output": "a"}])
    with pytest.raises(ValueError, match='no row has the field "input"'):
        read(path)


def test_the_order_is_drawn_and_rows_that_are_added_do_not_change_it(tmp_path: Path) -> None:
    rows = [alpaca(f"Question {n}?") for n in range(40)]
    few = [record.id for record in read(write(tmp_path, rows[:20]))[0]]
    many = [record.id for record in read(write(tmp_path, rows))[0]]
    assert few != sorted(few)
    assert [id for id in many if id in few] == few


def test_a_hub_data_set_is_read_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def rows_from_hub(name: str, split: str) -> Any:
        asked.append((name, split))
        yield f"{name}/{split}[0]", {"prompt": "Q?", **chat(("user", "Q?"), ("assistant", "a"))}

    monkeypatch.setattr("rolewise.training.rows.rows_from_hub", rows_from_hub)
    found = read_source("s", Source(path=("owner/chats",), split="train_sft"), 0, set(), set())
    assert asked == [("owner/chats", "train_sft")]
    assert [one.id for one in found] == ["s[0]"]
