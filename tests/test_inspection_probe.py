"""The probe: balanced twins, a classifier that is tested on other passages, and offsets that follow from the table."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import rolewise as rw
from rolewise.data.generate import generate_sample, task_of
from rolewise.inspection import Inspection, Measurement, inspect_model, passage_pairs
from rolewise.inspection.passages import LENGTH, MOST, position_shift, twin_rows
from rolewise.inspection.probe import Examples, accuracies, folds_of, offsets
from rolewise.modeling import SegmentedCausalLM
from rolewise.roles import DEFAULT_SCHEME, Role, RoleScheme
from rolewise.samples import Sample
from tests.models import plain_model, tiny_model
from tests.test_architectures import plain
from tests.training_model import tiny_tokenizer


def samples(count: int = 12) -> list[Sample]:
    from random import Random

    return [
        generate_sample(Random(f"inspection:{number}"), "test", id=f"s{number}", task=task_of("inspection", number))
        for number in range(count)
    ]


def probed(model: SegmentedCausalLM, count: int = 12, **options: object) -> Inspection:
    tokenizer = tiny_tokenizer()
    return inspect_model(model, tokenizer, samples(count), parts=("probe",), **options)  # type: ignore[arg-type]


def found(inspection: Inspection, signal: str, measure: str) -> Measurement:
    one = inspection.find("probe", signal, "user, data", measure)
    assert one is not None
    return one


def means(measurement: Measurement) -> list[float]:
    return [sum(measurement.of_units(layer).values()) / len(measurement.units) for layer in measurement.layers]


def model_of(family: str = "llama", *, init_ratio: float = 1.0, dead: bool = False) -> SegmentedCausalLM:
    """A segmented model; a dead one's blocks add nothing to what enters them."""
    model = tiny_model(family, init_ratio=init_ratio, vocab=len(tiny_tokenizer()))
    if dead:
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
    return model


# --- twins -----------------------------------------------------------------------------------------------------


def test_every_passage_stands_in_each_role_at_each_place() -> None:
    tokenizer = tiny_tokenizer()
    pairs = passage_pairs(samples())
    for pair in pairs:
        rows = twin_rows(tokenizer, pair, DEFAULT_SCHEME)
        seen: Counter[tuple[bool, bool, int]] = Counter()
        for row in rows:
            assert len(row.places) == len(row.user)
            half = row.user.index(not row.user[0])
            for number, (at, user) in enumerate(zip(row.places, row.user, strict=True)):
                seen[user, number < half, row.input_ids[at]] += 1
                assert row.segment_ids[at] == DEFAULT_SCHEME.row(Role.USER if user else Role.DATA)
        for (user, first, token), count in seen.items():
            assert seen[not user, first, token] == count
        assert position_shift(rows) <= 2


def test_swapping_changes_the_passages_segments_and_nothing_else() -> None:
    tokenizer = tiny_tokenizer()
    for row in twin_rows(tokenizer, passage_pairs(samples())[0], DEFAULT_SCHEME):
        for at, (own, swapped) in enumerate(zip(row.segment_ids, row.swapped_ids, strict=True)):
            assert swapped == ({1: 2, 2: 1}[own] if at in row.places else own)


def test_pairs_are_of_like_length_distinct_and_few() -> None:
    def sample(number: int, data: str) -> Sample:
        return Sample(id=f"s{number}", instruction="i", data=data, answer="a")

    long = "word " * 100
    given = [sample(0, long), sample(1, "a  short\n one here"), sample(2, "x"), sample(3, "another short one"),
             sample(4, "another short one"), sample(5, "z" + long)]  # fmt: skip
    first, second = passage_pairs(given)
    assert first.id == "s1+s3"
    assert first.texts[0] == "a short one here"
    assert second.id == "s0+s5"
    assert all(len(text) <= LENGTH and text.endswith("word") for text in second.texts)
    many = passage_pairs(sample(number, f"passage number {number:04d}") for number in range(1000))
    assert len(many) == MOST
    assert len({text for pair in many for text in pair.texts}) == 2 * MOST


# --- the classifier --------------------------------------------------------------------------------------------


def examples(direction: str, *, pairs: int = 20, tokens: int = 30, hidden: int = 16) -> Examples:
    generator = torch.Generator().manual_seed(0)
    features, user = list[torch.Tensor](), list[torch.Tensor]()
    shared = torch.randn(hidden, generator=generator)
    for _ in range(pairs):
        own = torch.randn(hidden, generator=generator)
        labels = torch.arange(tokens) % 2 == 0
        towards = {"shared": shared, "own": own, "none": torch.zeros(hidden)}[direction]
        words = torch.randn(tokens // 2, hidden, generator=generator).repeat_interleave(2, 0)  # the same in both roles
        features.append(words + 3.0 * (labels.float() * 2 - 1)[:, None] * towards)
        user.append(labels)
    return Examples(features=features, user=user)


def test_a_difference_that_all_pairs_share_is_found() -> None:
    told = examples("shared")
    assert min(accuracies(told, folds_of(20, 0))) > 0.95


def test_a_difference_of_each_pair_for_itself_is_not() -> None:
    """It would be with a split by token: then a pair's direction is known from its other tokens."""
    told = examples("own", hidden=64)
    apart = accuracies(told, folds_of(20, 0))
    assert sum(apart) / 20 < 0.75
    mixed = Examples(  # each pair's tokens dealt out over two units, one of which trains
        features=[part for one in told.features for part in (one[: len(one) // 2], one[len(one) // 2 :])],
        user=[part for one in told.user for part in (one[: len(one) // 2], one[len(one) // 2 :])],
    )
    assert sum(accuracies(mixed, [0, 1] * 20)) / 40 > 0.9


def test_equal_features_are_at_chance_exactly() -> None:
    assert accuracies(examples("none"), folds_of(20, 0)) == [0.5] * 20


def test_the_scale_of_features_does_not_matter() -> None:
    told = examples("shared")
    factors = torch.logspace(-3, 3, 16)
    scaled = Examples(features=[one * factors + 1e4 * factors for one in told.features], user=told.user)
    folds = folds_of(20, 0)
    assert accuracies(scaled, folds) == pytest.approx(accuracies(told, folds), abs=0.01)
    constant = Examples(
        features=[torch.cat([one, torch.full((30, 1), 7.0)], 1) for one in told.features], user=told.user
    )
    assert accuracies(constant, folds) == pytest.approx(accuracies(told, folds), abs=0.01)


def test_features_are_standardised_by_the_training_pairs_alone() -> None:
    """A pair that is held out, and far larger in the one feature that counts, leaves that feature its weight."""
    told = examples("none")
    generator = torch.Generator().manual_seed(1)
    for features, user in zip(told.features, told.user, strict=True):
        features += torch.randn(features.shape, generator=generator)
        features[:, 0] = user.float() * 2 - 1
    told.features[0][:, 0] *= 100
    folds = folds_of(20, 0)
    together = [value for value, fold in zip(accuracies(told, folds), folds, strict=True) if fold == folds[0]]
    assert min(together) > 0.95


def test_folds_are_even_and_seeded() -> None:
    folds = folds_of(22, 3)
    assert sorted(Counter(folds).values()) == [4, 4, 4, 5, 5]
    assert folds == folds_of(22, 3) != folds_of(22, 4)
    assert sorted(folds_of(4, 0)) == [0, 1, 2, 3]


def test_an_offset_by_hand() -> None:
    user = torch.tensor([True, False])
    one = torch.tensor([[3.0, 1.0], [0.0, 1.0]])  # differ by (3, 0)
    other = torch.tensor([[0.0, 4.0], [0.0, 0.0]])  # differ by (0, 4)
    told = offsets(Examples(features=[one, other], user=[user, user]))
    length = 2.5  # of (1.5, 2)
    rms = ((10 + 1 + 16 + 0) / 4) ** 0.5
    assert told == pytest.approx([3 * 1.5 / length / rms, 4 * 2 / length / rms])
    assert sum(told) / 2 == pytest.approx(length / rms)


# --- models ----------------------------------------------------------------------------------------------------


def test_a_large_table_is_told_in_every_layer_of_a_model_that_passes_it_on() -> None:
    model = model_of(init_ratio=2.0, dead=True)
    inspection = probed(model)
    assert means(found(inspection, "segments", "accuracy")) == [1.0] * 3
    table = model.segment_embedding.weight
    apart = means(found(inspection, "segments", "offset"))
    assert apart[0] == pytest.approx(apart[2], rel=1e-4)  # the last is before the final norm
    ids = [row for pair in passage_pairs(samples()) for row in twin_rows(tiny_tokenizer(), pair, DEFAULT_SCHEME)]
    entered = [
        model.get_input_embeddings().weight[row.input_ids[at]] + table[segment]
        for row in ids
        for at in row.places
        for segment in (1, 2)
    ]
    with torch.no_grad():
        # Pairs count alike, tokens nearly so.
        rms = torch.stack(entered).pow(2).sum(1).mean().sqrt()
        assert apart[0] == pytest.approx(float((table[1] - table[2]).norm() / rms), rel=0.02)


def test_a_table_of_zeros_is_at_chance_in_every_layer() -> None:
    model = model_of(init_ratio=0.0)
    inspection = probed(model)
    accuracy, offset = (found(inspection, "segments", name) for name in ("accuracy", "offset"))
    assert all(value == 0.5 for row in accuracy.values for value in row)
    assert all(value == 0.0 for row in offset.values for value in row)
    assert found(inspection, "full", "accuracy").values == found(inspection, "template", "accuracy").values


def test_the_template_alone_does_not_depend_on_the_table() -> None:
    large, none = probed(model_of(init_ratio=2.0)), probed(model_of(init_ratio=0.0))
    for measure in ("accuracy", "offset"):
        assert found(large, "template", measure).values == found(none, "template", measure).values
    assert found(large, "full", "offset").values != found(large, "template", "offset").values
    # Headers do not change what the words themselves are.
    assert means(found(large, "template", "accuracy"))[0] == 0.5


def test_without_a_table_there_is_the_template_alone() -> None:
    model = model_of()
    model.segment_scale = 0.0
    inspection = probed(model)
    assert {one.condition for one in inspection.measurements} == {"template"}
    assert any("template alone" in remark for remark in inspection.remarks)
    assert inspection.model["table_ratio"] is None


def test_roles_that_share_a_row_have_no_segments_to_swap() -> None:
    scheme = RoleScheme(names=("all", "output"), rows=(0, 0, 0, 1))
    model = rw.attach(plain_model("llama", vocab=len(tiny_tokenizer())), scheme=scheme, init_ratio=1.0)
    assert {one.condition for one in probed(model).measurements} == {"full", "template"}


def test_the_model_is_left_as_it_was() -> None:
    model = model_of().train()
    model.segment_scale = 0.7
    probed(model)
    assert model.training
    assert model.segment_scale == 0.7
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.model.layers.modules())


def test_the_seed_decides_who_is_tested_by_whom() -> None:
    model = model_of(init_ratio=0.05)
    one, same, other = (found(probed(model, seed=seed), "full", "accuracy").values for seed in (0, 0, 1))
    assert one == same != other


def test_gpt2_and_mamba_can_be_probed() -> None:
    tokenizer = tiny_tokenizer()
    for model in (model_of("gpt2"), model_of("gemma3")):
        assert found(probed(model), "segments", "accuracy").layers == (0, 1, 2)
    torch.manual_seed(0)
    mamba = rw.attach(plain("mamba"), init_ratio=2.0)
    mamba.resize_token_embeddings(len(tokenizer))
    assert means(found(probed(mamba), "segments", "accuracy"))[0] > 0.9


def test_too_few_passages() -> None:
    with pytest.raises(ValueError, match=r"3 pairs of passages are too few.*at least 8 samples"):
        probed(model_of(), count=6)
