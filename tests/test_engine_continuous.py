"""Continuous batching: whatever comes and goes meanwhile, each answer is the one that its prompt gets alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rolewise.engine import continuous, kv, lanes, store
from rolewise.engine.batches import Engine
from rolewise.engine.continuous import ContinuousEngine
from rolewise.engine.decoding import PromptTooLongError
from rolewise.modeling import SegmentedCausalLM

from .engine_rows import NEW, Heard, alone, answers, asked, prompt_of
from .models import FAMILIES, model_with_other_memory, tiny_model


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything small, so that buffers grow, lanes split and merge, and blocks are many."""
    monkeypatch.setattr(kv, "_ROOM", 3)
    monkeypatch.setattr(lanes, "_ROOM", 3)
    monkeypatch.setattr(lanes, "_LIKE_LENGTH", 6)
    monkeypatch.setattr(store, "BLOCK", 4)
    monkeypatch.setattr(continuous, "BLOCK", 4)
    monkeypatch.setattr(continuous, "_WORTH_WAITING", 8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.usefixtures("narrow")
def test_answers_equal_generates_whatever_comes_and_goes(family: str, seed: int, tokenizer: Any) -> None:
    rng = random.Random(f"{family} {seed}")
    model = tiny_model(family, vocab=len(tokenizer))
    engine = ContinuousEngine(
        model, tokenizer, max_running=rng.randrange(2, 7), kv_tokens=rng.choice([90, 200, 10_000]),
        cache_tokens=rng.choice([0, 60, 1000]), chunk_tokens=rng.choice([5, 16, 64]),
    )  # fmt: skip
    shared = prompt_of(rng, 20)
    heard, waiting, submitted = Heard(), [], []
    for _ in range(14):
        begin = rng.choice([([], []), shared, (shared[0], [(one + 1) % 4 for one in shared[1]])])
        prompt = prompt_of(rng, rng.randrange(1, 40), begin)
        waiting += [(prompt, rng.randrange(1, 2 * NEW), rng.random() < 0.2)] * rng.choice([1, 1, 1, 2])
    while waiting or engine.busy:
        for _ in range(min(len(waiting), rng.choice([0, 0, 1, 3]))):
            prompt, new, leaves = waiting.pop()
            row = engine.row(asked(prompt, max_new_tokens=new))
            engine.submit(row)
            submitted.append((row, prompt, new, leaves))
        for row, _, _, leaves in submitted:
            if leaves and rng.random() < 0.2:
                row.cancelled = True
        heard.step(engine)
        assert engine.running <= engine.max_running
        assert engine.store.tokens <= engine.store.room
    for row, prompt, new, _ in submitted:
        expected = alone(model, prompt, engine.reader.stops, new)
        if row in heard.ended:
            assert heard.tokens[row] == expected
        else:
            assert row.cancelled
            assert heard.tokens.get(row, []) == expected[: len(heard.tokens.get(row, []))]
    assert sum(row in heard.ended for row, *_ in submitted) > len(submitted) // 2
    assert (engine.running, engine.kv_tokens, engine.held_tokens) == (0, 0, 0)


def test_the_batch_engine_agrees(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(5)
    prompts = [prompt_of(rng, rng.randrange(1, 60)) for _ in range(6)]
    options = {"temperature": 0.9, "top_p": 0.8, "seed": 3, "presence_penalty": 0.5}
    batch = dict(Engine(llama, tokenizer).answers([asked(prompt, **options) for prompt in prompts]))
    assert answers(ContinuousEngine(llama, tokenizer), prompts, **options) == [batch[i].token_ids for i in range(6)]


# --- room -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("narrow")
def test_rows_never_take_more_room_than_there_is(
    llama: SegmentedCausalLM, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "_AHEAD", 0)
    rng = random.Random(6)
    prompts = [prompt_of(rng, rng.choice([3, 30, 55])) for _ in range(12)]
    engine, heard = ContinuousEngine(llama, tokenizer, kv_tokens=120, max_running=8), Heard()
    mine = [engine.row(asked(prompt, max_new_tokens=40)) for prompt in prompts]
    for row in mine:
        engine.submit(row)
    most, sent_back = 0, 0
    while engine.busy:
        heard.step(engine)
        assert engine.kv_tokens <= 120
        assert engine.held_tokens <= 4 * 120 + 8 * 40, "padding and spare room have outgrown what they are for"
        most = max(most, engine.running)
        sent_back += sum(row.admitted is not None for row in engine._waiting)
    assert most > 1
    assert sent_back, "no row was ever sent back, so this test shows nothing"
    assert [heard.tokens[row] for row in mine] == [alone(llama, one, engine.reader.stops, 40) for one in prompts]
    assert {row.cached_tokens for row in mine} <= set(range(0, 60, 4))


def test_rows_of_unlike_lengths_do_not_pad_each_other(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(7)
    prompts = [prompt_of(rng, length) for length in (450, *[10] * 7)]
    engine, heard = ContinuousEngine(llama, tokenizer, chunk_tokens=512), Heard()
    mine = [engine.row(asked(prompt)) for prompt in prompts]
    for row in mine:
        engine.submit(row)
    most = 0
    while engine.busy:
        heard.step(engine)
        most = max(most, engine.held_tokens)
    assert most < 450 * 1.5 + 8 * 100, "eight rows of 450 would be 3600"
    assert [heard.tokens[row] for row in mine] == [alone(llama, one, engine.reader.stops) for one in prompts]


def test_a_long_prompt_does_not_stop_those_that_run(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(8)
    engine, heard = ContinuousEngine(llama, tokenizer, chunk_tokens=32), Heard()
    short = engine.row(asked(prompt_of(rng, 5), max_new_tokens=30))
    engine.submit(short)
    heard.step(engine)
    long = engine.row(asked(prompt_of(rng, 320)))
    engine.submit(long)
    while not heard.tokens.get(long):
        before, computed = len(heard.tokens[short]), engine.reader.computed_tokens
        heard.step(engine)
        assert len(heard.tokens[short]) == before + 1
        assert engine.reader.computed_tokens - computed <= 32 + 2
    assert len(heard.tokens[short]) > 10
    heard.run(engine)
    assert heard.tokens[long] == alone(llama, (list(long.prompt.input_ids), list(long.prompt.segment_ids)), [])[:NEW]


def test_what_does_not_fit_or_is_out_of_range_is_refused(tokenizer: Any) -> None:
    engine = ContinuousEngine(tiny_model("gpt2", vocab=len(tokenizer)), tokenizer, kv_tokens=600)
    with pytest.raises(PromptTooLongError, match="the prompt has 512 tokens, and the model has 512 positions"):
        engine.row(asked(([5] * 512, [0] * 512)))
    with pytest.raises(ValueError, match="the prompt has 100 tokens, and the engine has room for 64"):
        ContinuousEngine(engine.model, tokenizer, kv_tokens=64).row(asked(([5] * 100, [0] * 100)))
    with pytest.raises(ValueError, match=r"input_ids\[1\] is 9999, outside of 0"):
        engine.row(asked(([5, 9999], [0, 0])))
    with pytest.raises(ValueError, match=r"segment_ids\[0\] is -1, outside of 0..3"):
        engine.row(asked(([5, 5], [-1, 0])))
    with pytest.raises(ValueError, match="scale=nan"):
        engine.row(asked(([5], [0])), float("nan"))
    for options in ({"max_running": 0}, {"kv_tokens": 0}, {"cache_tokens": -1}, {"chunk_tokens": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            ContinuousEngine(engine.model, tokenizer, **options)
    engine.reader.stops = []
    heard, row = Heard(), engine.row(asked(([5] * 509, [0] * 509)))
    engine.submit(row)
    heard.run(engine)
    assert (len(heard.tokens[row]), heard.ended[row]) == (3, "model_length")


# --- other models, and whoever leaves -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mamba", "recurrent_gemma"])
def test_a_model_with_another_kind_of_memory_runs_row_by_row(kind: str, tokenizer: Any) -> None:
    model = model_with_other_memory(kind, len(tokenizer))
    rng = random.Random(13)
    prompts = [prompt_of(rng, length) for length in (40, 3, 17, 17)]
    engine = ContinuousEngine(model, tokenizer, chunk_tokens=8)
    assert engine.max_running == 1
    assert answers(engine, [*prompts, prompts[0]]) == [
        alone(model, prompt, engine.reader.stops) for prompt in [*prompts, prompts[0]]
    ]
    assert engine.store.tokens == 0


def test_cancelled_rows_leave_at_the_next_step(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(15)
    engine, heard = ContinuousEngine(llama, tokenizer, max_running=2, chunk_tokens=8), Heard()
    runs, reads, waits = (engine.row(asked(prompt_of(rng, length))) for length in (5, 100, 5))
    for row in (runs, reads, waits):
        engine.submit(row)
    heard.step(engine)
    assert (engine.running, len(engine._waiting)) == (2, 1)
    for row in (runs, reads, waits):
        row.cancelled = True
    heard.step(engine)
    assert not engine.busy
    assert (engine.kv_tokens, engine.held_tokens) == (0, 0)
    assert not heard.ended
