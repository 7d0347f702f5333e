"""Every way to generate equals a loop without a cache that appends OUTPUT."""

from __future__ import annotations

import pytest
import torch

from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.caches import cache_name
from rolewise.roles import Role
from tests.models import FAMILIES, VOCAB, model_with_other_memory, plain_model, random_batch, tiny_model

NEW = 14


@pytest.fixture(params=FAMILIES, scope="module")
def model(request: pytest.FixtureRequest) -> SegmentedCausalLM:
    return tiny_model(request.param)


@torch.no_grad()
def reference(model: SegmentedCausalLM, ids: torch.Tensor, segments: torch.Tensor, new: int = NEW) -> torch.Tensor:
    """Greedy continuation of one row, [1, prompt] -> [1, prompt + new], from whole forward passes."""
    for _ in range(new):
        logits = model(input_ids=ids, segment_ids=segments, use_cache=False).logits[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        segments = torch.cat([segments, torch.full_like(segments[:, :1], Role.OUTPUT)], dim=1)
    return ids


def generate(model: SegmentedCausalLM, ids: torch.Tensor, segments: torch.Tensor, **options: object) -> torch.Tensor:
    options = {"max_new_tokens": NEW, "do_sample": False, "attention_mask": torch.ones_like(ids)} | options
    return model.generate(input_ids=ids, segment_ids=segments, **options)


def test_roles_change_the_answer(model: SegmentedCausalLM) -> None:
    """Without this the equalities below would hold for a model that ignores its roles."""
    ids, segments = random_batch(batch=1).values()
    answers = {tuple(reference(model, ids, torch.full_like(segments, role))[0].tolist()) for role in Role}
    assert len(answers) > 1
    # The generated tokens' role counts too: a loop that appends USER answers otherwise, for some prompt.
    differs = False
    for seed in range(8):
        ids, segments = random_batch(batch=1, seed=seed).values()
        with torch.no_grad():
            longer = torch.cat([ids, ids[:, :3]], dim=1)
            roles = [torch.cat([segments, torch.full((1, 3), role)], dim=1) for role in (Role.OUTPUT, Role.USER)]
            tops = [model(input_ids=longer, segment_ids=role).logits[:, -1].argmax() for role in roles]
        differs |= bool(tops[0] != tops[1])
    assert differs


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_cache": False},
        {"cache_implementation": "static", "disable_compile": True},
        {"prefill_chunk_size": 5},
        {"prompt_lookup_num_tokens": 3},
    ],
    ids=lambda options: ",".join(options) or "dynamic cache",
)
def test_greedy_equals_the_loop(model: SegmentedCausalLM, options: dict[str, object]) -> None:
    for seed in range(3):
        ids, segments = random_batch(batch=1, seed=seed, seq=12 + seed).values()
        torch.testing.assert_close(generate(model, ids, segments, **options), reference(model, ids, segments))


@pytest.mark.parametrize("kind", ["mamba", "recurrent_gemma"])
def test_a_memory_under_another_name_is_found(kind: str) -> None:
    """Whatever the model remembers and calls it: what is written is OUTPUT, and the same as without a memory."""
    model = model_with_other_memory(kind, VOCAB)
    ids, segments = random_batch(batch=1).values()
    expected = reference(model, ids, segments)
    assert len(set(expected[0, ids.shape[1] :].tolist())) > 1
    assert torch.equal(generate(model, ids, segments), expected)
    given: list[list[int]] = []
    note = lambda _, __, kwargs: given.append(kwargs["segment_ids"][0].tolist())  # noqa: E731
    model.register_forward_pre_hook(note, with_kwargs=True)
    generate(model, ids, segments)
    assert given == [segments[0].tolist(), *[[int(Role.OUTPUT)]] * (NEW - 1)]


def test_a_cache_under_no_known_name_is_an_error() -> None:
    class Other:
        def forward(self, input_ids: torch.Tensor, memory: object = None, **kwargs: object) -> None: ...

    with pytest.raises(
        ValueError, match=r"Other\.forward takes no cache under any known name \(cache, past_key_values"
    ):
        cache_name(Other())


def test_left_padded_rows_equal_each_row_alone(model: SegmentedCausalLM) -> None:
    rows = [random_batch(batch=1, seq=length, seed=length) for length in (4, 9, 13)]
    width = 13

    def pad(row: torch.Tensor, value: int) -> torch.Tensor:
        return torch.nn.functional.pad(row, (width - row.shape[1], 0), value=value)

    ids = torch.cat([pad(row["input_ids"], 0) for row in rows])
    segments = torch.cat([pad(row["segment_ids"], Role.OUTPUT) for row in rows])
    mask = torch.cat([pad(torch.ones_like(row["input_ids"]), 0) for row in rows])
    together = generate(model, ids, segments, attention_mask=mask)[:, width:]
    for row, answer in zip(rows, together, strict=True):
        alone = reference(model, row["input_ids"], row["segment_ids"])[0, row["input_ids"].shape[1] :]
        assert answer.tolist() == alone.tolist()


def test_beams_with_and_without_cache(model: SegmentedCausalLM) -> None:
    ids, segments = random_batch(batch=2).values()
    cached = generate(model, ids, segments, num_beams=3)
    assert torch.equal(cached, generate(model, ids, segments, num_beams=3, use_cache=False))
    assert not torch.equal(cached, generate(model, ids, (segments + 1) % 4, num_beams=3))


@pytest.mark.parametrize("draft", ["itself", "plain", "segmented"])
def test_assisted_equals_the_loop(model: SegmentedCausalLM, draft: str) -> None:
    family = model.config.model_type.removeprefix("rolewise_").removesuffix("_text")
    assistant = {
        "itself": lambda: model,
        "plain": lambda: plain_model(family, seed=1),
        "segmented": lambda: tiny_model(family, seed=1),
    }[draft]()
    ids, segments = random_batch(batch=1).values()
    assert torch.equal(generate(model, ids, segments, assistant_model=assistant), reference(model, ids, segments))


@pytest.mark.parametrize("passed", ["all ids", "new ids"])
def test_two_turns_from_one_cache(model: SegmentedCausalLM, passed: str) -> None:
    ids, segments = random_batch(batch=1).values()
    first = model.generate(
        input_ids=ids, segment_ids=segments, max_new_tokens=5, do_sample=False, return_dict_in_generate=True,
        attention_mask=torch.ones_like(ids),
    )  # fmt: skip
    cache = first.cache if hasattr(first, "cache") else first.past_key_values
    new_ids, new_segments = random_batch(batch=1, seq=6, seed=7).values()
    all_ids = torch.cat([first.sequences, new_ids], dim=1)
    all_segments = torch.cat([segments, torch.full((1, 5), Role.OUTPUT), new_segments], dim=1)
    cache_name = "cache" if hasattr(first, "cache") else "past_key_values"
    mask = torch.ones_like(all_ids)
    expected = reference(model, all_ids, all_segments)[0, -NEW:]
    if passed == "all ids":
        got = generate(model, all_ids, all_segments, attention_mask=mask, **{cache_name: cache})
    else:
        # The last generated token is not in the cache yet: it goes with the new ones, as OUTPUT.
        at = cache.get_seq_length()
        got = generate(model, all_ids[:, at:], all_segments[:, at:], attention_mask=mask, **{cache_name: cache})
    assert got[0, -NEW:].tolist() == expected.tolist()


def test_sampling_is_reproducible_and_uses_roles(model: SegmentedCausalLM) -> None:
    ids, segments = random_batch(batch=2).values()

    def sample(segments: torch.Tensor, **options: object) -> torch.Tensor:
        torch.manual_seed(5)
        return generate(model, ids, segments, do_sample=True, temperature=0.8, top_k=0, **options)

    assert torch.equal(sample(segments), sample(segments))
    assert torch.equal(sample(segments), sample(segments, use_cache=False))
    assert not torch.equal(sample(segments), sample((segments + 1) % 4))


def test_inputs_embeds_carry_roles(model: SegmentedCausalLM) -> None:
    ids, segments = random_batch(batch=1).values()
    embeds = model.get_input_embeddings()(ids).detach()
    answer = model.generate(
        inputs_embeds=embeds, segment_ids=segments, max_new_tokens=NEW, do_sample=False,
        attention_mask=torch.ones_like(ids),
    )  # fmt: skip
    assert answer[0].tolist() == reference(model, ids, segments)[0, ids.shape[1] :].tolist()


def test_several_returned_sequences(model: SegmentedCausalLM) -> None:
    ids, segments = random_batch(batch=2).values()
    answers = generate(model, ids, segments, num_beams=2, num_return_sequences=2)
    assert answers.shape == (4, ids.shape[1] + NEW)
    assert int(answers.max()) < VOCAB


def test_missing_short_and_out_of_range_roles_are_refused(model: SegmentedCausalLM) -> None:
    ids, segments = random_batch(batch=2).values()
    for call in (model, model.generate):
        with pytest.raises(ValueError, match="segment_ids are missing"):
            call(input_ids=ids)
        with pytest.raises(ValueError, match=r"shape \[2, 5\]"):
            call(input_ids=ids, segment_ids=segments[:, :5])
        for bad in (-1, 4):
            with pytest.raises(ValueError, match=rf"segment_ids hold {bad}"):
                call(input_ids=ids, segment_ids=segments.clone().fill_(bad))
        with pytest.raises(TypeError, match="float32"):
            call(input_ids=ids, segment_ids=segments.float())
        with pytest.raises(TypeError, match="list"):
            call(input_ids=ids, segment_ids=segments.tolist())
    with pytest.raises(ValueError, match="segment_ids are missing"):
        model.base_model(input_ids=ids)


def test_lists_in_place_of_tensors_are_explained(model: SegmentedCausalLM) -> None:
    ids, segments = random_batch(batch=1).values()
    with pytest.raises(TypeError, match="return_tensors"):
        model.generate(input_ids=ids[0].tolist(), segment_ids=segments[0].tolist())


def test_continuous_batching_is_refused(model: SegmentedCausalLM) -> None:
    with pytest.raises(NotImplementedError, match="drops segment_ids"):
        model.generate_batch(inputs=[[1, 2, 3]])
