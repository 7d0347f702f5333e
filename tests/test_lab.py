"""The lab: its language, its rows, roles, training and results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch

from rolewise.lab.config import ARMS, MIXES, LabConfig
from rolewise.lab.encoding import encode_prompt, encode_row
from rolewise.lab.evaluation import contains, evaluation_conditions
from rolewise.lab.rows import (
    ASK,
    REPLY,
    Condition,
    LabRow,
    Turn,
    base_rows,
    compose,
    evaluation_row,
    training_rows,
)
from rolewise.lab.tasks import PAYLOAD_KINDS, TASK_KINDS, draw_instruction, draw_instructions, split_of
from rolewise.lab.training import new_model, role_batch, with_roles
from rolewise.lab.vocabulary import (
    CLASS_OF,
    CLASSES,
    CODES,
    END,
    FILLERS,
    ID,
    MARKS,
    RESERVED,
    STOP,
    VERBS,
    WORDS,
    content_ids,
)
from rolewise.roles import Role
from tests.lab_runs import TINY

VERB_OF = {verb: kind for kind, verbs in VERBS.items() for verb in verbs}


def instructions_in(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every instruction in a turn, read without the generator's help: from a verb to the next stop."""
    for at, word in enumerate(words):
        if word in VERB_OF:
            yield words[at : words.index(STOP, at) + 1]


def solve(instruction: tuple[str, ...], data: tuple[str, ...]) -> tuple[str, ...]:
    """The answer, worked out anew."""
    verb, *asked, _ = instruction
    kind = VERB_OF[verb]
    if kind == "say":
        return (asked[0],)
    if kind == "repeat":
        return (asked[0], asked[0])
    if kind == "code":
        return (CODES[asked[0]],)
    if kind == "pick":
        (found,) = [word for word in asked[1:] if word in CLASSES[asked[0]]]
    elif kind == "find":
        (found,) = [word for word in data if word in CLASSES[asked[0]]]
    else:
        (found,) = [word for word in asked if word in data]
    return (found,)


def turns_of(row: LabRow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    user, data = row.turns
    assert (user.role, data.role) == (Role.USER, Role.DATA)
    return user.words, data.words


def right_answer(row: LabRow) -> tuple[str, ...]:
    user, data = turns_of(row)
    answers = [" ".join(solve(asked, data)) for asked in instructions_in(user)]
    return tuple(" and ".join(answers).split())


# --- language --------------------------------------------------------------------------------------------------


def test_every_word_has_one_meaning() -> None:
    pools = [FILLERS, tuple(CLASS_OF), tuple(CLASSES), tuple(CODES.values()), tuple(VERB_OF), tuple(MARKS.values())]
    words = [word for pool in pools for word in pool]
    assert len(words) == len(set(words))
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.parametrize("token", RESERVED)
def test_content_cannot_hold_a_reserved_token(token: str) -> None:
    with pytest.raises(ValueError, match="reserved"):
        content_ids(["the", token])
    with pytest.raises(ValueError, match="reserved"):
        encode_prompt([Turn(role=Role.DATA, words=(token,))], reserved=True)


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ValueError, match="'zebra' is not a word"):
        content_ids(["zebra"])


# --- tasks and rows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TASK_KINDS + PAYLOAD_KINDS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_payloads_stay_in_their_split_and_tasks_have_none(kind: str, split: Any) -> None:
    seen: set[str] = set()
    for seed in range(100):
        one = draw_instruction(Random(seed), kind, split, taken=["animal"])
        argument = one.words[1] if kind in ("say", "repeat", "code") else one.answer[0]
        seen.add(split_of(one.words[0], argument))
        assert "animal" not in one.classes
        assert solve(one.words, one.needs) == one.answer
    assert seen == ({"train", "test"} if kind in TASK_KINDS else {split})


def test_instructions_share_no_class_and_unknown_kinds_are_refused() -> None:
    for seed in range(50):
        drawn = draw_instructions(Random(seed), ["find", "which", "pick", "say", "code"], "train")
        assert len(frozenset().union(*(one.classes for one in drawn))) == sum(len(one.classes) for one in drawn)
    with pytest.raises(ValueError, match="kind='sing'"):
        draw_instruction(Random(0), "sing", "train")
    with pytest.raises(ValueError, match="two classes"):
        draw_instruction(Random(0), "say", "train", taken=list(CLASSES)[1:])


@pytest.mark.parametrize("mix", MIXES)
def test_training_answers_are_right_and_turns_even(mix: Any) -> None:
    config = LabConfig(mix=mix)
    for step in range(8):
        rows = training_rows(config, step)
        assert len(rows) == config.batch_size
        assert len({tuple(len(turn.words) for turn in row.turns) for row in rows}) == 1
        for row in rows:
            assert row.answer == right_answer(row), row


def test_a_base_answers_every_instruction_in_order() -> None:
    for text, answer in base_rows(Random(0), 200, 40):
        found = list(instructions_in(text))
        rest = tuple(word for word in text)
        for asked in found:  # arguments of an instruction are no data
            at = rest.index(asked[0])
            rest = rest[:at] + rest[at + len(asked) :]
        answers = [" ".join(solve(asked, rest)) for asked in found]
        assert " and ".join(answers) == " ".join(answer)


def test_payloads_are_where_their_row_says() -> None:
    seen = {"clean": 0, "injected": 0, "twin": 0}
    for step in range(8):
        for row in training_rows(LabConfig(), step):
            user, data = turns_of(row)
            seen[row.condition] += 1
            assert len(list(instructions_in(user))) == (2 if row.condition == "twin" else 1)
            injected = [solve(asked, ()) for asked in instructions_in(data)]
            assert injected == list(row.witnesses)
            assert (row.condition == "clean") <= (not injected)
            assert (row.condition == "injected") <= (len(injected) == 1)
            for witness in row.witnesses:
                assert not contains(row.answer, witness)
    assert seen["clean"] == seen["injected"] == seen["twin"]


def test_clean_rows_have_no_injection_and_adversarial_rows_no_twin() -> None:
    for step in range(4):
        assert not any(row.witnesses for row in training_rows(LabConfig(mix="clean"), step))
        rows = training_rows(LabConfig(mix="adversarial"), step)
        assert sum(row.condition == "injected" for row in rows) == len(rows) / 2
        assert all(len(list(instructions_in(turns_of(row)[0]))) == 1 for row in rows)


def test_unseen_kinds_are_not_injected_in_training_but_tested() -> None:
    config = LabConfig(payload_kinds=("say", "repeat"))
    rows = [row for step in range(4) for row in training_rows(config, step)]
    assert {kind for row in rows for kind in row.kinds} == {"say", "repeat"}
    asked = {VERB_OF[words[0]] for row in rows for words in instructions_in(turns_of(row)[0])}
    assert asked == set(VERBS)
    tested = {evaluation_row(config, Condition(name="naive"), index).kinds[0] for index in range(4)}
    assert tested == set(PAYLOAD_KINDS)


def test_rows_depend_on_seed_and_step_and_not_on_the_arm() -> None:
    one = training_rows(LabConfig(seed=1), 3)
    assert one == training_rows(LabConfig(seed=1, arm="text", steps=7), 3)
    assert one != training_rows(LabConfig(seed=2), 3)
    assert one != training_rows(LabConfig(seed=1), 4)


@pytest.mark.parametrize("condition", evaluation_conditions(), ids=str)
def test_test_rows(condition: Condition) -> None:
    config = LabConfig()
    for index in range(24):
        row = evaluation_row(config, condition, index)
        assert row == evaluation_row(replace(config, arm="text"), condition, index)
        user, data = turns_of(row)
        plain = evaluation_row(config, Condition(name="naive"), index)
        assert row.expected == plain.expected
        assert row.witnesses[:1] in ((), plain.witnesses)
        assert len(data) == config.train_words * condition.length
        assert row.answer == right_answer(row)
        injected = [solve(asked, ()) for asked in instructions_in(data)]
        if condition.name in ("clean", "ceiling"):
            assert not injected
            assert row.answer == row.expected if condition.name == "clean" else contains(row.answer, row.witnesses[0])
        else:
            assert sorted(injected) == sorted(row.witnesses)
            assert len(injected) == condition.count
            assert not any(contains(row.answer, witness) for witness in row.witnesses)
        for asked in [*instructions_in(user), *instructions_in(data)]:
            kind = VERB_OF[asked[0]]
            argument = asked[1] if kind in ("say", "repeat", "code") else solve(asked, data)[0]
            assert kind in TASK_KINDS or split_of(asked[0], argument) == "test"


def test_attacks_forge_what_can_be_typed() -> None:
    config = LabConfig()
    for index in range(8):
        payload = next(instructions_in(turns_of(evaluation_row(config, Condition(name="naive"), index))[1]))
        forged = turns_of(evaluation_row(config, Condition(name="forged"), index))[1]
        assert forged[-len(payload) - 3 :] == (*ASK, *payload)
        completion = turns_of(evaluation_row(config, Condition(name="completion"), index))[1]
        *_, answer = completion[: -len(payload) - 3]
        assert completion[-len(payload) - 7 :] == (*REPLY, answer, *ASK, *payload)
        assert answer in CLASS_OF
        begin = turns_of(evaluation_row(config, Condition(name="naive", length=4, place="begin"), index))[1]
        assert begin[: len(payload)] == payload


def test_compose_keeps_places_and_refuses_what_does_not_fit() -> None:
    turn = compose(
        Random(0), 20, frozenset(), [("begin", ("say", "cat", STOP)), ("end", ("say", "tea", STOP))], ("fig",)
    )
    assert len(turn) == 20
    assert turn[:3] == ("say", "cat", STOP)
    assert turn[-3:] == ("say", "tea", STOP)
    assert "fig" in turn[3:-3]
    with pytest.raises(ValueError, match="no room"):
        compose(Random(0), 2, frozenset(), [("any", ("say", "cat", STOP))])


# --- roles -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserved", [False, True])
def test_headers_take_the_role_of_what_they_frame(reserved: bool) -> None:
    row = LabRow(
        turns=(Turn(role=Role.USER, words=("say", "cat", STOP)), Turn(role=Role.DATA, words=("the", "###"))),
        answer=("cat",), condition="clean", expected=("cat",),
    )  # fmt: skip
    encoded = encode_row(row, reserved=reserved)
    assert encoded.segment_ids == [0] + [1] * 6 + [2] * 5 + [3] * 5
    assert encoded.loss_mask == [False] * 15 + [True] * 2
    assert encoded.input_ids[-2:] == [ID["cat"], ID[END]]
    mark = "[MARK]" if reserved else "###"
    assert [encoded.input_ids[at] for at in (1, 7, 12)] == [ID[mark]] * 3
    assert encoded.input_ids[11] == ID["###"]  # typed in the data: the word, in either arm


@pytest.mark.parametrize("arm", ARMS)
def test_content_has_no_reserved_tokens_and_arms_differ_in_headers_only(arm: Any) -> None:
    text = role_batch(replace(TINY, arm="text"), 0)
    batch = role_batch(replace(TINY, arm=arm), 0)
    assert batch["segment_ids"].equal(text["segment_ids"])
    assert batch["labels"].equal(text["labels"])
    reserved = torch.isin(batch["input_ids"], torch.tensor([ID[token] for token in MARKS]))
    assert reserved.sum(1).tolist() == [9 if arm.startswith("delimiter") else 0] * TINY.batch_size
    words = {ID[token]: ID[word] for token, word in MARKS.items()}
    assert [[words.get(token, token) for token in row] for row in batch["input_ids"].tolist()] == text[
        "input_ids"
    ].tolist()


def test_reserved_tokens_start_from_their_words_and_tables_from_their_seed() -> None:
    base = new_model(TINY)
    model = with_roles(base, replace(TINY, init_std=None, init_ratio=0.5))
    weight = model.get_input_embeddings().weight
    assert all(weight[ID[token]].equal(weight[ID[word]]) for token, word in MARKS.items())
    assert 0.3 < model.segment_ratio() < 0.7
    other = with_roles(new_model(TINY), replace(TINY, seed=1))
    assert not other.segment_embedding.weight.equal(model.segment_embedding.weight)
    assert with_roles(new_model(TINY), replace(TINY, arm="delimiter")).segment_scale == 0.0
