"""`rolewise export`: a model for others to use, whole in one directory or folded for stock engines."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from rolewise.commands.arguments import named_as_options, parse
from rolewise.commands.models import quiet_libraries, say

if TYPE_CHECKING:
    from rolewise.export import ExportResult

TEACH = """Write a trained model for others to use, with a model card, and see that it answers as before.

With --to hf it is our own format, whole: adapters are merged, tokenizer, template and roles lie beside the weights, and
rolewise.load reads it. With --to folded it is a checkpoint of the base architecture, for a stock engine that takes
prompt embeddings, such as vLLM. OUTPUT's row is in its token embeddings; a client (rolewise.export.FoldedClient) sends
prompts as embeddings. A stock engine cannot refuse a plain text prompt, and all of that is OUTPUT: let only the client
reach it.

The directory appears whole or not at all. What the dtype and the form cost is measured and printed. The work takes 4
to 6 bytes of memory a parameter.

examples:
  rolewise export runs/ise -o my-model --to hf --dtype bf16
  rolewise export runs/ise -o folded --to folded
  rolewise export runs/lora -o my-model --to hf --scores logs --license apache-2.0
  rolewise serve my-model
  vllm serve folded --enable-prompt-embeds
"""


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """What `rolewise export` does."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A trained model, a checkpoint of a run, or a PEFT adapter."""
    output: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="DIR")]
    """The directory to write; it is made."""
    to: Literal["hf", "folded"]
    """Our own format in one directory, or folded for stock engines."""
    dtype: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """Of the weights; auto keeps what the model has. The table stays in fp32."""
    scale: float | None = None
    """Factor on the table, saved or folded in, in place of the model's own."""
    head: Literal["untied", "tied"] = "untied"
    """Folded only, where the head shares its weights with the token embeddings: untied gives it its own, so that
    logits stay what they are; tied adds no parameters, and one number to all logits of a position, which softmax does
    not see."""
    max_shard_size: str = "5GB"
    """The most that a file of weights holds."""
    scores: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LOGS")] = ()
    """Logs of rolewise eval, or directories of them: their figures of this model go into the card."""
    scores_of: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The model's name in these logs, where it was evaluated under another path."""
    base_model: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """The base model's hub id for the card, where the model does not say."""
    license: str | None = None
    """The licence for the card, where the model does not say; an identifier such as apache-2.0."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace an earlier export in DIR."""

    def __post_init__(self) -> None:
        if not self.output.strip():
            raise ValueError("no directory is named; give one with -o, such as -o my-model")
        if not re.fullmatch(r"[1-9]\d*\s*([KMGT]i?B)", self.max_shard_size):
            raise ValueError(f"--max-shard-size {self.max_shard_size!r} must be a size such as 5GB or 500MB")
        if self.head == "tied" and self.to == "hf":
            raise ValueError("--head tied is for --to folded; with --to hf the head stays as it is")
        if self.scores_of is not None and not self.scores:
            raise ValueError(f"--scores-of {self.scores_of} names a model in logs; give them with --scores")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(ExportConfig, arguments, command="export", teach=TEACH)
    quiet_libraries()
    from rolewise.export import export_model, read_scores

    scores = read_scores(config.scores, config.model, named=config.scores_of) if config.scores else []
    with named_as_options(ExportConfig):
        result = export_model(
            config.model,
            config.output,
            to=config.to,
            dtype=config.dtype,
            scale=config.scale,
            head=config.head,
            max_shard_size=config.max_shard_size,
            base_model=config.base_model,
            license=config.license,
            scores=scores,
            overwrite=config.overwrite,
            say=say,
        )
    print("\n".join(_report(result)))
    for line in _notes(result, bool(scores)):
        say(line)
    return 0


def _report(result: ExportResult) -> list[str]:
    grown = result.bytes / result.source_bytes - 1
    lines = [
        f"{result.directory}: {result.to}, {result.dtype}",
        f"size       {result.bytes:,} bytes of weights; {result.source_bytes:,} as they came ({grown:+.1%})",
    ]
    if result.added_parameters:
        lines.append(f"head       {result.added_parameters:,} parameters of its own, shared before")
    costs = {"rounding": result.rounding, "form": result.written, "both": result.total}
    if not any(cost.largest for cost in costs.values()):
        return [*lines, f"answers    as the model's own, bit for bit: {result.total}"]
    return [*lines, *(f"{name:<11}{cost}" for name, cost in costs.items())]


def _notes(result: ExportResult, scored: bool) -> list[str]:
    from rolewise.export.model_card import PLAIN_PROMPTS

    directory = shlex.quote(result.directory)
    notes = [] if scored else ["the card says that no scores were measured; --scores LOGS adds those of rolewise eval"]
    if result.scale == 0:
        notes.append("the factor on the table is 0: roles change nothing in this model")
    if result.to == "folded":
        warning = textwrap.wrap(f"note: {PLAIN_PROMPTS}", 100)
        return [*notes, *warning, f"serve it: vllm serve {directory} --enable-prompt-embeds"]
    return [*notes, f"try it: rolewise chat {directory}", f"serve it: rolewise serve {directory}"]
