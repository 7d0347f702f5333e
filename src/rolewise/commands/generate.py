"""`rolewise generate`: answers to a file of conversations, in batches, resumable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rolewise.commands.answer_file import AnswerFile, conversation_key, finished_as, model_stamp, settings_key
from rolewise.commands.arguments import parse
from rolewise.commands.inputs import BadRow, Conversation, read_conversations
from rolewise.commands.models import load_quietly, load_tokenizer_only, say

if TYPE_CHECKING:
    from rolewise.modeling import SegmentedCausalLM

TEACH = """Answer a file of conversations: JSONL in, JSONL out, in the same order.

Each output row is the input row with the assistant's message appended to "messages", ready for rolewise show, for
training or for scoring; what was asked of the model stands under meta.rolewise. Answers are kept in OUT.partial as
they come: run the same command again after a kill and it goes on, with the same result. OUT appears when all rows
are answered.

examples:
  rolewise generate smollm2-135m prompts.jsonl -o answers.jsonl --max-new-tokens 100
  rolewise generate runs/ise prompts.jsonl -o sampled.jsonl --temperature 0.7 --seed 3
  rolewise generate runs/ise prompts.jsonl -o bare.jsonl --scale 0      # the same model without its roles
"""


_SEEDS = 2**63
"""How many seeds there are: torch takes twice as many, and each batch adds its number."""


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """What `rolewise generate` does."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """"smollm2-135m", a hub id, a directory or a .gguf file."""
    input: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="INPUT")]
    """Conversations in JSONL (or JSON), {"messages": [...], "tools": [...]?, "meta": ...?} a line; - for stdin."""
    output: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="OUT")]
    """The JSONL file to write."""
    max_new_tokens: int = 256
    """The most tokens of an answer."""
    temperature: float = 0.0
    """0 takes the likeliest token each time; above 0 samples."""
    top_p: float = 1.0
    """When sampling, only the likeliest tokens that make up this much probability."""
    seed: int = 0
    """Decides the samples (for the same rows and batch size)."""
    batch_size: int = 16
    """Conversations that are answered together."""
    scale: float | None = None
    """Factor on the segment table, in place of the model's own; 0 is the bare model without roles."""
    skip_bad: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave out rows that cannot be answered, and count them, instead of stopping at the first one."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace OUT when it holds something else."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.batch_size < 1:
            raise ValueError("--max-new-tokens and --batch-size must be at least 1")
        if not self.temperature >= 0 or not 0 < self.top_p <= 1:
            raise ValueError("--temperature must not be negative, and --top-p must be above 0 and at most 1")
        if not 0 <= self.seed < _SEEDS:
            raise ValueError(f"--seed {self.seed} must be from 0 to {_SEEDS - 1}")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(GenerateConfig, arguments, command="generate", teach=TEACH)
    output = Path(config.output).expanduser()
    if output.is_dir():
        raise IsADirectoryError(f"{config.output} is a directory; name a file in it")
    if output.exists() and not output.is_file():  # a device would never end when read, nor be replaced
        raise ValueError(f"{config.output} is not a regular file; name one, as the answers are moved into place")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"no directory {str(output.parent)!r} for {output.name}; make it first")
    source = Path(config.input).expanduser()
    if config.input != "-" and output.exists() and source.exists() and output.samefile(source):
        raise ValueError(f"{config.output} is the input; name another file with -o")
    rows, bad = _checked(config)
    settings = _settings(config)
    keys = [conversation_key(settings_key(settings), row.messages, row.tools, row.documents) for row, _ in rows]
    if output.exists() and not config.overwrite:
        if not finished_as(output, keys):
            raise FileExistsError(
                f"{config.output} exists and is not the result of this command; name another file with -o, "
                "or give --overwrite to replace it"
            )
        AnswerFile.partial_path(output).unlink(missing_ok=True)
        say(f"{config.output} is done already ({len(keys)} answers)")
        return 0
    with AnswerFile(output, keys) as answers:
        if answers.known:
            say(f"resuming: {len(answers.known)} of {len(rows)} answers are in {answers.path}")
        if answers.foreign:
            say(f"{answers.foreign} answers in {answers.path} are of other rows, settings or models: asked again")
        if len(answers.known) < len(rows):
            model, tokenizer = load_quietly(config.model, scale=config.scale)
            _answer(config, model, tokenizer, rows, answers)
        answers.finish([_row(row, answers.known[index], settings, keys[index]) for index, (row, _) in enumerate(rows)])
    say(f"{len(rows)} answers in {config.output}" + (f"; {bad} bad rows skipped" if bad else ""))
    return 0


def _checked(config: GenerateConfig) -> tuple[list[tuple[Conversation, int]], int]:
    """The rows that can be answered with the length of their prompts, and how many were left out."""
    good: list[tuple[Conversation, int]] = []
    bad: list[str] = []
    read = list(read_conversations(config.input))  # before anything is loaded: a wrong path shows at once
    tokenizer, scheme = load_tokenizer_only(config.model)
    for row in read:
        if isinstance(row, Conversation):
            try:
                good.append((row, _prompt_length(row, tokenizer, scheme)))
                continue
            except (ValueError, TypeError) as error:
                row = BadRow(problem=f"{row.place}: {error}")
        if not config.skip_bad:
            raise ValueError(f"{row.problem} (--skip-bad leaves such rows out)")
        bad.append(row.problem)
    for problem in bad[:5]:
        say(f"skipped {problem}")
    if not good:
        raise ValueError(f"{config.input} has no conversation that can be answered ({len(bad)} bad rows)")
    return good, len(bad)


def _prompt_length(row: Conversation, tokenizer: Any, scheme: Any) -> int:
    from rolewise.rendering import render

    if row.messages[-1]["role"] == "assistant":
        raise ValueError("the last message is the assistant's already; leave it out to have it generated")
    encoding = render(
        tokenizer, row.messages, tools=row.tools, documents=row.documents, scheme=scheme, add_generation_prompt=True
    )
    return len(encoding.input_ids)


def _settings(config: GenerateConfig) -> dict[str, Any]:
    """All that decides an answer, besides its conversation."""
    from rolewise.modeling.loading import has_table

    settings: dict[str, Any] = {
        "model": config.model,
        "stamp": model_stamp(config.model),
        "scale": 0.0 if config.scale is None and not has_table(config.model) else config.scale,
        "max_new_tokens": config.max_new_tokens,
        "temperature": config.temperature,
    }
    if config.temperature > 0:
        settings |= {"top_p": config.top_p, "seed": config.seed, "batch_size": config.batch_size}
    return settings


def _answer(
    config: GenerateConfig,
    model: SegmentedCausalLM,
    tokenizer: Any,
    rows: list[tuple[Conversation, int]],
    answers: AnswerFile,
) -> None:
    """Ask what is missing, longest prompts first; batches are the same whether or not the run was ever killed."""
    from tqdm import tqdm

    from rolewise.generation import generate_batch

    order = sorted(range(len(rows)), key=lambda index: -rows[index][1])
    batches = [order[at : at + config.batch_size] for at in range(0, len(order), config.batch_size)]
    with tqdm(total=len(rows), initial=len(answers.known), desc="generating", unit="answer", dynamic_ncols=True) as bar:
        for number, batch in enumerate(batches):
            if all(index in answers.known for index in batch):
                continue
            # The whole batch again, even if a kill left some of it: a sample depends on the batch that it was in.
            asked = [rows[index][0] for index in batch]
            conversations = [
                {"messages": row.messages, "tools": row.tools, "documents": row.documents} for row in asked
            ]
            texts = generate_batch(
                model,
                tokenizer,
                conversations,
                max_new_tokens=config.max_new_tokens,
                batch_size=config.batch_size,
                temperature=config.temperature,
                top_p=config.top_p,
                seed=config.seed + number if config.temperature > 0 else None,
            )
            for place, text in texts:
                if batch[place] not in answers.known:
                    answers.add(batch[place], text)
                    bar.update()


def _row(row: Conversation, answer: str, settings: dict[str, Any], key: str) -> dict[str, Any]:
    meta = row.meta if isinstance(row.meta, dict) else {} if row.meta is None else {"input": row.meta}
    result: dict[str, Any] = {"messages": [*row.messages, {"role": "assistant", "content": answer}]}
    if row.tools:
        result["tools"] = row.tools
    if row.documents:
        result["documents"] = row.documents
    return {**result, "meta": {**meta, "rolewise": {**settings, "key": key}}}
