"""The progress bar of a run: steps, loss and time left."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TypeVar

from tqdm import tqdm
from transformers import TrainerCallback

_Item = TypeVar("_Item")


class ProgressBar(TrainerCallback):
    """One line on standard error: steps done, loss, time left."""

    def __init__(self, description: str = "training") -> None:
        self._description = description
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Show the bar, from the step that the run resumes at."""
        if state.is_world_process_zero:
            self._bar = tqdm(
                total=state.max_steps,
                initial=state.global_step,
                desc=self._description,
                unit="step",
                file=sys.stderr,
                dynamic_ncols=True,
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a step."""
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the losses."""
        if self._bar is not None and logs:
            shown = {name: f"{logs[name]:.4f}" for name in ("loss", "eval_loss") if name in logs}
            if shown:
                self._bar.set_postfix(shown)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def counted(items: Iterable[_Item], description: str, *, shown: bool) -> Iterable[_Item]:
    """`items` behind a counter that appears when there is something to wait for."""
    return tqdm(items, desc=description, unit="row", disable=not shown, delay=1.0, file=sys.stderr, dynamic_ncols=True)
