"""From a suite's rows to a task of inspect_ai: answers are kept, and all that decides an outcome is noted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import Scorer

from rolewise.evaluation.asking import ask, model_identity
from rolewise.evaluation.conversations import from_rolewise
from rolewise.evaluation.provider import RolewiseAPI
from rolewise.evaluation.testsets import data_bytes, file_digests
from rolewise.evaluation.watching import expect_answers


def make_task(
    rows: Iterable[Mapping[str, Any]],
    suite: str,
    source: str,
    *,
    scorers: Sequence[Scorer],
    max_tokens: int,
    temperature: float,
    epochs: int,
    answers: str | None,
    seed: int,
    data_role: str = "user",
    early_stop: bool = True,
    utility_tokens: int | None = None,
    files: Mapping[str, str | None] | None = None,
) -> Task:
    """The task that asks the model under test these rows.

    Args:
        rows: `{"messages": [...], "meta": {...}}`; meta has `id`, `condition` and `domain`.
        suite: the task's name.
        source: the file that the rows come from, or `generated`.
        scorers: one for each of the suite's criteria, by its name, and any others.
        max_tokens, temperature, epochs, answers, seed, data_role, early_stop, utility_tokens: as the suites have them.
        files: further files that decide the rows or the verdicts, by the argument that names each; noted by content.
    """
    api = get_model().api
    ours = isinstance(api, RolewiseAPI)
    samples = [
        Sample(
            id=f"{row['meta']['id']}/{row['meta']['condition']}",
            input=from_rolewise(row["messages"], data_role=data_role, with_calls=not ours),
            target=_target(row["meta"]),
            metadata={**row["meta"], "conversation": row["messages"]},
        )
        for row in rows
    ]
    expect_answers(len(samples) * epochs)
    settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    if temperature > 0:
        settings["seed"] = seed
    return Task(
        dataset=MemoryDataset(samples, name=Path(source).stem, location=source),
        solver=ask(config=settings, utility_tokens=utility_tokens, answers=answers, early_stop=early_stop),
        scorer=list(scorers),
        epochs=Epochs(epochs, "mean"),
        # Without this inspect_ai would start with a few requests at a time, and batches would be small.
        config=GenerateConfig(max_connections=api.max_connections()) if ours else GenerateConfig(),
        metadata={
            "data_sha256": hashlib.sha256(data_bytes(suite, source)).hexdigest()[:16],
            "versions": {name: version(name) for name in ("rolewise", "torch", "transformers", "inspect-ai")},
            "identity": model_identity(get_model()),
            **({"files": digests} if (digests := file_digests(files or {})) else {}),
        },
        version=1,
    )


def _target(meta: Mapping[str, Any]) -> str:
    """What inspect_ai shows beside an answer; our scorers judge by the metadata."""
    return meta.get("reference") or (meta.get("payload") or {}).get("witness") or ""
