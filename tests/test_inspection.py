"""Inspections of models: what they say, what they leave out, how they are compared and written."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rolewise as rw
from rolewise.attacks import HACKED
from rolewise.cli import main
from rolewise.commands.inspect_attention import labels_of
from rolewise.evaluation.testsets import load_test_samples
from rolewise.inspection import Inspection, Measurement, inspect_model, write_inspection
from rolewise.inspection.tables import thirds
from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.loading import has_table
from tests.models import plain_model, tiny_model
from tests.test_architectures import plain
from tests.training_model import save_tiny_model, tiny_tokenizer


def measurement(values: Sequence[Sequence[float | None]], **other: Any) -> Measurement:
    fields: dict[str, Any] = {
        "kind": "attention", "condition": "clean", "role": "data", "measure": "lift",
        "layers": tuple(range(1, len(values[0]) + 1)), "units": tuple(f"s{at}" for at in range(len(values))),
    }  # fmt: skip
    return Measurement(**{**fields, **other}, values=tuple(tuple(row) for row in values))


@pytest.fixture(scope="module")
def inspection() -> Inspection:
    return inspected(tiny_model("llama", vocab=len(tiny_tokenizer())))


def inspected(model: SegmentedCausalLM, **options: Any) -> Inspection:
    samples = load_test_samples("generated", HACKED, options.pop("limit", 10))
    return inspect_model(model, tiny_tokenizer(), samples, **options)


# --- figures ---------------------------------------------------------------------------------------------------


def test_an_estimate_is_the_mean_of_the_units_that_have_a_figure() -> None:
    one = measurement([[1.0, None], [3.0, 4.0], [2.0, None]])
    estimate = one.estimate(1)
    assert estimate is not None
    assert (estimate.value, estimate.n) == (2.0, 3)
    assert 1 <= estimate.low < 2 < estimate.high <= 3
    only = one.estimate(2)
    assert only is not None
    assert (only.value, only.n) == (4.0, 1)
    assert measurement([[None], [None]]).estimate(1) is None


def test_a_difference_is_paired_by_unit() -> None:
    one = measurement([[1.0], [5.0], [9.0], [4.0]])
    other = measurement([[8.0], [0.0], [4.0], [7.0]], units=("s2", "s0", "s1", "s9"))
    difference = one.difference(other, 1)
    assert difference is not None
    assert (difference.value, difference.low, difference.high, difference.n) == (1.0, 1.0, 1.0, 3)
    assert one.difference(replace(other, units=("a", "b", "c", "d")), 1) is None


def test_the_mean_over_layers_is_taken_of_each_unit() -> None:
    over = measurement([[1.0, 3.0, 8.0], [None, 5.0, 8.0], [None, None, 8.0]]).over([1, 2])
    assert over.values == ((2.0,), (5.0,), (None,))
    assert over.layers == (1,)


def test_thirds() -> None:
    assert thirds(range(1, 31)) == {"early": [*range(1, 11)], "middle": [*range(11, 21)], "late": [*range(21, 31)]}
    assert thirds([1, 2]) == {"early": [1], "late": [2]}
    assert thirds([4]) == {"early": [4], "late": [4]}


# --- a model ---------------------------------------------------------------------------------------------------


def test_everything_is_measured(inspection: Inspection) -> None:
    keys = {one.key for one in inspection.measurements}
    roles = {"system", "user", "data", "output"}
    for condition, groups in (("clean", roles), ("naive", roles | {"payload"})):
        for measure in ("share", "lift", "share_without_first", "lift_without_first"):
            assert {role for kind, c, role, m in keys if (kind, c, m) == ("attention", condition, measure)} == groups
    assert {c for kind, c, *_ in keys if kind == "probe"} == {"full", "segments", "template"}
    assert inspection.settings["samples"] == 10
    assert inspection.settings["pairs"] == 5
    assert inspection.model["layers"] == 2
    assert inspection.model["table_ratio"] == pytest.approx(1.0, abs=0.01)
    for one in inspection.measurements:
        assert len(one.values) == len(one.units) == (10 if one.kind == "attention" else 5)


def test_it_is_json_and_holds_no_text(inspection: Inspection) -> None:
    stored = json.dumps(inspection.to_dict())
    for sample in load_test_samples("generated", HACKED, 10):
        words = f"{sample.instruction} {sample.data} {sample.answer}".split()
        assert not any(" ".join(words[at : at + 3]) in stored for at in range(len(words) - 2))
    back = Inspection.from_dict(json.loads(stored))
    assert [one.key for one in back.measurements] == [one.key for one in inspection.measurements]
    for one, other in zip(back.measurements, inspection.measurements, strict=True):
        for row, wanted in zip(one.values, other.values, strict=True):
            assert row == pytest.approx(wanted, rel=1e-3)
    assert back.to_dict() == inspection.to_dict()
    assert {one.measure for one in inspection.only("lift", "offset").measurements} == {"lift", "offset"}
    with pytest.raises(ValueError, match="unknown measure 'lfit'"):
        inspection.only("lfit")
    with pytest.raises(ValueError, match="no stored inspection"):
        Inspection.from_dict({"label": "x"})


def test_the_same_twice(inspection: Inspection) -> None:
    again = inspected(tiny_model("llama", vocab=len(tiny_tokenizer())))
    assert again.measurements == inspection.measurements


def test_own_answers_are_the_models() -> None:
    from rolewise.generation import generate_batch
    from rolewise.inspection import run as module

    model = tiny_model("qwen3", vocab=len(tiny_tokenizer()))
    samples = load_test_samples("generated", HACKED, 3)
    rows = module._answer_rows(model, tiny_tokenizer(), samples, (), 0, "own", 5, False)
    from rolewise.samples import to_messages

    asked = [to_messages(sample, answer=False) for sample in samples]
    answers = dict(generate_batch(model, tiny_tokenizer(), asked, max_new_tokens=5))
    for number, row in enumerate(rows):
        written = tiny_tokenizer().encode(answers[number], add_special_tokens=False)
        assert [row.input_ids[at + 1] for at in row.queries][: len(written)] == written[: len(row.queries)]
    assert len({answers[number] for number in range(3)}) > 1


def test_a_scheme_with_fewer_roles_is_counted_by_its_rows() -> None:
    scheme = rw.RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
    model = rw.attach(plain_model("llama", vocab=len(tiny_tokenizer())), scheme=scheme, init_ratio=1.0)
    found = inspected(model, parts=("attention",), attacks=())
    assert {one.role for one in found.measurements} == {"instruction", "data", "output"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attacks": ("naiv",)}, "unknown attack 'naiv': did you mean 'naive'"),
        ({"attacks": ("naiv",), "parts": ("probe",)}, "unknown attack 'naiv': did you mean 'naive'"),
        ({"limit": 1, "parts": ("attention",)}, "1 samples are too few"),
        ({"limit": 6}, "3 pairs of passages are too few"),
        ({"parts": ("atention",)}, "parts=.*must be one or both of attention, probe"),
        ({"answers": "mine"}, "answers='mine' must be one of reference, own"),
        ({"answer_tokens": 0}, "answer_tokens=0 must be at least 1"),
    ],
)
def test_errors(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        inspected(tiny_model("llama", vocab=len(tiny_tokenizer())), **options)


def test_a_row_that_does_not_fit_is_refused() -> None:
    model = tiny_model("llama", vocab=len(tiny_tokenizer()))
    model.config.max_position_embeddings = 40
    with pytest.raises(ValueError, match=r"generated-\d/(clean|naive) has \d+ tokens .* 40 positions"):
        inspected(model, parts=("attention",))


# --- the command -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A plain model, and one with a table that was learnt, with the same weights."""
    directory = tmp_path_factory.mktemp("models")
    save_tiny_model(directory / "bare")
    model, _ = rw.load(directory / "bare", init_ratio=1.0)
    model.save_pretrained(directory / "ise")
    return str(directory / "bare"), str(directory / "ise")


def test_the_command(models: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "found"
    command = ["inspect-attention", models[1], models[0], "-o", str(target), "--limit", "8"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "attention, naive" in said.out
    assert "payload: lift, all layers" in said.out
    assert "probe, segments only" in said.out
    assert "bare: no segment table is in use" in said.err
    names = {
        f"{name}.{kind}"
        for name in ("attention-clean", "attention-naive", "probe-accuracy", "probe-offset")
        for kind in ("png", "svg")
    }
    names |= {"inspection.md", "attention.csv", "probe.csv", "inspection.json"}
    assert {path.name for path in target.iterdir()} == names

    with (target / "attention.csv").open() as file:
        rows = list(csv.DictReader(file))
    shares = [row for row in rows if (row["condition"], row["measure"], row["layer"]) == ("clean", "share", "2")]
    for name in ("ise", "bare"):
        assert sum(float(row["value"]) for row in shares if row["model"] == name) == pytest.approx(1, abs=1e-3)
    values = {(row["model"], row["role"]): row for row in shares}
    for role in ("user", "data"):
        apart = float(values["bare", role]["value"]) - float(values["ise", role]["value"])
        assert float(values["bare", role]["difference"]) == pytest.approx(apart, abs=1e-5)
        assert values["ise", role]["difference"] == ""
    with (target / "probe.csv").open() as file:
        probes = list(csv.DictReader(file))
    assert {row["condition"] for row in probes if row["model"] == "bare"} == {"template"}
    assert {row["n"] for row in probes} == {"4"}

    text = (target / "inspection.md").read_text()
    for path in re.findall(r"\]\(([^)]+)\)", text):
        assert (target / path).is_file()
    assert "8 samples of generated, 4 pairs of passages; clean and under naive" in text

    stored = json.loads((target / "inspection.json").read_text())["models"]
    assert [one["label"] for one in stored] == ["ise", "bare"]
    assert str(tmp_path) not in (target / "inspection.json").read_text() + text

    before = {path.name: path.read_bytes() for path in target.iterdir() if path.name != "inspection.json"}
    assert main(command) == 0  # over its own
    assert {path.name: path.read_bytes() for path in target.iterdir() if path.name != "inspection.json"} == before


def test_a_foreign_directory_is_left_alone(
    models: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inspection.json").write_text('{"mine": 1}')
    assert main(["inspect-attention", models[0], "-o", str(tmp_path)]) == 2
    assert "is not empty, and holds no inspection of ours" in capsys.readouterr().err
    assert main(["inspect-attention", models[0], "-o", str(tmp_path / "inspection.json")]) == 2
    assert "is a file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["inspection.json"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--attack", "naiv"], "unknown attack 'naiv': did you mean 'naive'"),
        (["--payload", "hackd"], "did you mean 'hacked'"),
        (["--limit", "0"], "--limit 0 must be at least 1"),
        (["--data", "absent.json"], "no test file 'absent.json'"),
        (["--limit", "4"], "2 pairs of passages are too few"),
        (["--limit", "4"], "(--limit 8), or leave the probe out (--parts attention)"),
        (["--attacks", "naiv"], "unknown attack 'naiv'"),
        (["--parts", "heads"], "--parts"),
        (["bare"], "no model 'bare'"),
    ],
)
def test_command_errors(
    models: tuple[str, str], options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [] if "--limit" in options else ["--limit", "8"]
    assert main(["inspect-attention", models[0], *options, *given, "-o", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "loading" not in error, "no model is loaded in vain"
    assert not (tmp_path / "new").exists()


def test_an_earlier_inspection_leaves_no_figures_behind(inspection: Inspection, tmp_path: Path) -> None:
    write_inspection([inspection], tmp_path)
    (tmp_path / "attention-notes.png").write_text("mine")
    clean = [one for one in inspection.measurements if one.condition == "clean"]
    write_inspection([replace(inspection, measurements=tuple(clean))], tmp_path)
    figures = {path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".svg")}
    assert figures == {"attention-clean.png", "attention-clean.svg", "attention-notes.png"}


@pytest.mark.parametrize("killed_at", [0, 1, 2, 11])
def test_a_killed_write_is_done_again(
    killed_at: int, inspection: Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    written: list[str] = []

    def killed(before: Any, after: Any) -> None:
        if len(written) == killed_at:
            raise KeyboardInterrupt
        written.append(str(after))
        Path(before).rename(after)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_inspection([inspection], tmp_path / "x")
    monkeypatch.undo()
    paths = write_inspection([inspection], tmp_path / "x")
    assert len(paths) == 12
    assert set((tmp_path / "x").iterdir()) == set(paths)


def test_a_caption_names_the_data_and_what_there_is(inspection: Inspection) -> None:
    from rolewise.inspection.figures import _note
    from rolewise.inspection.write import markdown

    settings = {**inspection.settings, "data": "rows.json"}
    assert _note([replace(inspection, settings=settings)]) == (
        "10 samples of rows.json, 5 pairs of passages, seed 0; bands are 95 % intervals over samples, or over pairs."
    )
    attention = tuple(one for one in inspection.measurements if one.kind == "attention")
    alone = replace(inspection, settings={**settings, "pairs": 0}, measurements=attention)
    assert _note([alone]) == "10 samples of rows.json, seed 0; bands are 95 % intervals over samples."
    assert "pairs of passages" not in markdown([alone], [])


def test_axes_hold_the_intervals_and_tick_whole_layers(inspection: Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    from rolewise.inspection import figures as module

    wide = measurement([[1.0, 1.0], [9.0, 9.0]], measure="lift_without_first")
    drawn: list[Figure] = []

    def keep(name: str, title: str, description: str, draw: Any, *_: Any) -> Any:
        drawn.append(Figure())
        draw(drawn[0])

    monkeypatch.setattr(module, "drawn_as", keep)
    module.drawings([replace(inspection, measurements=(wide,))])
    axes = drawn[0].axes[1]
    estimate = wide.estimate(1)
    assert estimate is not None
    low, high = axes.get_ylim()
    assert low < estimate.low < estimate.value * 0.8
    assert estimate.value * 1.25 < estimate.high < high
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_a_model_without_attention_is_told_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    model = plain("mamba")
    torch.manual_seed(0)
    model.resize_token_embeddings(len(tiny_tokenizer()))
    model.config.max_position_embeddings = None  # a Mamba has no positions
    model.save_pretrained(tmp_path / "mamba")
    tiny_tokenizer().save_pretrained(tmp_path / "mamba")
    command = ["inspect-attention", str(tmp_path / "mamba"), "-o", str(tmp_path / "out"), "--limit", "8"]
    assert main(command) == 2
    assert "--parts probe" in capsys.readouterr().err
    assert main([*command, "--parts", "probe"]) == 0
    assert not (tmp_path / "out" / "attention-clean.svg").exists()


def test_files_of_our_data_are_read(models: tuple[str, str], tmp_path: Path) -> None:
    data = tmp_path / "alpaca.json"
    rows = [{"instruction": f"Shorten {n}.", "input": f"the first red cat {n}", "output": "cat"} for n in range(3)]
    data.write_text(json.dumps(rows))
    command = ["inspect-attention", models[1], "--data", str(data), "--parts", "attention", "--attack", "none"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 0
    with (tmp_path / "out" / "attention.csv").open() as file:
        found = list(csv.DictReader(file))
    assert {row["condition"] for row in found} == {"clean"}
    assert {row["n"] for row in found} == {"3"}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing. is deprecated:FutureWarning")  # PEFT's own
def test_which_weights_have_a_table(models: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from rolewise.training.config import LoraConfig
    from rolewise.training.lora import add_lora

    assert not has_table(models[0])
    assert has_table(models[1])
    model, _ = rw.load(models[0])
    add_lora(model, LoraConfig(), base=models[0]).save_pretrained(tmp_path / "adapter")
    assert has_table(str(tmp_path / "adapter"))


def test_labels() -> None:
    assert labels_of(["runs/ise", "smollm2-135m"]) == ["ise", "smollm2-135m"]
    assert labels_of(["/a/one/model", "/a/two/model"]) == ["one/model", "two/model"]


def test_two_of_one_name_are_refused(inspection: Inspection, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="each for one model"):
        write_inspection([inspection, inspection], tmp_path / "x")
    assert math.isfinite(inspection.seconds)
