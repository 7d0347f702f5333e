"""Reading training rows from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rolewise.training.rows import BadRow, Row, read_rows

CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
EMPTY = {"role": "assistant", "content": " \n"}
ALPACA = {"instruction": "Sum up.", "input": "A text.", "output": "Short.", "text": "extra columns are fine here"}


def write(path: Path, *values: Any) -> str:
    path.write_text("\n".join(value if isinstance(value, str) else json.dumps(value) for value in values))
    return str(path)


def read(source: str, **options: Any) -> list[Row]:
    rows = list(read_rows(source, **options))
    assert all(isinstance(row, Row) for row in rows), rows
    return rows  # type: ignore[return-value]


def problem(source: str, **options: Any) -> str:
    (bad,) = [row for row in read_rows(source, **options) if isinstance(row, BadRow)]
    return bad.problem


def test_conversations(tmp_path: Path) -> None:
    row = {**CHAT, "tools": [{"type": "function"}], "meta": {"task": "copy"}}
    source = write(tmp_path / "rows.jsonl", row, "", CHAT)
    first, second = read(source)
    assert (first.messages, first.tools, first.place) == (CHAT["messages"], row["tools"], f"{source}:1")
    assert (second.tools, second.place) == (None, f"{source}:3")


def test_alpaca_roles_and_empty_input(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.json", json.dumps([ALPACA, {**ALPACA, "input": ""}], indent=1))
    with_data, without = read(source)
    assert [message["role"] for message in with_data.messages] == ["user", "data", "assistant"]
    assert [message["content"] for message in with_data.messages] == ["Sum up.", "A text.", "Short."]
    assert [message["role"] for message in without.messages] == ["user", "assistant"]
    assert without.place == f"{source}[1]"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"messages": [', "rows.jsonl:2: not valid JSON .*column"),
        ("[1]", r'rows.jsonl:2: a row must be a JSON object, not list; wrap it: \{"messages"'),
        (CHAT["messages"][0], r'rows.jsonl:2: a row must be a whole conversation, .*\{"messages": \[\.\.\.\]\}'),
        ({"messages": [*CHAT["messages"], EMPTY]}, r"rows.jsonl:2: messages\[2\] \(assistant\) is empty"),
        ({"messages": [CHAT["messages"][0], {**EMPTY, "content": [{"type": "text", "text": " "}]}]}, "is empty"),
        ({"messages": [CHAT["messages"][0], {**EMPTY, "content": None, "tool_calls": []}]}, "is empty"),
        ({"question": "?"}, r"rows.jsonl:2: a row needs \"messages\", or .* has the keys \['question'\]"),
        ({"messages": []}, 'rows.jsonl:2: "messages" must be a list of at least one message'),
        ({"messages": [{"role": "user", "content": "x"}]}, "rows.jsonl:2: no assistant message"),
        ({**CHAT, "source": "web"}, 'rows.jsonl:2: unknown key source; .*under "meta"'),
        ({"instruction": "x", "output": " "}, 'rows.jsonl:2: "output" must be a string that is not empty'),
        ({"instruction": 3, "output": "x"}, 'rows.jsonl:2: "instruction" must be a string'),
        ({"instruction": "x", "input": 3, "output": "x"}, 'rows.jsonl:2: "input" must be a string'),
    ],
)
def test_bad_rows_name_file_and_line(line: Any, message: str, tmp_path: Path) -> None:
    import re

    assert re.search(message, problem(write(tmp_path / "rows.jsonl", CHAT, line, CHAT)))


def test_a_call_and_a_thought_are_no_empty_answer(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    answers = [{"tool_calls": [call]}, {"reasoning_content": "Hm."}, {"content": [{"type": "text", "text": "Yes."}]}]
    rows = [{"messages": [CHAT["messages"][0], {**EMPTY, **answer}]} for answer in answers]
    assert len(read(write(tmp_path / "rows.jsonl", *rows))) == 3


def test_lists_of_messages_are_told_how_to_become_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'rows.jsonl:2: .*Extra data.*wrap each list.*\{"messages": \[\.\.\.\]\}'):
        list(read_rows(write(tmp_path / "rows.jsonl", CHAT["messages"], CHAT["messages"])))


def test_a_format_that_was_asked_for_is_kept_to(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", ALPACA)
    assert '"messages" must be a list' in problem(source, form="conversations")


def test_sources(tmp_path: Path) -> None:
    for missing in ("./absent", "absent.jsonl", str(tmp_path / "absent")):
        with pytest.raises(FileNotFoundError, match=r"no data at .*absent"):
            list(read_rows(missing))
    with pytest.raises(ValueError, match="is a directory"):
        list(read_rows(str(tmp_path)))
    binary = tmp_path / "rows.jsonl"
    binary.write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        list(read_rows(str(binary)))
    with pytest.raises(ValueError, match=r"rows\.json:2: not valid JSON"):
        list(read_rows(write(tmp_path / "rows.json", "[", "nonsense]")))


def test_hub_data_set_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[tuple[str, str]] = []

    def load_dataset(name: str, split: str) -> Any:
        asked.append((name, split))
        return [{**CHAT, "id": 1}]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    (row,) = read("someone/chats", split="train_sft")
    assert asked == [("someone/chats", "train_sft")]
    assert row.place == "someone/chats/train_sft[0]"
