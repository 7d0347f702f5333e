from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from rolewise.data import write_jsonl
from rolewise.data.conflicts import (
    CHANNELS,
    KINDS,
    RuleKind,
    Style,
    against,
    conflict_conditions,
    conflict_rows,
    held_out_kinds,
    judge,
    kind_names,
    tasks,
)
from rolewise.data.conflicts.checks import includes
from rolewise.data.conflicts.conversations import LIFTS, OPENINGS
from rolewise.messages import parse_messages
from rolewise.roles import Role
from rolewise.samples import words_of

Row = dict[str, Any]

TRAIN = list(conflict_rows(2400, seed=3))
TEST = list(conflict_rows(2400, split="test", seed=3))
CONDITIONS = list(conflict_conditions(180, seed=3))


def text_of(row: Row, *roles: str) -> str:
    return "\n".join(message["content"] for message in row["messages"] if message["role"] in roles)


def question(row: Row) -> list[dict[str, str]]:
    return row["messages"][:-1] if row["messages"][-1]["role"] == "assistant" else row["messages"]


def pairs_of(rows: list[Row]) -> list[tuple[Row, Row]]:
    groups: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row["meta"]["pair"] is not None:
            assert row["meta"]["pair"] == row["meta"]["id"]
            assert row["meta"]["condition"] not in groups[row["meta"]["pair"]]
            groups[row["meta"]["pair"]][row["meta"]["condition"]] = row
    assert all(group.keys() == {"conflict", "twin"} for group in groups.values())
    return [(group["conflict"], group["twin"]) for group in groups.values()]


PAIRS = [*pairs_of(TRAIN), *pairs_of(TEST)]


def words_in(messages: list[dict[str, str]]) -> Counter[str]:
    return Counter(word for message in messages for word in words_of(message["content"]))


def test_every_block_of_eight_has_the_stated_mix() -> None:
    for start in range(0, len(TRAIN), 8):
        block = Counter(row["meta"]["condition"] for row in TRAIN[start : start + 8])
        assert block == {"conflict": 3, "twin": 3, "rule": 1, "plain": 1}


@pytest.mark.parametrize(("rows", "split"), [(TRAIN, "train"), (TEST, "test")])
def test_kinds_and_channels_come_equally_often(rows: list[Row], split: Any) -> None:
    cells = Counter((row["meta"]["kind"], row["meta"]["channel"]) for row in rows if row["meta"]["pair"])
    assert set(cells) == {(kind, channel) for kind in kind_names(split) for channel in CHANNELS}
    assert max(cells.values()) - min(cells.values()) <= 2
    for condition in ("rule", "plain"):
        kinds = Counter(row["meta"]["kind"] for row in rows if row["meta"]["condition"] == condition)
        assert set(kinds) == set(kind_names(split))
        assert max(kinds.values()) - min(kinds.values()) <= 1


def test_at_least_sixteen_kinds_of_which_five_are_held_out() -> None:
    assert len(kind_names()) >= 16
    assert len(held_out_kinds()) >= 5
    assert set(kind_names("test")) == set(kind_names())
    assert not {row["meta"]["kind"] for row in TRAIN} & set(held_out_kinds())
    assert all(row["meta"]["held_out"] == (row["meta"]["kind"] in held_out_kinds()) for row in TEST + CONDITIONS)


def test_the_answer_of_each_row_is_right_and_that_of_the_other_half_is_wrong() -> None:
    for row in TRAIN + TEST:
        verdict = judge(row["messages"][-1]["content"], row["meta"]["check"])
        assert verdict.right(row["meta"]["condition"]), row
        if row["meta"]["condition"] in ("conflict", "rule"):
            assert (verdict.kept, verdict.obeyed) == (True, False)
    for conflict, twin in PAIRS:
        swapped = judge(twin["messages"][-1]["content"], conflict["meta"]["check"])
        assert (swapped.kept, swapped.obeyed) == (False, True)
        assert not swapped.right("conflict")
        swapped = judge(conflict["messages"][-1]["content"], twin["meta"]["check"])
        assert (swapped.kept, swapped.obeyed) == (True, False)
        assert not swapped.right("twin")


def test_an_order_has_the_same_words_in_both_halves_and_stands_where_it_should() -> None:
    where = {"user": "user", "data": "data", "tool": "tool", "second_turn": "user"}
    giver = {"after": "system", "alone": "user", "own": "user"}
    for conflict, twin in PAIRS:
        meta = conflict["meta"]
        for key in ("order", "rule", "channel", "form", "kind"):
            assert meta[key] == twin["meta"][key]
        for part in ("kept", "obeyed"):
            assert meta["check"][part] == twin["meta"]["check"][part]
        for row, role in ((conflict, where[meta["channel"]]), (twin, giver[meta["form"]])):
            holding = [message for message in row["messages"] if meta["order"] in message["content"]]
            assert [message["role"] for message in holding] == [role], row
        assert meta["rule"] in text_of(conflict, "system")
        last = conflict["messages"][:-1]
        assert meta["channel"] != "second_turn" or meta["order"] in last[-1]["content"]


def test_the_halves_of_a_pair_differ_in_roles_and_in_nothing_else() -> None:
    forms = Counter()
    for conflict, twin in PAIRS:
        form = conflict["meta"]["form"]
        forms[form] += 1
        a, b = words_in(question(conflict)), words_in(question(twin))
        if form == "alone":
            assert a - b == Counter(words_of(conflict["meta"]["rule"]))
            assert not b - a
        else:
            assert a == b, (conflict, twin)
        earlier = [text_of(row, "assistant") for row in ({"messages": question(x)} for x in (conflict, twin))]
        assert earlier[0] == earlier[1]
    assert set(forms) == {"after", "alone", "own"}
    single = forms["after"] + forms["alone"]
    assert 0.3 < forms["alone"] / single < 0.5
    # Without roles, some pairs are the same text throughout.
    flat = [[" ".join(m["content"].replace("\n", " ") for m in question(row)) for row in pair] for pair in PAIRS]
    assert sum(a == b for a, b in flat) > 100


def test_a_rule_that_nobody_states_is_nowhere_and_so_is_an_order_that_nobody_gives() -> None:
    for row in TRAIN + TEST:
        meta, text = row["meta"], text_of(row, "system", "user", "data", "tool")
        if meta["condition"] == "plain" or (meta["form"] == "alone" and meta["condition"] == "twin"):
            assert meta["rule"] not in text
        if meta["condition"] in ("plain", "rule"):
            assert meta["order"] is meta["pair"] is meta["channel"] is meta["form"] is None
            assert not any(lift in text for lift in LIFTS["train"] + LIFTS["test"])


def test_an_order_after_the_rule_always_says_that_the_rule_is_over() -> None:
    lifted: dict[str, list[bool]] = defaultdict(list)
    for conflict, _ in PAIRS:
        lifted[conflict["meta"]["form"]].append(conflict["meta"]["order"].startswith(LIFTS["train"] + LIFTS["test"]))
    assert all(lifted["after"])
    for form in ("alone", "own"):
        assert 0.35 < sum(lifted[form]) / len(lifted[form]) < 0.65


def test_orders_stand_before_and_after_what_is_in_the_same_message() -> None:
    first = Counter()
    for conflict, _ in PAIRS:
        meta = conflict["meta"]
        if meta["channel"] in ("data", "tool"):
            content = text_of(conflict, meta["channel"])
            first[meta["channel"], content.endswith(meta["order"])] += 1
            assert meta["kind"] != "sentences" or content.endswith(meta["order"])
    for channel in ("data", "tool"):
        assert 0.2 < first[channel, False] / (first[channel, False] + first[channel, True]) < 0.5


def test_messages_are_conversations_that_rolewise_takes() -> None:
    for row in TRAIN + TEST + CONDITIONS:
        parsed = parse_messages(row["messages"])
        roles = [message["role"] for message in row["messages"]]
        assert roles.count("system") == 1
        assert roles[0] == "system"
        answered = row["messages"][-1]["role"] == "assistant"
        assert answered == ("domain" not in row["meta"])
        turn = [role for role in roles if role != "system"]
        assert re.fullmatch(r"(user (data |tool )?assistant ){0,2}(user (data |tool )?)?", " ".join([*turn, ""]))
        assert roles.count("assistant") - answered == (
            "second_turn" in (row["meta"]["channel"], row["meta"]["condition"]) or row["meta"].get("form") == "own"
        )
        for message, one in zip(row["messages"], parsed, strict=True):
            assert message["content"].strip() == message["content"] != ""
            if message["role"] == "tool":
                assert one.role is Role.DATA
                assert message["name"]
                assert message["tool_call_id"]


def test_rows_have_no_slots_left_and_are_short() -> None:
    for row in TRAIN + TEST + CONDITIONS:
        for message in row["messages"]:
            assert not re.search(r"\{\w?\}", message["content"])
    lengths = sorted(sum(len(message["content"]) for message in row["messages"]) for row in TRAIN)
    assert lengths[int(0.95 * len(lengths))] < 350
    assert lengths[-1] < 500


def test_rows_hardly_ever_repeat() -> None:
    rows = list(conflict_rows(5000, seed=1))
    questions = {json.dumps(question(row)) for row in rows}
    assert len(questions) >= 0.99 * len(rows)
    assert len({row["meta"]["rule"] for row in rows}) > 300
    other = {json.dumps(question(row)) for row in conflict_rows(1000, seed=2)}
    assert len(other & questions) < 10


def test_the_splits_share_no_rules_orders_asks_or_texts() -> None:
    for rows in (TEST, CONDITIONS):
        for part in ("rule", "order"):
            assert not {r["meta"][part] for r in rows} & {r["meta"][part] for r in TRAIN} - {None}
        for roles in (("system",), ("user",), ("data",), ("tool",)):
            ours, theirs = ({text_of(row, *roles) for row in group} - {""} for group in (TRAIN, rows))
            assert not ours & theirs
    for table in (LIFTS, OPENINGS):
        assert not set(table["train"]) & set(table["test"])


def test_a_longer_run_begins_with_the_same_rows_and_seeds_differ() -> None:
    assert list(conflict_rows(53, seed=3)) == TRAIN[:53]
    assert list(conflict_rows(53, split="test", seed=3)) == TEST[:53]
    assert list(conflict_conditions(7, seed=3)) == CONDITIONS[:42]
    assert list(conflict_rows(53, seed="3")) == TRAIN[:53]
    assert list(conflict_rows(53, seed=4)) != TRAIN[:53]
    assert list(conflict_conditions(7, seed=4)) != CONDITIONS[:42]
    assert list(conflict_rows(0)) == list(conflict_conditions(0)) == []


def test_rows_are_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    code = (
        "import sys; from rolewise.data import write_jsonl; from rolewise.data.conflicts import *\n"
        "rows = [*conflict_rows(160), *conflict_rows(160, split='test'), *conflict_conditions(40)]\n"
        "write_jsonl(rows, sys.argv[1]); assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    digests = set()
    for hash_seed in ("0", "1"):
        path = tmp_path / hash_seed
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert digests == {GOLDEN}


GOLDEN = "56ff54c26b58700d2dfcf37d00345489836731044685c1743844e89bb1d7ce89"
"""The bytes of 160 rows of each split and 40 samples in all conditions: a change here changes published figures."""


def test_rows_survive_json(tmp_path: Path) -> None:
    write_jsonl(TEST[:400], tmp_path / "rows.jsonl")
    back = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert back == TEST[:400]


def test_conditions_of_a_sample_differ_in_where_the_order_stands() -> None:
    samples: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in CONDITIONS:
        samples[row["meta"]["id"]][row["meta"]["condition"]] = row
    assert len(samples) == 180
    assert Counter(rows["rule"]["meta"]["kind"] for rows in samples.values()) == dict.fromkeys(kind_names(), 6)
    for rows in samples.values():
        assert list(rows) == [*CHANNELS, "twin", "rule"]
        domains = [row["meta"]["domain"] for row in rows.values()]
        assert domains == ["conflict"] * 4 + ["ceiling", "clean"]
        alone = rows["rule"]["messages"]
        order = rows["twin"]["meta"]["order"]
        assert [message["role"] for message in alone] == ["system", "user", "data"]
        assert rows["rule"]["meta"]["order"] is None
        assert rows["twin"]["messages"] == [
            {"role": "system", "content": f"{alone[0]['content']} {order}"},
            *alone[1:],
        ]
        for channel in CHANNELS:
            messages = rows[channel]["messages"]
            assert rows[channel]["meta"]["order"] == order
            assert messages[0] == alone[0]
            holder = messages[-2] if channel in ("user", "second_turn") else messages[-1]
            assert order in holder["content"]
            index = -2 if channel in ("user", "second_turn") else -1
            assert holder["content"].replace(order, "").strip() != ""
            if channel != "tool":
                assert words_in([holder]) - Counter(words_of(order)) == words_in([alone[index]])
            assert rows[channel]["meta"]["check"] == rows["rule"]["meta"]["check"]


def test_a_sample_does_not_depend_on_the_channels() -> None:
    some = list(conflict_conditions(20, seed=3, channels=["tool", "user"]))
    wanted = {"tool", "user", "twin", "rule"}
    key = lambda row: (row["meta"]["id"], row["meta"]["condition"])  # noqa: E731
    assert sorted(some, key=key) == sorted(
        (row for row in CONDITIONS[:120] if row["meta"]["condition"] in wanted), key=key
    )


def test_kinds_and_channels_can_be_chosen() -> None:
    rows = list(conflict_rows(80, kinds=["secret", "case"], channels=["tool"]))
    assert {row["meta"]["kind"] for row in rows} == {"secret", "case"}
    assert {row["meta"]["channel"] for row in rows if row["meta"]["pair"]} == {"tool"}
    held = list(conflict_conditions(6, kinds=["tag"], channels=["second_turn"]))
    assert [row["meta"]["condition"] for row in held] == ["second_turn", "twin", "rule"] * 6


def shout(scene: Any) -> Any:
    styles = [
        Style(phrase=mark, write=lambda task, m=mark: task.answer + m, holds=lambda _, m=mark: includes(m))
        for mark in "!?"
    ]
    text, order = "End with an exclamation mark.", "End with a question mark."
    return against(text, order, ours=styles[0], theirs=styles[1], task=tasks.spoken_fact)


def test_a_kind_of_ones_own_is_one_object() -> None:
    rows = list(conflict_rows(80, kinds=[RuleKind(name="shout", make=shout), "case"]))
    mine = [row for row in rows if row["meta"]["kind"] == "shout"]
    assert len(mine) > 30
    assert {row["messages"][-1]["content"][-1] for row in mine if row["meta"]["condition"] == "twin"} == {"?"}
    assert {row["messages"][-1]["content"][-1] for row in mine if row["meta"]["condition"] == "conflict"} == {"!"}


def test_a_kind_whose_answers_fail_its_own_checks_is_refused_by_name() -> None:
    def both(scene: Any) -> Any:
        style = Style(phrase="!", write=lambda task: task.answer + "!", holds=lambda _: includes("!"))
        return against("Shout.", "Shout.", ours=style, theirs=style, task=tasks.fact)

    with pytest.raises(ValueError, match=r"'both' has the answer '.*!'"):
        list(conflict_rows(8, kinds=[RuleKind(name="both", make=both)]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": -1}, "n=-1"),
        ({"n": 1, "split": "dev"}, "split='dev'"),
        ({"n": 1, "kinds": ["cases"]}, "'cases'; use one of case"),
        ({"n": 1, "kinds": ["tag"]}, "'tag' is held out"),
        ({"n": 1, "kinds": ["case", "case"]}, "'case' twice"),
        ({"n": 1, "kinds": []}, r"kinds=\[\]"),
        ({"n": 1, "kinds": "case"}, "kinds='case'"),
        ({"n": 1, "channels": ["mail"]}, "'mail'; use one of user, data, tool, second_turn"),
        ({"n": 1, "channels": ["user", "user"]}, "each once"),
        ({"n": 1, "channels": []}, r"channels=\[\]"),
        ({"n": 1, "channels": "user"}, "channels='user'"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conflict_rows(**arguments)
    if "split" not in arguments and "held out" not in message:
        with pytest.raises(ValueError, match=message):
            conflict_conditions(**arguments)


def test_kinds_are_named_once() -> None:
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names)
    for name, splits in (("", ("train",)), ("x", ()), ("x", ("dev",))):
        with pytest.raises(ValueError, match="needs a name and splits"):
            RuleKind(name=name, make=shout, splits=splits)  # pyright: ignore[reportArgumentType]
