"""`rolewise eval` tells what can be known before the first model is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai", reason="needs rolewise[eval]")

from rolewise.cli import main
from tests.training_model import save_tiny_model


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps([{"instruction": "Shorten.", "input": "A cat sat.", "output": "Cat."}]))
    return str(path)


@pytest.mark.parametrize(
    ("models", "options", "said"),
    [
        ("mockllm/model", ["--suite", "direct-injection"], "has no row without an input"),
        ("mockllm/model", ["--suite", "sep"], "needs text under 'system_prompt_clean'"),
        ("mockllm/model", ["--suite", "harmful"], "lacks the column"),
        ("mockllm/model", ["--suite", "adaptive", "--budget", "0"], "--budget 0 must be at least 1"),
        ("mockllm/model", ["--suite", "adaptive", "--method", "gcgg"], "did you mean 'gcg'"),
        ("mockllm/model", ["--suite", "adaptive", "--method", "pair"], "give --attacker provider/model"),
        ("mockllm/model", ["--system", " "], "the system message is empty"),
        ("mockllm/model mockllm/b", ["--suite", "adaptive", "--method", "gcg,pair"], "leave the model or gcg out"),
        ("mockllm/model openai/gpt-4o", [], "model 'openai/gpt-4o' cannot be used: "),
        ("mockllm/model", ["--log-dir", "taken"], "--log-dir taken cannot be a directory (it is a file)"),
        (
            "mockllm/model",
            ["--batch-size", "4", "--dtype", "bf16"],
            "--batch-size 4, --dtype bf16: for Rolewise models",
        ),
        ("mockllm/model", ["--device", "meta"], "--device meta holds no numbers; leave it out to use"),
        ("mockllm/model", ["--device", "nonsense:0"], "--device nonsense:0 cannot be used here"),
    ],
)
def test_what_can_be_known_is_told_before_any_model_is_run(
    data: str,
    models: str,
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """An error in the second model, or in a row, is not found out after an hour of the first one's answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Path("taken").write_text("")
    assert main(["eval", *models.split(), "--data", data, *options]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "evaluating" not in told
    assert "[/" not in told, "no markup"
    assert not Path("logs").exists()


def test_options_of_our_models_are_said_to_be_for_them(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = save_tiny_model(tmp_path / "model")
    command = ["eval", str(model), "mockllm/model", "--data", data, "--attacks", "naive", "--max-new-tokens", "2"]
    assert main([*command, "--batch-size", "4", "--log-dir", str(tmp_path / "logs")]) == 0
    told = capsys.readouterr().err
    assert "evaluating mockllm/model … (--batch-size 4: for Rolewise models, not for this one)" in told
    assert told.count("--batch-size") == 1


def test_a_model_with_a_table_is_no_model_of_another_provider(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    import rolewise as rw
    from tests.models import tiny_model
    from tests.training_model import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tiny_model("llama", vocab=len(tokenizer)).save_pretrained(tmp_path / "ise")
    tokenizer.save_pretrained(tmp_path / "ise")
    assert rw.load(tmp_path / "ise")
    assert main(["eval", f"hf/{tmp_path / 'ise'}", "--data", data, "--log-dir", str(tmp_path / "logs")]) == 2
    assert "has a segment table, which hf/ cannot tell roles; leave hf/ out" in capsys.readouterr().err
