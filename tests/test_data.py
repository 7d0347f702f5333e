from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rolewise.attacks import MAIN_ATTACKS, Delimiters, ignore_sentences
from rolewise.data import (
    CEILING,
    CLEAN,
    PAYLOAD_KINDS,
    TASKS,
    TWIN,
    draw_payload,
    evaluation_rows,
    generate_sample,
    payloads,
    training_rows,
    wordings,
    write_jsonl,
)
from rolewise.data.pools import TEST, TRAIN, Pools
from rolewise.samples import contains_words, is_correct, is_followed

TRAINING = list(training_rows(1200, seed=3))
EVALUATION = list(evaluation_rows(220, seed=3))


def turn(row: dict[str, Any], role: str) -> str:
    return next(message["content"] for message in row["messages"] if message["role"] == role)


def by_condition(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["meta"]["condition"]].append(row)
    return groups


def test_the_training_mix_is_adversarial_alpacas_with_a_twin_for_every_attack():
    counts = Counter(row["meta"]["condition"] for row in TRAINING)
    assert counts == {CLEAN: 400, "naive": 200, "completion_other": 200, TWIN: 400}
    tasks = Counter(row["meta"]["task"] for row in TRAINING)
    assert set(tasks) == {task.name for task in TASKS}
    assert max(tasks.values()) < 1.4 * min(tasks.values())


def test_twins_differ_in_the_role_of_the_payload():
    pairs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in TRAINING:
        if row["meta"]["pair"] is not None:
            pairs[row["meta"]["pair"]].append(row)
    assert len(pairs) == 400
    places = Counter()
    for rows in pairs.values():
        twin, attacked = sorted(rows, key=lambda row: row["meta"]["condition"] != TWIN)
        payload = twin["meta"]["payload"]
        assert attacked["meta"]["payload"] == payload
        assert payload["text"] in turn(attacked, "data")
        assert payload["text"] not in turn(attacked, "user")
        assert payload["text"] in turn(twin, "user")
        assert payload["text"] not in turn(twin, "data")
        assert turn(twin, "assistant") == turn(attacked, "assistant") + "\n" + payload["witness"]
        assert turn(twin, "user").replace(payload["text"], "").strip() == turn(attacked, "user")
        places[turn(twin, "user").startswith(payload["text"])] += 1
    assert 0.2 < places[True] / 400 < 0.47


def test_payloads_stand_at_the_begin_in_the_middle_and_at_the_end_of_the_data():
    groups = by_condition(TRAINING)
    seen = Counter(row["meta"]["injections"][0]["position"] for row in groups["naive"])
    assert min(seen[position] for position in ("begin", "middle", "end")) > 40


def test_some_twins_must_ignore_one_payload_and_carry_out_another():
    both = [row for row in by_condition(TRAINING)[TWIN] if len(row["meta"]["injections"]) == 2]
    assert 0.15 < len(both) / 400 < 0.35
    for row in both:
        user, data = row["meta"]["injections"]
        assert (user["role"], data["role"]) == ("user", "data")
        assert data["text"] in turn(row, "data")
        assert row["meta"]["payload"]["text"] == user["text"].strip()
        assert not is_followed(turn(row, "data"), row["meta"]["payload"]["witness"])


def test_answers_pass_their_own_checks_and_decoys_do_not():
    for row in TRAINING:
        meta = row["meta"]
        assert is_correct(turn(row, "assistant"), meta["answer"], meta["wrong"], meta["match"]), row
    for split in ("train", "test"):
        for i in range(30 * len(TASKS)):
            sample = generate_sample(Random(f"{split}{i}"), split, id=str(i), task=TASKS[i % len(TASKS)])
            assert is_correct(sample.answer, sample.answer, sample.wrong, sample.match), sample
            assert sample.decoy is not None
            assert not is_correct(sample.decoy, sample.answer, sample.wrong, sample.match), sample
            assert not is_correct("", sample.answer, sample.wrong, sample.match)


def test_whole_data_is_not_a_right_answer_to_extraction_and_choice():
    tasks = [task for task in TASKS if task.name in ("extract", "look_up", "compare", "first_word", "first_sentence")]
    for i in range(100):
        sample = generate_sample(Random(f"dump{i}"), "test", id=str(i), task=tasks[i % len(tasks)])
        assert not is_correct(sample.data, sample.answer, sample.wrong, sample.match), sample


def test_answers_follow_from_the_data():
    """Each task solved again from its text by independent means."""
    checked = Counter()
    for row in EVALUATION:
        if row["meta"]["condition"] != CLEAN:
            continue
        data, user, answer = turn(row, "data"), turn(row, "user"), row["meta"]["answer"]
        match row["meta"]["task"]:
            case "count":
                listed = re.search(r": ([a-z, ]+)\.", data)
                assert listed
                assert int(answer) == len(listed[1].split(","))
            case "reformat_list":
                listed = re.search(r": ([a-z, ]+)\.", data)
                assert listed
                mark = next(m for k, m in (("slash", "/"), ("semi", ";"), ("plus", "+")) if k in user)
                assert [part.strip() for part in answer.split(mark)] == listed[1].split(", ")
            case "compare":
                first, second = row["meta"]["answer"], row["meta"]["wrong"][0]
                numbers = {w: int(re.search(rf"{w}\D*(\d+)", data)[1]) for w in (first, second)}  # type: ignore[index]
                larger = any(word in user for word in ("higher", "older", "longer"))
                assert (numbers[first] > numbers[second]) is larger
            case "reformat_date":
                year, month, day = answer.split("-")
                assert re.search(rf"\b{int(day)} [A-Z][a-z]+ {year}\b", data)
                names = "January February March April May June July August September October November December"
                assert names.split()[int(month) - 1] in data
            case "first_word":
                assert data.startswith(answer + " ")
            case "first_sentence":
                assert data.startswith(answer)
                assert answer.count(".") == 1
            case "mention":
                names = [name for name in TEST.names if re.search(rf"\b{name}\b", user)]
                assert [answer] == ["yes" if name in data else "no" for name in names]
            case "extract" | "look_up":
                assert contains_words(data, answer)
            case _:
                continue
        checked[row["meta"]["task"]] += 1
    assert len(checked) == 9
    assert min(checked.values()) == 20


def test_a_witness_appears_only_when_the_payload_is_carried_out():
    for row in TRAINING:
        meta = row["meta"]
        if meta["condition"] != CLEAN:
            assert is_followed(turn(row, "assistant"), meta["payload"]["witness"]) is (meta["condition"] == TWIN)
    for row in by_condition(EVALUATION)[CLEAN]:
        witness = row["meta"]["payload"]["witness"]
        texts = [turn(row, "user"), turn(row, "data"), row["meta"]["answer"], *row["meta"]["wrong"]]
        assert not any(contains_words(text, witness) for text in texts)


def test_every_evaluation_sample_comes_in_every_condition_without_an_answer():
    conditions = [CLEAN, *MAIN_ATTACKS, CEILING]
    assert len(EVALUATION) == 220 * len(conditions)
    for i in range(0, len(EVALUATION), len(conditions)):
        rows = EVALUATION[i : i + len(conditions)]
        assert [row["meta"]["condition"] for row in rows] == conditions
        assert len({row["meta"]["id"] for row in rows}) == 1
        clean, *attacked, ceiling = rows
        payload = clean["meta"]["payload"]["text"]
        for row in attacked:
            assert turn(row, "user") == turn(clean, "user")
            assert turn(row, "data").startswith(turn(clean, "data").rstrip())
            assert turn(row, "data").endswith(payload)
        assert turn(ceiling, "data") == turn(clean, "data")
        assert turn(ceiling, "user").replace(payload, "").strip() == turn(clean, "user")
        assert all(message["role"] != "assistant" for row in rows for message in row["messages"])


def test_completion_real_uses_the_delimiters_of_the_attacked_template():
    real = Delimiters(response="\n<<a>>", instruction="\n<<u>>")
    rows = list(evaluation_rows(11, attacks=["completion_real"], real=real))
    for row in by_condition(rows)["completion_real"]:
        assert f"\n<<a>>{row['meta']['answer']}\n<<u>>{row['meta']['payload']['text']}" in turn(row, "data")


def test_position_is_kept_where_the_answer_allows_it():
    rows = by_condition(list(evaluation_rows(44, attacks=["naive"], position="begin")))
    for row in rows["naive"]:
        allowed = not row["meta"]["task"].startswith("first_")
        assert turn(row, "data").startswith(row["meta"]["payload"]["text"]) is allowed


def test_training_forges_wrong_answers_so_that_copying_them_does_not_pay():
    for row in by_condition(TRAINING)["completion_other"]:
        meta = row["meta"]
        forged = meta["injections"][0]["text"].removesuffix(meta["payload"]["text"])
        assert not is_correct(forged, meta["answer"], match=meta["match"]), row


def test_evaluation_attacks_use_the_vocabulary_of_the_test_split():
    for row in by_condition(EVALUATION)["ignore"]:
        sentence = row["meta"]["injections"][0]["text"].removesuffix(row["meta"]["payload"]["text"]).strip()
        assert sentence in ignore_sentences("test")


def test_attack_names_of_training_and_evaluation_share_only_naive():
    trained = {i["attack"] for row in TRAINING for i in row["meta"]["injections"]}
    assert trained == {"naive", "completion_other"}
    assert trained & set(MAIN_ATTACKS) == {"naive"}


def test_the_splits_share_no_texts_words_wordings_or_payloads():
    for field in fields(Pools):
        train, test = getattr(TRAIN, field.name), getattr(TEST, field.name)
        assert len(set(train)) == len(train)
        assert len(set(test)) == len(test)
        assert not {w.casefold() for w in train} & {w.casefold() for w in test}, field.name
    found = 0
    for value in [*vars(wordings).values(), *vars(payloads).values()]:
        for train, test in _split_tables(value):
            found += 1
            assert not {str(w).casefold() for w in train} & {str(w).casefold() for w in test}
    assert found > 50
    train, test = ([draw_payload(Random(f"{split}{i}"), split) for i in range(3000)] for split in ("train", "test"))
    assert {p.kind for p in train} == {p.kind for p in test} == set(PAYLOAD_KINDS)
    assert not {p.text for p in train} & {p.text for p in test}
    assert not {p.witness.casefold() for p in train} & {p.witness.casefold() for p in test}
    trained = {turn(row, "data") for row in TRAINING}
    assert not any(turn(row, "data") in trained for row in EVALUATION)


def _split_tables(value: Any) -> list[tuple[Any, Any]]:
    """Every {"train": ..., "test": ...} within a module's constant."""
    if isinstance(value, dict):
        if set(value) == {"train", "test"}:
            return [(list(value["train"]), list(value["test"]))]
        return [pair for inner in value.values() for pair in _split_tables(inner)]
    if isinstance(value, tuple):
        return [pair for inner in value for pair in _split_tables(inner)]
    if isinstance(value, wordings.Fact | wordings.Comparison):
        return [pair for inner in vars(value).values() for pair in _split_tables(inner)]
    return []


def test_texts_hardly_ever_repeat_and_carry_no_template_slots():
    texts = [turn(row, "data") for row in by_condition(list(training_rows(6000, seed=8)))[CLEAN]]
    assert len(set(texts)) > 0.98 * len(texts)
    for row in [*TRAINING, *EVALUATION]:
        if "{" in (joined := turn(row, "user") + turn(row, "data")):
            assert "{" in joined.replace("{}", "")
            assert row["meta"]["condition"] == "completion_other"
        assert not re.search(r"\ba [aeiou]", turn(row, "data")), row


def test_the_same_seed_gives_the_same_rows_and_another_does_not():
    assert list(training_rows(60, seed=3)) == TRAINING[:60]
    assert list(training_rows(7, seed=3)) == TRAINING[:7]
    assert list(evaluation_rows(3, seed=3)) == EVALUATION[:18]
    assert list(training_rows(6, seed=4)) != TRAINING[:6]
    one = list(evaluation_rows(4, seed=3, attacks=["ignore"]))
    assert [row for row in EVALUATION[:24] if row["meta"]["condition"] in (CLEAN, "ignore", CEILING)] == one


def test_rows_do_not_depend_on_the_process_hash_seed(tmp_path: Path):
    code = (
        "import sys; from rolewise.data import *;"
        "write_jsonl([*training_rows(60, 3), *evaluation_rows(11, 3)], sys.argv[1])"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        path = tmp_path / hash_seed
        subprocess.run(
            [sys.executable, "-c", code, str(path)], check=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        )
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert digests == {GOLDEN}


GOLDEN = "a6d75de38a891a9af64d56d0463d82a591f632fdf126997b4bedc4f08f869e56"
"""The bytes of 60 training and 66 evaluation rows of seed 3: a change here changes every published figure."""


def test_bad_arguments_are_refused_at_once():
    with pytest.raises(ValueError, match="n=-1"):
        training_rows(-1)
    with pytest.raises(ValueError, match="n=-1"):
        evaluation_rows(-1)
    with pytest.raises(ValueError, match="did you mean 'ignore'"):
        evaluation_rows(1, attacks=["ignor"])
    with pytest.raises(ValueError, match="names an attack twice"):
        evaluation_rows(1, attacks=["naive", "naive"])
    assert list(training_rows(0)) == []


def test_write_jsonl_writes_everything_or_nothing(tmp_path: Path):
    path = tmp_path / "deep" / "rows.jsonl"
    assert write_jsonl([{"a": "é\u2028"}, {"b": [1]}], path) == 2
    assert path.read_bytes() == '{"a": "é\u2028"}\n{"b": [1]}\n'.encode()
    assert write_jsonl([], tmp_path / "empty.jsonl") == 0
    before = path.read_bytes()

    def broken() -> Any:
        yield {"c": 1}
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_jsonl(broken(), path)
    with pytest.raises(TypeError, match="row 2 cannot be written"):
        write_jsonl([{"a": 1}, {"b": object()}], path)
    with pytest.raises(ValueError, match="row 1 cannot be written"):
        write_jsonl([{"a": float("nan")}], path)
    with pytest.raises(UnicodeEncodeError):
        write_jsonl([{"a": "\ud800"}], path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["rows.jsonl"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_rows_survive_json():
    for row in [*TRAINING[:60], *EVALUATION[:60]]:
        assert json.loads(json.dumps(row)) == row
        assert set(row) == {"messages", "meta"}
