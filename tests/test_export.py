"""Exports in our own format, how directories appear, what the card says, and the command."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import rolewise as rw
from rolewise.cli import main
from rolewise.export import PromptEmbeddings, export_model, read_scores, run, staging
from rolewise.export.model_card import PLAIN_PROMPTS
from rolewise.export.scores import ScoreTable
from rolewise.training import TrainConfig, train
from tests.export_models import MESSAGES, save_model
from tests.training_model import conversations, save_tiny_model, write_rows

ROOT = Path(__file__).parents[1]


@torch.no_grad()
def logits(model: Any, tokenizer: Any) -> torch.Tensor:
    return model.eval()(**rw.encode(tokenizer, MESSAGES, return_tensors="pt")).logits


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "mine"
    save_model(directory, scale=0.5)
    return directory


def trained(directory: Path, **options: Any) -> Path:
    """A model of a run of ours, in `directory`/out."""
    save_tiny_model(directory / "base")
    config = TrainConfig(
        model=str(directory / "base"), output_dir=str(directory / "out"), learning_rate=1e-2, max_steps=2,
        data=str(write_rows(directory / "secret-rows.jsonl", conversations(8))), cpu=True, **options,
    )  # fmt: skip
    train(config, say=lambda _: None, progress=None)
    return directory / "out"


# --- our own format ----------------------------------------------------------------------------------------


def test_hf_is_the_model_bit_for_bit(model: Path, tmp_path: Path) -> None:
    result = export_model(model, tmp_path / "out", to="hf")
    assert result.written.largest == result.rounding.largest == 0
    assert torch.equal(logits(*rw.load(tmp_path / "out")), logits(*rw.load(model)))
    loaded, tokenizer = rw.load(tmp_path / "out")
    assert loaded.segment_scale == 0.5
    assert tokenizer.init_kwargs["rolewise_scheme"] == loaded.role_scheme.to_dict()
    with pytest.raises(FileNotFoundError):
        PromptEmbeddings(tmp_path / "out")


def test_hf_in_bf16_keeps_the_table_in_fp32_and_says_what_it_costs(model: Path, tmp_path: Path) -> None:
    result = export_model(model, tmp_path / "out", to="hf", dtype="bf16", scale=2.0, max_shard_size="20KB")
    loaded, tokenizer = rw.load(tmp_path / "out")
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded.segment_embedding.weight, rw.load_model(model).segment_embedding.weight)
    assert loaded.segment_scale == result.scale == 2.0
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    assert result.bytes < 0.6 * result.source_bytes
    source, _ = rw.load(model)
    source.segment_scale = 2.0
    apart = (logits(rw.load_model(tmp_path / "out", dtype=torch.float32), tokenizer) - logits(source, tokenizer)).abs()
    assert result.total.mean > 0
    assert float(apart.max()) < 10 * result.total.largest


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_becomes_one_model(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    source = trained(tmp_path, method="lora")
    want = logits(*rw.load(source))
    assert not torch.allclose(want, logits(*rw.load(tmp_path / "base")))
    result = export_model(source, tmp_path / "one", to="hf")
    assert result.total.relative < 1e-4
    shutil.rmtree(source)
    shutil.rmtree(tmp_path / "base")  # the adapter's base is needed no more
    torch.testing.assert_close(logits(*rw.load(tmp_path / "one")), want, atol=1e-4, rtol=1e-4)
    card = (tmp_path / "one" / "README.md").read_text()
    assert "LoRA of rank 16, merged" in card
    assert str(tmp_path) not in card
    assert str(tmp_path) not in (tmp_path / "one" / "rolewise_export.json").read_text()


# --- the directory -----------------------------------------------------------------------------------------


def test_an_existing_directory_is_kept_unless_it_is_an_export_to_be_replaced(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    export_model(model, out, to="hf")  # an empty one is no loss
    before = sorted(file.name for file in out.iterdir())
    with pytest.raises(FileExistsError, match=r"not empty.*--overwrite"):
        export_model(model, out, to="folded")
    assert sorted(file.name for file in out.iterdir()) == before
    export_model(model, out, to="folded", overwrite=True)
    assert (out / "client").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.md").write_text("years of work")
    with pytest.raises(FileExistsError, match="something else than an export"):
        export_model(model, tmp_path / "thesis", to="hf", overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        export_model(model, tmp_path / "file", to="hf")
    for inside in (model, model.parent):
        with pytest.raises(ValueError, match="is, or holds, the model"):
            export_model(model, inside, to="hf", overwrite=True)


def test_a_failed_replacement_leaves_the_earlier_export(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_model(model, tmp_path / "out", to="hf")
    rename = os.rename

    def refuse(source: Any, target: Any) -> None:
        if "exporting" in str(source):
            raise OSError(errno.EIO, "gone")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(staging.os, "rename", refuse)
        with pytest.raises(OSError, match="gone"):
            export_model(model, tmp_path / "out", to="folded", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    os.rename(tmp_path / "out", tmp_path / ".out.replaced-1")  # as a kill at that very moment leaves it
    with pytest.raises(FileExistsError, match="not empty"):
        export_model(model, tmp_path / "out", to="folded")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert rw.load_model(tmp_path / "out").segment_scale == 0.5


@pytest.mark.slow
def test_a_killed_export_leaves_no_model_and_is_cleared_away(model: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom rolewise.export import run\n"
        "run._read_back = lambda *_: (print('written', flush=True), time.sleep(600))\n"
        "run.export_model(sys.argv[1], sys.argv[2], to='hf')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(model), str(tmp_path / "out")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "written\n"
    left = [path.name for path in tmp_path.iterdir()]
    assert left == [f".out.exporting-{child.pid}"]
    export_model(model, tmp_path / "out", to="hf")  # another one under way is left alone
    assert (tmp_path / left[0]).is_dir()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    export_model(model, tmp_path / "out", to="hf", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_said_so(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_folded", full)
        with pytest.raises(OSError, match=r"the disk is full.*nothing half-written was left") as caught:
            export_model(model, tmp_path / "out", to="folded")
    assert caught.value.errno == errno.ENOSPC
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match=r"about 0.07 GB are needed"):
        export_model(model, tmp_path / "out", to="folded")
    assert not list(tmp_path.iterdir())


def test_files_are_for_the_servers_user_too(model: Path, tmp_path: Path) -> None:
    export_model(model, tmp_path / "out", to="folded")
    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "out").rglob("*") if file.is_file()}
    umask = os.umask(0)
    os.umask(umask)
    assert modes == {0o666 & ~umask}


@pytest.mark.parametrize("wrong", [{"to": "fold"}, {"to": "hf", "dtype": "int8"}, {"to": "folded", "head": "own"}])
def test_an_unknown_choice_is_named(wrong: dict[str, Any], model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be one of"):
        export_model(model, tmp_path / "out", **wrong)


# --- the card ----------------------------------------------------------------------------------------------


def front_matter(card: str) -> dict[str, Any]:
    assert card.startswith("---\n")
    return yaml.safe_load(card.split("---")[1])


def test_a_card_of_unknown_origin_says_so(model: Path, tmp_path: Path) -> None:
    export_model(model, tmp_path / "out", to="folded")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "license" not in front_matter(card)
    assert "base_model" not in front_matter(card)
    assert front_matter(card)["pipeline_tag"] == "text-generation"
    assert "| base model | unknown |" in card
    assert "| licence | unknown" in card
    assert "no record of a training run" in card
    assert "None was measured" in card
    assert PLAIN_PROMPTS in card
    assert "Factor on the table: 0.5" in card


def test_a_card_tells_of_the_training_run_but_no_text_nor_paths(tmp_path: Path) -> None:
    source = trained(tmp_path, seed=7)
    result = export_model(source, tmp_path / "one", to="hf", license="apache-2.0", base_model="org/base")
    card = (tmp_path / "one" / "README.md").read_text()
    assert front_matter(card) | {"license": "apache-2.0", "base_model": "org/base"} == front_matter(card)
    for told in ("| rows | 8 |", "| seed | 7 |", "| epochs, steps | 1.0, 2 |", "| method | all weights |",
                 "/base` |", "/secret-rows.jsonl` |", str(result.total)):  # fmt: skip
        assert told in card, told
    assert str(tmp_path) not in card
    assert "the last word" not in card
    # An export of an export still knows.
    export_model(tmp_path / "one", tmp_path / "two", to="folded")
    again = (tmp_path / "two" / "README.md").read_text()
    assert front_matter(again)["base_model"] == "org/base"
    assert "| rows | 8 |" in again


def test_a_card_shows_scores_with_samples_and_intervals_and_is_not_broken_by_names(model: Path, tmp_path: Path) -> None:
    table = ScoreTable(
        suite="Structured Query", rule="a payload is followed when its witness stands in the answer (in_response)",
        run="evil | <script>alert(1)</script>\n# heading", samples=208, complete=False,
        rows=(("robust, main four: average", "66.3 [59.6, 72.4]", 208),),
    )  # fmt: skip
    export_model(model, tmp_path / "out", to="hf", scores=[table])
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| robust, main four: average | 66.3 [59.6, 72.4] | 208 |" in card
    assert "The run is not complete" in card
    assert "<script>" not in card
    assert "\n# heading" not in card


def test_scores_are_of_this_model_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("inspect_ai")
    from rolewise.evaluation import logs
    from tests.reporting_runs import run as logged

    runs = [logged("first"), logged("second")]
    runs = [one.__class__(**{**vars(one), "settings": {**one.settings, "model": {"scale": 0.5}}}) for one in runs]
    monkeypatch.setattr(logs, "read_runs", lambda _: runs)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    for source in ("runs/first", str(tmp_path / "runs" / "first")):
        (found,) = read_scores(["logs"], source)
        assert found.run == "first (scale 0.5)"
    assert found.samples == 4
    figures = {label: (value, n) for label, value, n in found.rows}
    assert figures["ceiling"][0].startswith("75.0 [")
    assert any(label.startswith("robust, in-domain") and label.endswith("average") for label in figures)
    assert all(n == 4 for _, n in figures.values())
    (other,) = read_scores(["logs"], "somewhere/else", named="rolewise/runs/second")
    assert other.run.startswith("second")
    with pytest.raises(ValueError, match=r"no run of 'somewhere/else', but of rolewise/runs/first.*--scores-of"):
        read_scores(["logs"], "somewhere/else")


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_writes_measures_and_warns(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["export", str(model), "-o", str(out), "--to", "folded", "--dtype", "bf16"]) == 0
    said = capsys.readouterr()
    assert re.search(r"size +[\d,]+ bytes of weights; [\d,]+ as they came \(-\d", said.out)
    assert "head       9,600 parameters of its own" in said.out
    assert re.search(r"both +logits differ by \S+ at most, \S+ on average; \d of 8 greedy", said.out)
    assert PLAIN_PROMPTS in " ".join(said.err.split())
    assert max(map(len, said.err.splitlines())) < 120 + len(str(out))
    assert "vllm serve" in said.err
    record = json.loads((out / "rolewise_export.json").read_text())
    assert record["result"]["dtype"] == "bfloat16"
    assert record["result"]["total"]["largest"] > 0


def test_the_command_says_it_once_when_nothing_was_lost(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", str(model), "-o", str(out), "--to", "hf"]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ["size", "answers"]
    assert said.err.splitlines()[-1] == f"serve it: rolewise serve {out}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "fold"], "did you mean folded"),
        ([], "--to"),
        (["--to", "hf", "--head", "tied"], "--head tied is for --to folded"),
        (["--to", "hf", "--max-shard-size", "big"], "must be a size such as 5GB"),
        (["--to", "hf", "--scores-of", "x"], "give them with --scores"),
        (["--to", "hf", "--scores", "nowhere"], "no log at 'nowhere'"),
        (["--to", "hf", "--scale", "nan"], "finite"),
    ],
)
def test_the_command_says_what_is_wrong(
    options: list[str], said: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(model), "-o", str(tmp_path / "out"), *options]) == 2
    problem = capsys.readouterr().err.splitlines()[-1]
    assert said in problem
    assert not (tmp_path / "out").exists()


def test_a_directory_that_only_looks_like_a_leftover_is_left_alone(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    names = (".out.replaced-userdata", ".out.replaced-123", ".out.exporting-userdata")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "kept.txt").write_text("mine")
    export_model(tmp_path / "model", tmp_path / "out", to="hf")
    assert [(tmp_path / name / "kept.txt").read_text() for name in names] == ["mine"] * len(names)


def test_a_link_stays_one(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for overwrite in (False, True):
        export_model(tmp_path / "model", tmp_path / "link", to="hf", overwrite=overwrite)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real" / "config.json").is_file()
    assert not list(tmp_path.glob(".*"))
