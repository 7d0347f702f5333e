"""`rolewise inspect-attention`: where answers attend, and how far each layer tells user from data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from rolewise.commands.arguments import parse
from rolewise.commands.models import load_quietly, say

if TYPE_CHECKING:
    from rolewise.inspection import Inspection

TEACH = """Look inside models: where does an answer attend, and does each layer still know who is speaking?

Attention: for every layer, the share that goes from the answer to the tokens of each role, and to an injected payload,
on clean and attacked rows. Beside it stands the lift, attention per token over even attention, and both without the
first token, which soaks up attention whatever it is. Probe: for every layer, how well a linear classifier tells the
user's words from data that are the very same words: by template and segments, by segments alone, by template alone.

A model is a directory, a hub id or "smollm2-135m"; one without a segment table is probed by its template alone. The
first is the reference: the CSV files have the others' differences to it, paired by sample.

examples:
  rolewise inspect-attention runs/quickstart/models/delimiter runs/quickstart/models/delimiter+ISE -o inspection
  rolewise inspect-attention runs/ise --attack ignore,completion_real --answers own -o own-answers
  rolewise inspect-attention runs/ise --data davinci_003_outputs.json --limit 100 -o alpaca
  rolewise inspect-attention state-spaces/mamba-130m-hf --parts probe -o mamba
"""


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """What `rolewise inspect-attention` does."""

    models: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL...")]
    """Models to look into; the first is the reference."""
    output: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """The directory to write; it is made. An earlier inspection in it is replaced."""
    data: str = "generated"
    """A file of AlpacaEval's rows (instruction, input, output), or generated, for rows that need no file."""
    attack: Annotated[str, tyro.conf.arg(aliases=["--attacks"])] = "naive"
    """Names of attacks, separated by commas (rolewise attacks lists them), or none."""
    payload: str = "hacked"
    """What is injected, by name; rolewise attacks --payloads lists them."""
    parts: tuple[Literal["attention", "probe"], ...] = ("attention", "probe")
    """What to measure."""
    answers: Literal["reference", "own"] = "reference"
    """Which answer is read: the right one, the same for all models, or the model's own greedy one."""
    answer_tokens: int = 64
    """The most tokens of an answer."""
    limit: int = 40
    """How many samples, the first ones. The probe needs 8 whose data differ."""
    seed: int = 0
    """Of what attacks draw, and of which passages train a probe."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("name at least one model, such as smollm2-135m")
        if repeated := sorted({name for name in self.models if self.models.count(name) > 1}):
            raise ValueError(f"{repeated[0]} is named twice; name each model once")
        for name in ("limit", "answer_tokens"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"--{name.replace('_', '-')} {value} must be at least 1")
        if not self.parts:
            raise ValueError("--parts names nothing to measure; give attention, probe or both")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(InspectConfig, arguments, command="inspect-attention", teach=TEACH)
    from rolewise.attacks import payload_named
    from rolewise.evaluation.testsets import GENERATED, chosen_attacks, find_data, load_test_samples
    from rolewise.inspection.write import check_directory

    attacks = [] if config.attack.strip() == "none" else chosen_attacks(config.attack)
    payload = payload_named(config.payload)
    target = check_directory(config.output)
    source = find_data("structured_query", config.data)
    samples = load_test_samples(source, payload, config.limit)

    from rich.console import Console

    from rolewise.inspection import inspect_model, write_inspection
    from rolewise.inspection.run import check_samples
    from rolewise.inspection.tables import summary_table
    from rolewise.modeling.loading import has_table

    # What can be known to fail fails before a model is loaded; every name is looked up before the first one is.
    check_samples(samples, config.parts)
    bare = {name for name in config.models if not has_table(name)}
    target.mkdir(parents=True, exist_ok=True)
    inspections: list[Inspection] = []
    for name, label in zip(config.models, labels_of(config.models), strict=True):
        # A model that has no table yet gets none: its random start would say nothing.
        model, tokenizer = load_quietly(name, scale=0.0 if name in bare else None)
        inspections.append(
            inspect_model(
                model,
                tokenizer,
                samples,
                label=label,
                attacks=attacks,
                seed=config.seed,
                answers=config.answers,
                answer_tokens=config.answer_tokens,
                parts=config.parts,
                data=source if source == GENERATED else Path(source).name,
                progress=True,
            )
        )
        for remark in inspections[-1].remarks:
            say(f"{label}: {remark}")
        del model, tokenizer
    paths = write_inspection(inspections, target)
    console = Console() if sys.stdout.isatty() else Console(width=50 + 30 * len(inspections))
    console.print(summary_table(inspections))
    say(f"{len(paths)} files in {config.output}: open {target / 'inspection.md'}")
    return 0


def labels_of(names: Sequence[str]) -> list[str]:
    """Short names: the last part of each, or more of it where two would be the same."""
    parts = [Path(name).parts or (name,) for name in names]
    for size in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(part[-size:]) for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    return list(names)
