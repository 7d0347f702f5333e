"""What training must not take for a success."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolewise.training import TrainConfig, train
from rolewise.training.rows import BadRow, read_rows
from tests.training_model import save_tiny_model


def test_a_line_that_json_cannot_hold_is_a_bad_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"messages": ' + "[" * 100_000 + "\n" + '{"messages": ' + "9" * 5000 + "}\n")
    rows = list(read_rows(str(file)))
    assert len(rows) == 2
    assert all(isinstance(row, BadRow) for row in rows)


def test_a_run_whose_loss_is_no_number_saves_no_model(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "base")
    data = tmp_path / "rows.jsonl"
    data.write_text('{"instruction": "copy", "input": "red", "output": "red"}\n' * 8)
    config = TrainConfig(
        model=str(model), data=str(data), output_dir=str(tmp_path / "run"), dtype="fp32", batch_size=2, max_steps=4,
        learning_rate=1e30, max_grad_norm=0.0, logging_steps=1,
    )  # fmt: skip
    with pytest.raises(ValueError, match="NaN or infinite"):
        train(config, say=lambda line: None, progress=None)
    assert not (tmp_path / "run" / "config.json").exists()
