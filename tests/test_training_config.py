"""Recipes: reading, checking, comparing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from rolewise.training.config import (
    LoraConfig,
    TrainConfig,
    as_begun,
    carried_over,
    config_from_dict,
    config_to_dict,
    differing_keys,
    load_recipe,
)

RECIPES = sorted(
    path
    for path in (Path(__file__).parents[1] / "recipes").rglob("*.yaml")
    if not path.name.startswith("data-")  # what `rolewise data hierarchy` reads
)
NEEDED = {"model": "m", "output_dir": "o", "data": "d"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipes_read(path: Path) -> None:
    assert load_recipe(path).model


def write(directory: Path, text: str) -> Path:
    path = directory / "recipe.yaml"
    path.write_text(text)
    return path


def test_values_are_converted_and_overridden(tmp_path: Path) -> None:
    path = write(tmp_path, "model: m\noutput_dir: o\ndata: d\nlearning_rate: 2e-5\nepochs: 3\nlora: {rank: 4}\n")
    config = load_recipe(path, output_dir="elsewhere")
    assert config == TrainConfig(
        model="m", output_dir="elsewhere", data="d", learning_rate=2e-5, epochs=3.0, lora=LoraConfig(rank=4)
    )
    assert config_from_dict(config_to_dict(config)) == config


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("learnin_rate: 1", r"recipe\.yaml: unknown key 'learnin_rate'; did you mean learning_rate"),
        ("lora: {ranks: 1}", r"unknown key 'lora\.ranks'; did you mean rank"),
        ("lr: 1e-4", r"unknown key 'lr'; did you mean learning_rate\?"),
        ("lora: {r: 8}", r"unknown key 'lora\.r'; did you mean rank\?"),
        ("zzz: 1", r"unknown key 'zzz'; known keys are model, output_dir"),
        ("batch_size: many", "batch_size must be int, not 'many'"),
        ("batch_size: 2.5", r"batch_size must be int, not 2\.5"),
        ("ise: 1", "ise must be bool, not 1"),
        ("learning_rate: true", "learning_rate must be float, not True"),
        ("dtype: fp16", "dtype must be one of fp32, bf16, mixed, not 'fp16'"),
        ("batch_size: 0", "batch_size=0 must be at least 1"),
        ("epochs: .nan", "epochs=nan must be above 0"),
        ("learning_rate: -1", r"learning_rate=-1\.0 must not be negative"),
        ("seed: -1", r"seed=-1 must be from 0 to 4294967295"),
        ("seed: 4294967296", "seed=4294967296 must be from 0"),
        ("table_init_std: .nan", "table_init_std=nan must not be negative"),
        ("table_init_std: -0.1", r"table_init_std=-0\.1 must not be negative"),
        ("table_init_ratio: .inf", "table_init_ratio=inf must not be negative"),
        ("data: other", "gives data more than once"),
        ("lora:\n  rank: 1\n  alpha: 2\n  rank: 3", r"gives lora\.rank more than once"),
        ('lora: {"rank": 1, "rank": 3}', r"gives lora\.rank more than once"),
        ("packing: true\ngroup_by_length: true", "packing already fills rows"),
        ("table_init_std: 0.1\ntable_init_ratio: 0.1", "either table_init_std or table_init_ratio"),
        ("[", "is not valid YAML"),
    ],
)
def test_bad_recipes_name_the_key(line: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"model: m\noutput_dir: o\ndata: d\n{line}\n")
    with pytest.raises(ValueError, match=message):
        load_recipe(path)


def test_missing_keys_and_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lacks output_dir, data"):
        load_recipe(write(tmp_path, "model: m\n"))
    with pytest.raises(ValueError, match="must be a YAML mapping"):
        load_recipe(write(tmp_path, "- model\n"))
    with pytest.raises(ValueError, match=r"recipe\.yaml is nested too deeply"):
        load_recipe(write(tmp_path, "[" * 5000))
    with pytest.raises(FileNotFoundError, match=r"no recipe at .*absent\.yaml"):
        load_recipe(tmp_path / "absent.yaml")


def test_differing_keys_ignore_where_and_how_often() -> None:
    stored = config_to_dict(TrainConfig(**NEEDED))
    same = TrainConfig(**{**NEEDED, "output_dir": "moved"}, logging_steps=3, save_steps=7, report_to="wandb")
    assert differing_keys(same, stored) == {}
    other = TrainConfig(**NEEDED, seed=7, lora=LoraConfig(rank=3))
    assert list(differing_keys(other, stored)) == ["lora", "seed"]
    assert differing_keys(other, stored)["seed"] == (42, 7)


def test_a_setting_that_a_run_is_too_old_to_have_is_as_it_was_then() -> None:
    now = TrainConfig(**NEEDED)
    old = {key: value for key, value in config_to_dict(now).items() if key not in ("padding_free", "group_by_length")}
    assert differing_keys(now, old) == {"padding_free": (False, True)}
    assert differing_keys(as_begun(now, old), old) == {}
    assert differing_keys(as_begun(TrainConfig(**NEEDED, group_by_length=True), old), old) == {
        "group_by_length": (False, True)
    }
    assert as_begun(now, config_to_dict(now)) == now
    said = carried_over(now, old)
    assert "did not have padding_free: it goes on as it was, padding_free=False in place of True" in said
    assert carried_over(TrainConfig(**NEEDED, padding_free=False), old) == ""
    assert carried_over(now, config_to_dict(now)) == ""


def test_tyro_overrides_a_recipe() -> None:
    config = tyro.cli(
        TrainConfig,
        default=TrainConfig(**NEEDED, epochs=2.0),
        args=["--learning-rate", "1e-3", "--lora.rank", "2", "--no-ise", "--eval-data", "e"],
    )
    assert (config.epochs, config.learning_rate, config.lora.rank, config.ise) == (2.0, 1e-3, 2, False)
    assert config.eval_data == "e"


def test_configuration_needs_no_torch() -> None:
    code = "import sys; from rolewise.training import TrainConfig, load_recipe; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
