"""The engine's answers equal each row's own, computed alone without a cache; shared prefixes are computed once."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import torch

from rolewise.engine import batches as engine_module
from rolewise.engine.batches import Engine
from rolewise.engine.decoding import Request
from rolewise.engine.prefixes import clusters, passes
from rolewise.evaluation.judging import settled
from rolewise.modeling import SegmentedCausalLM
from rolewise.roles import Role
from tests.models import FAMILIES, model_with_other_memory, tiny_model
from tests.training_model import tiny_tokenizer

NEW = 10


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


def rows_that_share(seed: int = 0, samples: int = 4) -> list[tuple[list[int], list[int]]]:
    """Rows in families with a common prefix; among them twins that differ in their segments alone."""
    rng = random.Random(seed)
    rows: list[tuple[list[int], list[int]]] = []
    for _ in range(samples):
        prefix = [rng.randrange(3, 250) for _ in range(rng.randrange(4, 40))]
        roles = [rng.randrange(3) for _ in prefix]
        for _ in range(5):
            rest = [rng.randrange(3, 250) for _ in range(rng.randrange(1, 40))]
            rows.append((prefix + rest, roles + [rng.randrange(4) for _ in rest]))
        rows.append((rows[-1][0], [(role + 1) % 3 for role in rows[-1][1]]))
        rows.append((prefix, roles))
        rows.append((prefix, roles))
    return rows


def alone(model: SegmentedCausalLM, ids: list[int], segments: list[int], stops: list[int]) -> list[int]:
    """The greedy answer to one row, without a cache: everything computed again for each token."""
    return alone_with_chances(model, ids, segments, stops)[0]


def alone_with_chances(
    model: SegmentedCausalLM, ids: list[int], segments: list[int], stops: list[int]
) -> tuple[list[int], list[float]]:
    found: list[int] = []
    chances: list[float] = []
    output = model.role_scheme.row(Role.OUTPUT)
    while len(found) < NEW:
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([[*ids, *found]]),
                segment_ids=torch.tensor([[*segments, *[output] * len(found)]]),
                use_cache=False,
            ).logits
        token = int(logits[0, -1].argmax())
        chances.append(float(logits[0, -1].log_softmax(-1)[token]))
        if token in stops:
            break
        found.append(token)
    return found, chances


def requests(rows: list[tuple[list[int], list[int]]], **options: Any) -> list[Request]:
    return [Request(input_ids=ids, segment_ids=segments, max_new_tokens=NEW, **options) for ids, segments in rows]


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_equal_each_rows_own_without_a_cache(family: str, tokenizer: Any) -> None:
    model = tiny_model(family, vocab=len(tokenizer))
    rows = rows_that_share()
    engine = Engine(model, tokenizer, batch_size=7)
    got = dict(engine.answers(requests(rows, logprobs=0)))
    assert sorted(got) == list(range(len(rows)))
    for index, row in enumerate(rows):
        tokens, chances = alone_with_chances(model, *row, engine._stops)
        assert got[index].token_ids == tokens
        assert [value for _, value, _ in got[index].logprobs or []] == pytest.approx(chances, abs=1e-4)
    assert len({tuple(one.token_ids) for one in got.values()}) > len(rows) // 3


def test_a_prefix_is_shared_only_where_the_segments_agree(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ids in two roles: a cache that is keyed on ids alone answers one of them with the other's prefix."""
    model = tiny_model("llama", vocab=len(tokenizer))
    ids = list(range(10, 40))
    rows = [(ids, [0] * 10 + [role] * 19 + [3]) for role in (1, 2)]
    engine = Engine(model, tokenizer)
    expected = [alone(model, *row, engine._stops) for row in rows]
    assert expected[0] != expected[1]

    def tokens() -> list[list[int]]:
        got = dict(Engine(model, tokenizer).answers(requests(rows)))
        return [got[0].token_ids, got[1].token_ids]

    assert tokens() == expected
    by_ids = lambda given: clusters([(ids, [0] * len(ids)) for ids, _ in given])  # noqa: E731
    monkeypatch.setattr(engine_module, "clusters", by_ids)
    assert tokens() != expected, "this test cannot fail"


def test_shared_prefixes_are_computed_once(tokenizer: Any) -> None:
    model = tiny_model("llama", vocab=len(tokenizer))
    prefix = list(range(10, 90))
    rows = [([*prefix, 100 + i, 150 + i], [1] * 82) for i in range(20)]
    counts = {}
    for share in (True, False):
        engine = Engine(model, tokenizer, share_prefixes=share)
        answers = dict(engine.answers(requests(rows)))
        counts[share] = engine.computed_tokens - sum(len(answers[index].token_ids) for index in answers)
    assert counts[True] < 80 + 20 * 2 + 20 * NEW
    assert counts[False] > 80 * 20


def test_the_plan_is_the_cheapest_cut() -> None:
    a, b = list(range(50)), list(range(100, 150))
    rows = [[*a, 1], [*b, 2], [*a, 3, 4], [*b, 5], [*a, 6], [7]]
    plan = clusters([(ids, [0] * len(ids)) for ids in rows])
    assert {cluster.rows: cluster.length for cluster in plan} == {(0, 2, 4): 50, (1, 3): 50, (5,): 0}
    same = clusters([(a, [0] * 50)] * 3)
    assert [(cluster.rows, cluster.length) for cluster in same] == [((0, 1, 2), 49)]
    assert [cluster.length for cluster in clusters([(a[:3], [0] * 3)] * 2)] == [0, 0], "too short to be worth a pass"
    assert clusters([]) == []


def test_rows_are_cut_into_passes_with_little_padding(tokenizer: Any) -> None:
    assert passes([100, 99, 10, 10, 9], 8) == [(0, 2), (2, 5)]
    assert passes([100, 99, 10], 10_000) == [(0, 3)]
    assert passes([5], 0) == [(0, 1)]
    assert passes([], 8) == []
    model = tiny_model("llama", vocab=len(tokenizer))
    rows = [([10 + i] * length, [1] * length) for i, length in enumerate((300, 290, 20, 18, 15))]
    engine = Engine(model, tokenizer)
    answers = dict(engine.answers(requests(rows)))
    assert engine.computed_tokens < 2 * 300 + 3 * 20 + 5 * NEW
    assert [answers[i].token_ids for i in range(5)] == [alone(model, *row, engine._stops) for row in rows]


def test_a_row_may_end_early_only_when_its_outcome_is_settled(tokenizer: Any) -> None:
    model = tiny_model("llama", vocab=len(tokenizer))
    rows = rows_that_share(samples=2)
    full = dict(Engine(model, tokenizer).answers(requests(rows)))
    witness = next(full[index].text[3:6] for index in sorted(full) if full[index].text[3:6].strip().isalpha())
    from rolewise.evaluation.judging import begins_with, witness_in

    short = dict(Engine(model, tokenizer).answers(requests(rows, settled=partial(settled, witness=witness))))
    assert any(one.ending == "settled" for one in short.values())
    assert any(len(short[index].token_ids) < len(full[index].token_ids) for index in full)
    for index, answer in full.items():
        assert answer.text.startswith(short[index].text.rstrip("\ufffd"))
        for judge in (witness_in, begins_with):
            assert judge(answer.text, witness) == judge(short[index].text, witness)


def test_stop_strings_are_cut_off(tokenizer: Any) -> None:
    model = tiny_model("llama", vocab=len(tokenizer))
    rows = rows_that_share(samples=1)
    full = dict(Engine(model, tokenizer).answers(requests(rows)))
    stop = full[0].text[4:6]
    assert stop
    got = dict(Engine(model, tokenizer).answers(requests(rows, stop=(stop,))))
    assert got[0].text == full[0].text.partition(stop)[0]
    assert got[0].ending == "stop"


def test_samples_depend_on_the_seed_and_not_on_the_batch(tokenizer: Any) -> None:
    model = tiny_model("llama", vocab=len(tokenizer))
    rows = rows_that_share(samples=2)

    def sample(seed: int, batch_size: int) -> list[list[int]]:
        engine = Engine(model, tokenizer, batch_size=batch_size)
        got = dict(engine.answers(requests(rows, temperature=1.0, top_p=0.9, top_k=50, seed=seed)))
        return [got[index].token_ids for index in range(len(rows))]

    assert sample(1, 4) == sample(1, 16)
    assert sample(1, 4) != sample(2, 4)


def test_top_k_of_one_is_greedy(tokenizer: Any) -> None:
    model = tiny_model("llama", vocab=len(tokenizer))
    rows = rows_that_share(samples=1)
    greedy = dict(Engine(model, tokenizer).answers(requests(rows)))
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"top_p": 1e-300}):
        got = dict(Engine(model, tokenizer).answers(requests(rows, temperature=1.0, **options)))
        assert [got[i].token_ids for i in got] == [greedy[i].token_ids for i in got]


def test_logprobs_are_those_of_the_model(tokenizer: Any) -> None:
    model = tiny_model("llama", vocab=len(tokenizer))
    ids, segments = rows_that_share(samples=1)[0]
    (_, answer), = Engine(model, tokenizer).answers(requests([(ids, segments)], logprobs=2))  # fmt: skip
    assert answer.logprobs is not None
    whole = torch.tensor([[*ids, *answer.token_ids]])
    roles = torch.tensor([[*segments, *[3] * len(answer.token_ids)]])
    with torch.no_grad():
        chances = model(input_ids=whole, segment_ids=roles).logits[0, len(ids) - 1 :].log_softmax(-1)
    for place, (token, value, likeliest) in enumerate(answer.logprobs):
        assert value == pytest.approx(float(chances[place, token]), abs=1e-4)
        assert [other for other, _ in likeliest] == chances[place].topk(2).indices.tolist()


def test_scores_of_given_answers_do_not_depend_on_the_batch(tokenizer: Any) -> None:
    model = tiny_model("llama", vocab=len(tokenizer))
    rows = [(ids, segments, [0] * (len(ids) - 2) + [1, 1]) for ids, segments in rows_that_share() if len(ids) > 3]
    got = dict(Engine(model, tokenizer, batch_size=5).logprobs(rows))
    for index, (ids, segments, _) in enumerate(rows):
        with torch.no_grad():
            chances = model(input_ids=torch.tensor([ids]), segment_ids=torch.tensor([segments])).logits[0]
        taken = chances.log_softmax(-1)[[-3, -2], ids[-2:]]
        assert got[index] == pytest.approx(float(taken.mean()), abs=1e-4)


@pytest.mark.parametrize("kind", ["mamba", "recurrent_gemma"])
def test_a_model_with_another_kind_of_memory_runs_row_by_row(kind: str, tokenizer: Any) -> None:
    model = model_with_other_memory(kind, len(tokenizer))
    rows = rows_that_share(samples=1)
    engine = Engine(model, tokenizer, batch_size=8, workers=3)
    assert engine.batch_size == 1
    got = dict(engine.answers(requests(rows)))
    assert [got[i].token_ids for i in range(len(rows))] == [alone(model, *row, engine._stops) for row in rows]
    assert len({tuple(one.token_ids) for one in got.values()}) > 1


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_answers_do_not_depend_on_how_many_batches_run_side_by_side(workers: int, tokenizer: Any) -> None:
    model = tiny_model("llama", vocab=len(tokenizer))
    rows = rows_that_share()
    engine = Engine(model, tokenizer, batch_size=3, workers=workers)
    got = dict(engine.answers(requests(rows)))
    assert [got[i].token_ids for i in range(len(rows))] == [alone(model, *row, engine._stops) for row in rows]
    with pytest.raises(ValueError, match="workers=0"):
        Engine(model, tokenizer, workers=0)


def test_what_does_not_fit_is_refused_before_anything_runs(tokenizer: Any) -> None:
    model = tiny_model("gpt2", vocab=len(tokenizer))
    engine = Engine(model, tokenizer)
    with pytest.raises(ValueError, match="the prompt has 512 tokens, and the model has 512 positions"):
        engine.answers(requests([([5], [0]), ([5] * 512, [0] * 512)]))
    (_, answer), = engine.answers(requests([([5] * 509, [0] * 509)]))  # fmt: skip
    assert answer.ending in ("model_length", "stop")
    assert len(answer.token_ids) <= 3
    with pytest.raises(ValueError, match="2 tokens and 1 segment ids"):
        Request(input_ids=[1, 2], segment_ids=[0])
    with pytest.raises(ValueError, match="top_p=0"):
        Request(input_ids=[1], segment_ids=[0], top_p=0)
    with pytest.raises(ValueError, match="batch_size=0"):
        Engine(model, tokenizer, batch_size=0)
