"""Whole runs: what is saved, resuming after a kill, what is refused."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

import rolewise as rw
from rolewise.training import RoleTrainer, TrainConfig, config_to_dict, prepare_data, train
from rolewise.training.notices import dtype_hint
from rolewise.training.run import RUN_FILE
from tests.training_model import conversations, save_tiny_model, write_rows

SCRIPT = Path(__file__).parent / "distributed" / "train_and_die.py"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base")
    save_tiny_model(directory / "model")
    write_rows(directory / "train.jsonl", conversations(12))
    write_rows(directory / "eval.jsonl", conversations(5, seed=1))
    return directory


def config(base: Path, output: Path, **options: Any) -> TrainConfig:
    defaults: dict[str, Any] = {
        "model": str(base / "model"),
        "output_dir": str(output),
        "data": str(base / "train.jsonl"),
        "learning_rate": 1e-3,
        "batch_size": 2,
        "epochs": 2.0,
        "logging_steps": 1,
        "cpu": True,
        "max_length": 128,
    }
    return TrainConfig(**(defaults | options))


def quietly(settings: TrainConfig, **options: Any) -> Any:
    said: list[str] = []
    result = train(settings, say=said.append, progress=None, **options)
    return result, "\n".join(said)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return load_file(directory / "model.safetensors")


def assert_bit_equal(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize(
    ("able", "in_fp32", "in_bf16"),
    [
        ({"avx2": True, "avx512_bf16": True}, "--dtype mixed", ""),
        ({"avx2": True, "amx_bf16": True}, "--dtype mixed", ""),
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, "", "no bf16 instructions"),
        ({"sve": True}, "", ""),
    ],
)
def test_a_run_says_which_dtype_is_slow_on_this_processor(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], in_fp32: str, in_bf16: str
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: able, raising=False)
    for dtype, hint in (("fp32", in_fp32), ("mixed", in_bf16), ("bf16", in_bf16)):
        said = dtype_hint(config(base, tmp_path, dtype=dtype)) or ""
        assert hint in said
        assert bool(hint) == bool(said)
        with monkeypatch.context() as accelerated:
            accelerated.setattr("torch.accelerator.is_available", lambda: True)
            assert dtype_hint(config(base, tmp_path, dtype=dtype, cpu=False)) is None


def test_a_run_says_what_it_does_and_saves_a_model(base: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    settings = config(base, output, eval_data=str(base / "eval.jsonl"))
    result, said = quietly(settings)
    assert "12 rows" in said
    assert "% of them carry loss" in said
    assert "of the token embeddings'; learning rate 0.01 (10 x 0.001)" in said
    assert (result.steps, result.rows, result.bad_rows) == (12, 12, 0)
    assert 0 < result.labelled_tokens < result.tokens
    assert result.eval_loss is not None
    before = rw.load_model(base / "model").segment_embedding.weight
    model, tokenizer = rw.load(output)
    assert model.segment_scale == 1.0
    assert (model.segment_embedding.weight - before).abs().min() > 0
    assert tokenizer.chat_template
    assert not (output / "checkpoints").exists(), "the last checkpoint is the model itself"
    assert not list(output.rglob("*.bin")), "nothing pickled"

    again, said = quietly(settings)
    assert again.already_done
    assert "finished" in said
    assert replace(again, already_done=False) == result


def test_delimiter_arm_is_the_bare_architecture(base: Path, tmp_path: Path) -> None:
    quietly(config(base, tmp_path / "out", ise=False, max_steps=2))
    model = rw.load_model(tmp_path / "out")
    assert model.segment_scale == 0.0
    assert not model.segment_embedding.weight.any()
    ids = torch.tensor([[5, 6, 7]])
    bare = model(input_ids=ids).logits
    model.segment_scale = 1.0
    assert torch.equal(model(input_ids=ids, segment_ids=torch.tensor([[0, 2, 3]])).logits, bare)
    assert not torch.equal(weights(tmp_path / "out")["model.norm.weight"], weights(base / "model")["model.norm.weight"])


RESUMED = {"save_steps": 3, "gradient_accumulation": 2, "epochs": 4.0, "group_by_length": True}


def start(base: Path, output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = output.parent / f"{output.name}.json"
    path.write_text(json.dumps(config_to_dict(config(base, output, **RESUMED))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(path), *arguments],
        capture_output=True, text=True, timeout=120, env=environment, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def never_killed(base: Path) -> Path:
    assert start(base, base / "whole").returncode == 0
    return base / "whole"


@pytest.mark.slow
@pytest.mark.parametrize("when", ["step:6", "save:6"])
def test_killed_and_resumed_equals_never_killed(when: str, never_killed: Path, base: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    assert start(base, killed, when).returncode == -signal.SIGKILL
    left = sorted(path.name for path in (killed / "checkpoints").iterdir())
    assert left == (["checkpoint-3"] if when == "step:6" else ["checkpoint-3", "checkpoint-6"])
    resumed = start(base, killed)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming from checkpoint-3" in resumed.stdout, "never from a half-written one"
    assert_bit_equal(never_killed, killed)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_packed_run(family: str, base: Path, tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "model", family)
    settings = config(base, tmp_path / "out", model=str(tmp_path / "model"), packing=True, batch_size=1, epochs=1.0)
    result, said = quietly(settings)
    assert f"packed into {result.steps} rows" in said
    assert result.steps < 12


def test_other_settings_are_refused_by_name(base: Path, tmp_path: Path) -> None:
    settings = config(base, tmp_path / "out", max_steps=1)
    quietly(settings)
    with pytest.raises(ValueError, match=r"other settings: learning_rate was 0\.001 and is now 0\.5.*output_dir"):
        quietly(replace(settings, learning_rate=0.5))
    with pytest.raises(ValueError, match="resume is 'never'"):
        quietly(replace(settings, resume="never"))
    assert quietly(replace(settings, logging_steps=7))[0].already_done


def test_a_run_from_before_a_setting_existed_goes_on_as_it_was_begun(base: Path, tmp_path: Path) -> None:
    data = str(write_rows(tmp_path / "rows.jsonl", uneven(8)))
    quietly(config(base, tmp_path / "padded", data=data, padding_free=False))
    quietly(config(base, tmp_path / "joined", data=data))
    padded, joined = weights(tmp_path / "padded"), weights(tmp_path / "joined")
    assert any(not torch.equal(padded[name], joined[name]) for name in padded)  # the rounding differs

    class Kill(TrainerCallback):
        def on_save(self, *_args: Any, **_kwargs: Any) -> None:
            raise KeyboardInterrupt

    output = tmp_path / "old"
    settings = config(base, output, data=data)
    with pytest.raises(KeyboardInterrupt):
        quietly(replace(settings, padding_free=False), callbacks=[Kill()])
    run = json.loads((output / RUN_FILE).read_text())
    del run["config"]["padding_free"]
    (output / RUN_FILE).write_text(json.dumps(run))
    said = quietly(settings)[1]
    assert "resuming from checkpoint-4" in said
    assert f"{output} was begun by a version that did not have padding_free: it goes on as it was" in said
    assert_bit_equal(tmp_path / "padded", output)
    assert quietly(settings)[0].already_done


def uneven(count: int) -> list[dict[str, Any]]:
    """Rows of which every other is long, so that laying them end to end is less work than padding."""
    rows = conversations(count)
    for row in rows[::2]:
        row["messages"][2]["content"] = "red cat " * 12
    return rows


def test_changed_data_is_refused(base: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", conversations(6))
    settings = config(base, tmp_path / "out", data=str(data), max_steps=2)
    quietly(settings)
    run = tmp_path / "out" / RUN_FILE
    run.write_text(json.dumps({**json.loads(run.read_text()), "result": None}))
    write_rows(data, conversations(6, seed=5))
    with pytest.raises(ValueError, match=r"changed since .* was begun"):
        quietly(settings)


def test_what_a_run_lacks_is_said_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"takes a TrainConfig, not str; .*load_recipe"):
        train("recipe.yaml")  # pyright: ignore[reportArgumentType]
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match="lora needs peft; in your clone, pip install"):
        train(TrainConfig(model="absent", data="absent", output_dir=str(tmp_path / "out"), method="lora"))
    assert not (tmp_path / "out").exists()


def test_a_run_killed_before_it_was_written_down_begins(base: Path, tmp_path: Path) -> None:
    """The Trainer makes an empty directory of checkpoints a moment earlier."""
    (tmp_path / "killed" / "checkpoints").mkdir(parents=True)
    result, _ = quietly(config(base, tmp_path / "killed", max_steps=1))
    assert result.steps == 1
    (tmp_path / "other" / "checkpoints" / "checkpoint-9").mkdir(parents=True)
    with pytest.raises(ValueError, match="holds checkpoints of something else"):
        quietly(config(base, tmp_path / "other", max_steps=1))


def test_output_directories_that_cannot_be_used(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds config\.json of something else"):
        quietly(config(base, base / "model"))
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match=r"cannot write to output_dir .*name another one"):
        quietly(config(base, tmp_path / "file" / "out"))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for content in ("{", "[]", '{"config": [], "data": "", "result": null}', '{"config": {}, "data": "", "result": 1}'):
        (damaged / RUN_FILE).write_text(content)
        with pytest.raises(ValueError, match=r"rolewise_run\.json is damaged"):
            quietly(config(base, damaged))


def test_a_full_disk_at_the_end_loses_nothing(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quietly(config(base, tmp_path / "whole"))
    settings = config(base, tmp_path / "out")
    original = RoleTrainer.save_model

    def full(self: RoleTrainer, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not _internal_call:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self, output_dir, _internal_call)

    with monkeypatch.context() as patch:
        patch.setattr(RoleTrainer, "save_model", full)
        with pytest.raises(OSError, match=r"the disk is full.*start the same command again"):
            quietly(settings)
    assert not (tmp_path / "out" / "model.safetensors").exists()
    result, said = quietly(settings)
    assert "resuming from checkpoint-12" in said
    assert result.train_loss > 1
    assert_bit_equal(tmp_path / "whole", tmp_path / "out")


def test_too_little_space_is_refused_before_training(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(OSError, match=r"the disk is full: 0.00 GB are free; about"):
        quietly(config(base, tmp_path / "out"))
    assert not (tmp_path / "out" / RUN_FILE).exists()


def test_bad_rows_stop_the_run_or_are_counted(base: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", conversations(4))
    with data.open("a") as file:
        file.write(
            '{"messages": [{"role": "nobody", "content": "x"}, {"role": "assistant", "content": "y"}]}\n{"mess\n'
        )
    settings = config(base, tmp_path / "out", data=str(data), max_steps=1)
    with pytest.raises(ValueError, match=r"rows\.jsonl:5: .*nobody[\s\S]*skip-bad"):
        quietly(settings)
    result, said = quietly(replace(settings, skip_bad=True))
    assert (result.rows, result.bad_rows) == (4, 2)
    assert "2 bad rows left out; the first: " in said


def test_long_rows(base: Path, tmp_path: Path) -> None:
    rows = conversations(4)
    rows[2]["messages"][2]["content"] = "red " * 500
    data = str(write_rows(tmp_path / "rows.jsonl", rows))
    _, tokenizer = rw.load(base / "model")
    settings = config(base, tmp_path / "out", data=data)
    with pytest.raises(ValueError, match=r"rows\.jsonl:3: the row has .* more than max_length=128"):
        prepare_data(settings, tokenizer)
    skipped = prepare_data(replace(settings, overflow="skip"), tokenizer)
    assert (skipped.dataset.num_rows, skipped.too_long) == (3, 1)
    cut = prepare_data(replace(settings, overflow="truncate_data"), tokenizer)
    assert (cut.dataset.num_rows, cut.truncated) == (4, 1)
    assert max(cut.dataset.lengths()) == 128
    assert cut.truncated_tokens > 300
    assert "1 rows lost" in cut.report("rows")


def test_loss_falls_on_every_assistant_turn_or_the_last(base: Path, tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "the first word"},
        {"role": "assistant", "content": "red cat"},
        {"role": "user", "content": "the last word"},
        {"role": "assistant", "content": "blue"},
    ]
    data = str(write_rows(tmp_path / "rows.jsonl", [{"messages": turns}]))
    _, tokenizer = rw.load(base / "model")

    def learned(train_on: Any) -> str:
        row = prepare_data(config(base, tmp_path / "out", data=data, train_on=train_on), tokenizer).dataset[0]
        return tokenizer.decode([label for label in row["labels"] if label != -100])

    assert learned("all") == "red cat<|im_end|>blue<|im_end|>"
    assert learned("last") == "blue<|im_end|>"


@pytest.mark.parametrize("template", ["delimiter", "auto"])
def test_base_model_gets_a_template_and_its_tokens(template: Any, tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "model", "qwen3", chat=False)
    data = str(write_rows(tmp_path / "rows.jsonl", conversations(4)))
    settings = TrainConfig(
        model=str(tmp_path / "model"), output_dir=str(tmp_path / "out"), data=data, template=template,
        learning_rate=0.0, cpu=True,
    )  # fmt: skip
    quietly(settings)
    _, tokenizer = rw.load(tmp_path / "out")
    start = "[MARK]" if template == "delimiter" else "<|im_start|>"
    assert start in rw.render(tokenizer, conversations(1)[0]["messages"]).text
    before = weights(tmp_path / "model")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        old, new = before[name], weights(tmp_path / "out")[name]
        assert len(new) >= len(tokenizer) > len(old)
        assert torch.equal(new[: len(old)], old), "the words that were there keep their embeddings"
        words = tokenizer.encode("###" if template == "delimiter" else "start", add_special_tokens=False)
        torch.testing.assert_close(new[tokenizer.convert_tokens_to_ids(start)], old[words].mean(0))
    with pytest.raises(ValueError, match=r"adds the tokens .*LoRA would leave untrained"):
        quietly(replace(settings, output_dir=str(tmp_path / "lora"), method="lora"))
