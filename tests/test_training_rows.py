"""Reading training rows from files."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from rolewise.data.strict_json import json_rows
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


TWICE = '{"instruction": "a", "output": "b", "output": "c"}'
NOT_A_NUMBER = '{"messages": [], "meta": NaN}'
UNPAIRED = '{"instruction": "a", "output": "\\ud800"}'


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (TWICE, "the key 'output' stands there twice"),
        (json.dumps({**CHAT, "meta": 0}).replace("0", '{"id": 1, "id": 2}'), "'meta': the key 'id' stands there twice"),
        (NOT_A_NUMBER, "'meta': NaN is no JSON"),
        (UNPAIRED, "'output': the lone surrogate"),
        ('{"meta": ' + "[" * 300 + "]" * 300 + "}", "nested more than 200 levels deep"),
    ],
)
def test_what_a_lenient_reader_lets_through_is_a_bad_row(row: str, said: str, tmp_path: Path) -> None:
    lines = write(tmp_path / "rows.jsonl", CHAT, row, CHAT)
    assert problem(lines).startswith(f"{lines}:2: {said}")
    array = write(tmp_path / "rows.json", f"[{json.dumps(CHAT)},\n{row}]")
    assert problem(array).startswith(f"{array}[1]: {said}")
    assert len(list(read_rows(array))) == 2


def test_lists_of_messages_are_told_how_to_become_rows(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", CHAT["messages"], CHAT["messages"])
    said = [row.problem for row in read_rows(source) if isinstance(row, BadRow)]
    assert [one.partition(": ")[0] for one in said] == [f"{source}:1", f"{source}:2"]
    assert all('wrap it: {"messages": [...]}' in one for one in said)


def test_a_format_that_was_asked_for_is_kept_to(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", ALPACA)
    assert '"messages" must be a list' in problem(source, form="conversations")


def test_rows_over_several_lines(tmp_path: Path) -> None:
    tall = json.dumps(CHAT, indent=1)
    for rows, place in (([tall], 1), ([CHAT, tall], 2), ([tall, tall], 1)):
        with pytest.raises(ValueError, match=rf"tall\.jsonl:{place}: a row begins here .*, or an array around them"):
            read(write(tmp_path / "tall.jsonl", *rows))
    assert len(read(write(tmp_path / "array.json", f"[{tall}, {tall}]"))) == 2


def test_several_values_in_a_file_of_json() -> None:
    tall = json.dumps(CHAT, indent=1)
    with pytest.raises(ValueError, match=r"x\.json:\d+: .*each of several values needs a line of its own"):
        list(json_rows("x.json", f"{tall}\n{tall}"))


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
    monkeypatch.setattr("rolewise.training.rows.unreachable", lambda: None)

    def load_dataset(name: str, split: str) -> Any:
        asked.append((name, split))
        return [{**CHAT, "id": 1}]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    (row,) = read("someone/chats", split="train_sft")
    assert asked == [("someone/chats", "train_sft")]
    assert row.place == "someone/chats/train_sft[0]"


def test_a_data_set_that_no_hub_can_be_asked_for_fails_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[str] = []

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def load_dataset(name: str, split: str) -> Any:
        asked.append(name)
        return [CHAT]

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("rolewise.hub.getproxies", dict)
    monkeypatch.setattr("socket.getaddrinfo", unknown)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no data 'tatsu/alpaka': .*Name or service not known.*check the name"):
        list(read_rows("tatsu/alpaka"))
    assert not asked, "the hub's client would try for half a minute"
    (tmp_path / "tatsu___alpaca").mkdir()  # what was prepared before needs no hub
    assert len(read("tatsu/alpaca")) == 1
    monkeypatch.setattr("rolewise.hub.getproxies", lambda: {"https": "proxy"})
    assert len(read("tatsu/alpaka")) == 1
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("rolewise.hub.getproxies", dict)
    assert len(read("tatsu/alpaka")) == 1
