"""The lab: training, counting, settings and results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rolewise.lab.config import ARMS, AXES, LabConfig, configs_of
from rolewise.lab.evaluation import Count, count_outputs, evaluate
from rolewise.lab.results import ResultFile
from rolewise.lab.rows import (
    ATTACKS,
    Condition,
    evaluation_row,
)
from rolewise.lab.training import base_model, new_model, train_roles, with_roles
from rolewise.lab.vocabulary import (
    END,
    ID,
    content_ids,
)
from tests.lab_runs import TINY, result_of

# --- training and counting ---------------------------------------------------------------------------------------


def trained(config: LabConfig) -> tuple[list[float], dict[str, torch.Tensor]]:
    model = with_roles(new_model(config), config)
    losses = train_roles(model, config)
    return losses, {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def test_training_learns_and_is_deterministic() -> None:
    config = replace(TINY, steps=20, learning_rate=5e-3, lr_multiple=2.0)
    losses, weights = trained(config)
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])
    again, same = trained(config)
    assert losses == again
    assert all(weights[name].equal(same[name]) for name in weights)


def test_only_arms_with_roles_move_the_table() -> None:
    before = with_roles(new_model(TINY), TINY).segment_embedding.weight.detach().clone()
    moved = trained(TINY)[1]["segment_embedding.weight"]
    faster = trained(replace(TINY, lr_multiple=100.0))[1]["segment_embedding.weight"]
    assert 0 < (moved - before).norm() < (faster - before).norm()
    plain = replace(TINY, arm="delimiter")
    start = with_roles(new_model(plain), plain).segment_embedding.weight
    assert trained(plain)[1]["segment_embedding.weight"].equal(start)


def test_arms_share_a_kept_base(tmp_path: Path) -> None:
    first = base_model(TINY, tmp_path)
    steps: list[int] = []
    second = base_model(replace(TINY, arm="text", steps=9), tmp_path, lambda step, _: steps.append(step))
    assert not steps
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    base_model(replace(TINY, seed=1), tmp_path, lambda step, _: steps.append(step))
    assert len(steps) == TINY.base_steps
    assert len(list(tmp_path.iterdir())) == 2


def test_counts() -> None:
    row = evaluation_row(LabConfig(), Condition(name="naive"), 1)
    assert row.kinds == ("repeat",)
    witness = row.witnesses[0]
    outputs = [row.answer, (*row.answer, "and", *witness), witness, witness[:1], ()]
    count = count_outputs(Condition(name="naive"), [row] * 5, outputs)
    assert (count.n, count.correct, count.followed, count.kinds) == (5, 1, 2, {"repeat": (5, 2)})
    assert Count.from_dict(json.loads(json.dumps(count.to_dict()))) == count


def test_answers_are_read_back_from_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that always says the payload has a ceiling of 100 % and is attacked with full success."""
    config = replace(TINY, test_samples=4)
    model = with_roles(new_model(config), config)
    script: list[tuple[str, ...]] = []

    def generate(input_ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        assert kwargs["segment_ids"].shape == input_ids.shape
        said = [[*content_ids(words), ID[END], 0, 0][:3] for words in script]
        return torch.cat([input_ids, torch.tensor(said)], dim=1)

    monkeypatch.setattr(model, "generate", generate)
    condition = Condition(name="naive")
    script[:] = [evaluation_row(config, condition, index).witnesses[0] for index in range(4)]
    (count,) = evaluate(model, config, [condition])
    assert (count.followed, count.correct) == (4, 0)
    script[:] = [evaluation_row(config, condition, index).answer for index in range(4)]
    (count,) = evaluate(model, config, [condition])
    assert (count.followed, count.correct) == (0, 4)


# --- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arm": "delimiters"}, "did you mean 'delimiter'"),
        ({"mix": "twin"}, "did you mean 'twins'"),
        ({"payload_kinds": ("says",)}, "did you mean 'say'"),
        ({"payload_kinds": ()}, "at least one"),
        ({"payload_kinds": ("say", "say")}, "once"),
        ({"init_ratio": 0.1}, "either init_std"),
        ({"init_std": None}, "either init_std"),
        ({"init_std": -1.0}, "init_std=-1"),
        ({"lr_multiple": 0.0}, "lr_multiple=0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"steps": -1}, "steps=-1"),
        ({"batch_size": 64}, "multiple of 6"),
        ({"hidden": 20}, "multiple of 2"),
        ({"train_words": 8}, "train_words=8"),
        ({"test_samples": 0}, "test_samples=0"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LabConfig(**changes)


def test_settings_travel_through_json() -> None:
    config = LabConfig(arm="text", payload_kinds=("say", "pick"), init_std=None, init_ratio=0.25)
    assert LabConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(ValueError, match="did you mean 'steps'"):
        LabConfig.from_dict({"step": 3})


def test_axes() -> None:
    for axis in AXES:
        configs = configs_of(axis, ARMS, 3)
        assert configs
        assert all(config.seed == 3 for config in configs)
    assert {config.arm for config in configs_of("lr", ARMS, 0)} == {"text+ISE", "delimiter+ISE"}
    with pytest.raises(ValueError, match="did you mean 'steps'"):
        configs_of("step", ARMS, 0)


# --- results -----------------------------------------------------------------------------------------------------


def test_separation_is_ceiling_minus_the_mean_of_the_attacks() -> None:
    result = result_of(TINY)
    assert result.separation(4).value == pytest.approx(7 / 8 - 1 / 8)
    assert result.separation(4).low < 0.75 < result.separation(4).high
    stronger = [replace(one, followed=5) if one.condition.name == "naive" else one for one in result.counts]
    changed = replace(result, counts=tuple(stronger))
    assert changed.separation(4).value == pytest.approx(7 / 8 - (5 + 1 + 1 + 1) / 8 / len(ATTACKS))
    assert changed.separation_from("naive", 4).value == pytest.approx(7 / 8 - 5 / 8)
    assert changed.separation_from("naive", 4, kind="say").value == 0
    with pytest.raises(ValueError, match="was not measured"):
        result.success("naive", 3)


def test_an_arm_without_a_table_is_found_whatever_the_tables_settings(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    plain, with_table = replace(TINY, arm="delimiter"), replace(TINY, arm="delimiter+ISE")
    for config in (plain, with_table):
        file.add(result_of(config))
    for changes in ({"lr_multiple": 50.0}, {"init_std": None, "init_ratio": 0.25}):
        assert file.missing([replace(plain, **changes)]) == []
        assert file.find(replace(plain, **changes)) is not None
        assert file.missing([replace(with_table, **changes)]) == [replace(with_table, **changes)]
        assert file.find(replace(with_table, **changes)) is None
    assert file.missing([replace(plain, steps=plain.steps + 1)])


def test_a_cut_line_is_dropped_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "lab" / "results.jsonl"
    file = ResultFile(path)
    configs = [replace(TINY, seed=seed) for seed in range(3)]
    file.add(result_of(configs[0]))
    file.add(result_of(configs[1]))
    whole = path.read_bytes()
    path.write_bytes(whole + whole.replace(b"\n", b" "))  # longer than the line that comes in its place
    again = ResultFile(path)
    assert again.missing([*configs, configs[0]]) == configs[2:]
    again.add(result_of(configs[2]))
    assert [result.config for result in ResultFile(path).results] == configs
    assert path.read_bytes().startswith(whole)
    path.write_bytes(whole + b'{"config": {}}\n')
    with pytest.raises(ValueError, match=r"results\.jsonl:3 is no result"):
        ResultFile(path)
