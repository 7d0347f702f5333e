"""What training must not take for a success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rolewise.training import TrainConfig, train
from rolewise.training.checkpoints import checkpoints, mark_complete, newest_complete
from rolewise.training.rows import BadRow, read_rows
from tests.training_model import save_tiny_model


def test_a_line_that_json_cannot_hold_is_a_bad_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"messages": ' + "[" * 100_000 + "\n" + '{"messages": ' + "9" * 5000 + "}\n")
    rows = list(read_rows(str(file)))
    assert len(rows) == 2
    assert all(isinstance(row, BadRow) for row in rows)


def _diverging(tmp_path: Path, learning_rate: float) -> TrainConfig:
    model = save_tiny_model(tmp_path / "base")
    data = tmp_path / "rows.jsonl"
    data.write_text('{"instruction": "copy", "input": "red", "output": "red"}\n' * 8)
    return TrainConfig(
        model=str(model), data=str(data), output_dir=str(tmp_path / "run"), dtype="fp32", batch_size=2, max_steps=4,
        learning_rate=learning_rate, max_grad_norm=0.0, logging_steps=10, save_steps=1, warmup=0, keep_checkpoints=0,
        schedule="constant",
    )  # fmt: skip


def test_a_run_whose_loss_is_no_number_stops_at_that_step(tmp_path: Path) -> None:
    config = _diverging(tmp_path, 1e30)
    for _ in range(2):  # resumed from the step before, it comes to the same end
        with pytest.raises(ValueError, match=r"NaN or infinite in step 2 .*1e\+30, 1e\+31 for the table.*Lower"):
            train(config, say=lambda line: None, progress=None)
        assert [path.name for path in checkpoints(tmp_path / "run" / "checkpoints")] == ["checkpoint-1"]
        assert not (tmp_path / "run" / "config.json").exists()


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"step 1 made weights NaN or infinite"):
        train(_diverging(tmp_path, 3e38), say=lambda line: None, progress=None)
    assert not checkpoints(tmp_path / "run" / "checkpoints")


def test_only_finite_checkpoints_are_resumed(tmp_path: Path) -> None:
    for step, loss in ((1, 2.0), (2, float("nan"))):
        checkpoint = tmp_path / f"checkpoint-{step}"
        checkpoint.mkdir()
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": [{"loss": loss, "step": step}]}))
        mark_complete(checkpoint)
    assert newest_complete(tmp_path) == tmp_path / "checkpoint-1"
