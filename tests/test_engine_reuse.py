"""What was computed before is found again by ids, roles and scale, and by nothing less."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rolewise.engine import rows, store
from rolewise.engine.continuous import ContinuousEngine
from rolewise.modeling import SegmentedCausalLM

from .engine_rows import NEW, Heard, Prompt, alone, answers, asked, prompt_of


def test_the_next_turn_begins_where_the_last_one_ended(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(1)
    engine, output = ContinuousEngine(llama, tokenizer), llama.role_output
    prompt = prompt_of(rng, 70)
    (answer,) = answers(engine, [prompt], max_new_tokens=60)
    turn = prompt_of(rng, 9, ([*prompt[0], *answer], [*prompt[1], *[output] * len(answer)]))
    row = engine.row(asked(turn))
    engine.submit(row)
    before, heard = engine.reader.computed_tokens, Heard()
    heard.run(engine)
    assert len(answer) == 60
    assert row.cached_tokens == (70 + 60 - 1) // store.BLOCK * store.BLOCK
    assert engine.reader.computed_tokens - before == len(turn[0]) - row.cached_tokens + NEW - 1
    assert heard.tokens[row] == alone(llama, turn, engine.reader.stops)


def test_what_was_computed_is_found_by_ids_and_roles_and_scale(
    llama: SegmentedCausalLM, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ids as a user's and as data: a store that is keyed on ids alone answers one with the other's past."""
    ids, _ = prompt_of(random.Random(6), 80)
    asked_for: list[tuple[Prompt, float]] = [
        ((ids, [0] * 10 + [role] * 69 + [3]), scale) for role in (1, 2) for scale in (1.0, 0.0, 0.5)
    ]

    def own(prompt: Prompt, scale: float) -> list[int]:
        llama.segment_scale = scale
        try:
            return alone(llama, prompt, [])
        finally:
            llama.segment_scale = 1.0

    expected = [own(*one) for one in asked_for]
    assert len({tuple(one) for one in expected}) == 5, "at scale 0 the two prompts are one, and else all differ"

    def one_after_the_other() -> list[list[int]]:
        engine = ContinuousEngine(llama, tokenizer)
        engine.reader.stops = []
        return [answers(engine, [prompt], scale)[0] for prompt, scale in asked_for * 2][-6:]

    def together() -> list[list[int]]:
        engine, heard = ContinuousEngine(llama, tokenizer), Heard()
        engine.reader.stops = []
        found = [engine.row(asked(prompt), scale) for prompt, scale in asked_for]
        for row in found:
            engine.submit(row)
        heard.run(engine)
        return [heard.tokens[row] for row in found]

    assert one_after_the_other() == together() == expected
    keys = store.block_keys
    with monkeypatch.context() as broken:
        broken.setattr(rows, "block_keys", lambda ids, segments: keys(ids, [0] * len(ids)))
        assert one_after_the_other() != expected, "this test cannot fail"
    with monkeypatch.context() as broken:
        find, put = store.PrefixStore.find, store.PrefixStore.put
        broken.setattr(store.PrefixStore, "find", lambda self, scale, *rest: find(self, 1.0, *rest))
        broken.setattr(store.PrefixStore, "put", lambda self, scale, *rest: put(self, 1.0, *rest))
        assert one_after_the_other() != expected, "this test cannot fail"
    assert llama.segment_scale == 1.0


@pytest.mark.parametrize(("length", "seed"), [(20, 2), (64, 5), (80, 1)])
def test_equal_text_in_other_roles_or_scales_is_no_twin(
    length: int, seed: int, llama: SegmentedCausalLM, tokenizer: Any
) -> None:
    """Those that wait for room while the first is read, and are equal to it but for roles or scale."""
    ids, _ = prompt_of(random.Random(seed), length)
    prompts = [(ids, [0] * (length - 10) + [role] * 9 + [3]) for role in (1, 2)]
    expected = [alone(llama, prompt, []) for prompt in prompts]
    assert expected[0] != expected[1]
    engine, heard = ContinuousEngine(llama, tokenizer, kv_tokens=2 * length + 2 * NEW), Heard()
    engine.reader.stops = []
    asked_for = [(prompts[0], 1.0), (prompts[0], 0.0), (prompts[1], 1.0), (prompts[1], 0.0), (prompts[0], 1.0)]
    for first in range(len(asked_for)):
        mine = [engine.row(asked(prompt), scale) for prompt, scale in asked_for[first:] + asked_for[:first]]
        for row in mine:
            engine.submit(row)
        heard.run(engine)
        bare = {tuple(heard.tokens[row]) for row in mine if row.scale == 0.0}
        assert len(bare) == 1
        for row in mine:
            if row.scale == 1.0:
                assert heard.tokens[row] == expected[row.prompt.segment_ids[-2] - 1]
        assert bare != {tuple(expected[0])}


@pytest.mark.parametrize("cache_tokens", [0, 1000])
def test_several_answers_to_one_prompt_read_it_once(
    cache_tokens: int, llama: SegmentedCausalLM, tokenizer: Any
) -> None:
    prompt = prompt_of(random.Random(3), 90)
    engine, heard = ContinuousEngine(llama, tokenizer, cache_tokens=cache_tokens), Heard()
    mine = [engine.row(asked(prompt, temperature=1.0, seed=seed)) for seed in range(4)]
    for row in mine:
        engine.submit(row)
    heard.run(engine)
    assert [row.cached_tokens for row in mine] == [0, 90, 90, 90]
    assert engine.reader.computed_tokens <= 90 + 4 * NEW
    fresh = ContinuousEngine(llama, tokenizer, cache_tokens=0)
    for seed, row in enumerate(mine):
        assert heard.tokens[row] == answers(fresh, [prompt], temperature=1.0, seed=seed)[0]
    assert len({tuple(heard.tokens[row]) for row in mine}) == 4


def test_of_many_that_begin_alike_one_goes_ahead(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(4)
    shared = prompt_of(rng, 128)
    prompts = [prompt_of(rng, 5, shared) for _ in range(6)]
    engine = ContinuousEngine(llama, tokenizer)
    got = answers(engine, prompts, max_new_tokens=1)
    assert engine.reader.computed_tokens <= 133 + 5 * 8
    assert got == [alone(llama, prompt, engine.reader.stops, 1) for prompt in prompts]
