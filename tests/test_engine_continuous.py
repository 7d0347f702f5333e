"""Continuous batching: whatever comes and goes meanwhile, each answer is the one that its prompt gets alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import rolewise as rw
from rolewise.engine import continuous, kv, lanes, rows, store
from rolewise.engine.batches import Engine
from rolewise.engine.continuous import ContinuousEngine
from rolewise.engine.decoding import PromptTooLongError, Request
from rolewise.engine.rows import Row
from rolewise.modeling import SegmentedCausalLM
from tests.models import FAMILIES, model_with_other_memory, tiny_model
from tests.training_model import tiny_tokenizer

NEW = 12
Prompt = tuple[list[int], list[int]]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def llama(tokenizer: Any) -> SegmentedCausalLM:
    return tiny_model("llama", vocab=len(tokenizer))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything small, so that buffers grow, lanes split and merge, and blocks are many."""
    monkeypatch.setattr(kv, "_ROOM", 3)
    monkeypatch.setattr(lanes, "_ROOM", 3)
    monkeypatch.setattr(lanes, "_LIKE_LENGTH", 6)
    monkeypatch.setattr(store, "BLOCK", 4)
    monkeypatch.setattr(continuous, "BLOCK", 4)
    monkeypatch.setattr(continuous, "_WORTH_WAITING", 8)


@dataclass
class Heard:
    """What an engine told of each row."""

    tokens: dict[Row, list[int]] = field(default_factory=dict)
    ended: dict[Row, Any] = field(default_factory=dict)
    logprobs: dict[Row, list[Any]] = field(default_factory=dict)

    def step(self, engine: ContinuousEngine) -> None:
        for written in engine.step():
            for one in written:
                assert one.row not in self.ended, "a row that had ended was written on"
                self.tokens.setdefault(one.row, []).extend(one.token_ids)
                self.logprobs.setdefault(one.row, []).extend(one.logprobs or [])
                assert one.logprobs is None or len(one.logprobs) == len(one.token_ids)
                if one.last:
                    self.ended[one.row] = one.error or one.ending

    def run(self, engine: ContinuousEngine) -> None:
        for _ in range(10_000):
            if not engine.busy:
                return
            self.step(engine)
        raise AssertionError("the engine goes on for ever")


def prompt_of(rng: random.Random, length: int, begin: Prompt = ([], [])) -> Prompt:
    ids, segments = begin
    return (
        [*ids, *(rng.randrange(3, 250) for _ in range(length))],
        [*segments, *(rng.randrange(4) for _ in range(length))],
    )


def asked(prompt: Prompt, **options: Any) -> Request:
    options = {"max_new_tokens": NEW, **options}
    return Request(input_ids=prompt[0], segment_ids=prompt[1], **options)


def answers(
    engine: ContinuousEngine, prompts: list[Prompt], scale: float | None = None, **options: Any
) -> list[list[int]]:
    heard = Heard()
    asked_rows = [engine.row(asked(prompt, **options), scale) for prompt in prompts]
    for row in asked_rows:
        engine.submit(row)
    heard.run(engine)
    return [heard.tokens[row] for row in asked_rows]


def alone(model: SegmentedCausalLM, prompt: Prompt, stops: list[int], new: int = NEW) -> list[int]:
    """What `model.generate` writes, the token that ends the turn left out."""
    ids, segments = (torch.tensor([column]) for column in prompt)
    output = model.generate(
        input_ids=ids, segment_ids=segments, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new,
        eos_token_id=stops, pad_token_id=0,
    )[0, ids.shape[1] :].tolist()  # fmt: skip
    return output[:-1] if output and output[-1] in stops else output


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


# --- what was computed before ---------------------------------------------------------------------------------


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


# --- how tokens are chosen -------------------------------------------------------------------------------------


def test_samples_depend_on_the_seed_and_not_on_the_company(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(9)
    prompts = [prompt_of(rng, rng.randrange(1, 50)) for _ in range(5)]
    options = {"temperature": 1.0, "top_p": 0.9, "top_k": 50}

    def by(engine: ContinuousEngine, seed: int) -> list[list[int]]:
        return answers(engine, prompts, seed=seed, **options)

    together = by(ContinuousEngine(llama, tokenizer), 1)
    assert by(ContinuousEngine(llama, tokenizer, max_running=1, cache_tokens=0), 1) == together
    assert by(ContinuousEngine(llama, tokenizer), 2) != together


@pytest.mark.parametrize("make", [ContinuousEngine, Engine])
def test_penalties_are_openais(make: Callable[..., Any], llama: SegmentedCausalLM, tokenizer: Any) -> None:
    """logit - count * frequency - (count > 0) * presence, of the tokens written so far, none of the prompt's."""
    prompt, new = prompt_of(random.Random(19), 12), 24
    engine = make(llama, tokenizer)

    def got(**penalties: float) -> list[int]:
        request = asked(prompt, max_new_tokens=new, **penalties)
        if isinstance(engine, Engine):
            return dict(engine.answers([request]))[0].token_ids
        return answers(engine, [prompt], max_new_tokens=new, **penalties)[0]

    def expected(frequency: float, presence: float) -> list[int]:
        written: list[int] = []
        while len(written) < new:
            with torch.no_grad():
                logits = llama(
                    input_ids=torch.tensor([[*prompt[0], *written]]),
                    segment_ids=torch.tensor([[*prompt[1], *[3] * len(written)]]),
                ).logits[0, -1]
            for token in set(written):
                logits[token] -= written.count(token) * frequency + presence
            if (token := int(logits.argmax())) in Engine(llama, tokenizer)._stops:
                break
            written.append(token)
        return written

    plain = expected(0.0, 0.0)
    assert expected(1.0, 0.0) != expected(0.0, 1.0), "counting makes no difference"
    for frequency, presence in ((0.0, 0.0), (1.0, 0.0), (3.0, 0.0), (0.0, 5.0), (-2.0, 1.0)):
        wanted = expected(frequency, presence)
        assert got(frequency_penalty=frequency, presence_penalty=presence) == wanted
        assert (wanted == plain) == (frequency == presence == 0.0), "the penalty made no difference"
    with pytest.raises(ValueError, match="frequency_penalty=inf"):
        asked(prompt, frequency_penalty=float("inf"))


def test_logprobs_are_those_of_the_model(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    engine, heard = ContinuousEngine(llama, tokenizer), Heard()
    prompt = prompt_of(random.Random(11), 20)
    row = engine.row(asked(prompt, logprobs=2, temperature=2.0, seed=0, presence_penalty=1.0))
    engine.submit(row)
    heard.run(engine)
    tokens = heard.tokens[row]
    with torch.no_grad():
        chances = llama(
            input_ids=torch.tensor([[*prompt[0], *tokens]]),
            segment_ids=torch.tensor([[*prompt[1], *[3] * len(tokens)]]),
        ).logits[0, len(prompt[0]) - 1 :].log_softmax(-1)  # fmt: skip
    assert [token for token, _, _ in heard.logprobs[row]] == tokens
    for place, (token, value, likeliest) in enumerate(heard.logprobs[row]):
        assert value == pytest.approx(float(chances[place, token]), abs=1e-4)
        assert [other for other, _ in likeliest] == chances[place].topk(2).indices.tolist()


def test_scale_0_is_the_bare_model_bit_for_bit(tokenizer: Any) -> None:
    from tests.models import plain_model

    bare, prompt = plain_model("llama", vocab=len(tokenizer)), prompt_of(random.Random(12), 40)
    zero = rw.attach(plain_model("llama", vocab=len(tokenizer)), init_std=0.0)
    model = tiny_model("llama", vocab=len(tokenizer))
    chances = []
    for one, scale in ((model, 0.0), (zero, 1.0)):
        engine, heard = ContinuousEngine(one, tokenizer), Heard()
        row = engine.row(asked(prompt, logprobs=3), scale)
        engine.submit(row)
        heard.run(engine)
        chances.append(heard.logprobs[row])
    assert chances[0] == chances[1]
    with torch.no_grad():
        first = bare(input_ids=torch.tensor([prompt[0]])).logits[0, -1].log_softmax(-1)
    assert chances[0][0][1] == float(first.max())


# --- other models, and what goes wrong -----------------------------------------------------------------------------


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


def test_what_is_wrong_with_one_row_fails_it_alone(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    def broken(text: str) -> bool:
        if len(text) > 4:
            raise KeyError("no such judge")
        return False

    rng = random.Random(14)
    prompts = [prompt_of(rng, 40) for _ in range(4)]
    engine, heard = ContinuousEngine(llama, tokenizer), Heard()
    engine.reader.stops = []
    mine = [engine.row(asked(one, settled=broken if at == 1 else None)) for at, one in enumerate(prompts)]
    for row in mine:
        engine.submit(row)
    heard.step(engine)
    # One row's keys become not-a-number, as an overflow would make them; others take its place in the lane later.
    lane: Any = engine._running._groups[0].lane
    with torch.inference_mode():
        for layer in lane._layers:
            layer.keys[3] = float("nan")
    while mine[1] not in heard.ended:
        heard.step(engine)
    assert isinstance(heard.ended[mine[1]], KeyError)
    assert isinstance(heard.ended[mine[3]], ArithmeticError)
    late = [prompt_of(rng, 5) for _ in range(2)]
    mine += [engine.row(asked(one)) for one in late]
    for row in mine[4:]:
        engine.submit(row)
    heard.step(engine)
    assert len(engine._running._groups) == 1
    heard.run(engine)
    for at, prompt in ((0, prompts[0]), (2, prompts[2]), (4, late[0]), (5, late[1])):
        assert heard.tokens[mine[at]] == alone(llama, prompt, [])
    assert answers(engine, prompts) == [alone(llama, one, []) for one in prompts], "what was not a number was kept"


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
