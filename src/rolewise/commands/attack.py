"""`rolewise attack`: conversations with an injection in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import tyro

from rolewise.attacks import (
    NAMED_DELIMITERS,
    PAYLOADS,
    Delimiters,
    attack_info,
    make_attack,
    payload_named,
    template_delimiters,
)
from rolewise.attacks.conversations import NoTextError, attack_conversation, conversation_rng
from rolewise.commands.arguments import parse
from rolewise.commands.inputs import BadRow, Conversation, read_conversations
from rolewise.commands.models import load_tokenizer_only, say
from rolewise.data.jsonl import write_jsonl
from rolewise.samples import Payload, Sample

TEACH = """Inject a payload into each conversation of a file: JSONL in, JSONL out, in the same order.
OUT's directory is made when it does not exist.

The injection goes into the last data of a conversation (--role user: into its last user turn). What was written stands
under "meta", with the payload's witness. Completions forge the delimiters of --model's chat template, or of one of our
templates by --template. rolewise attacks lists the attacks and payloads. The same seed gives the same bytes.

examples:
  rolewise attack prompts.jsonl -o ignored.jsonl --attack ignore
  rolewise attack prompts.jsonl -o forged.jsonl --attack completion_real --model runs/ise --forged-answer Done.
  rolewise attack alpaca.json -o attacked.jsonl --attack naive --skip-bad        # without the rows that have no data
  rolewise attack alpaca.json -o ceiling.jsonl --attack naive --role user --payload code --no-answers
"""


@dataclass(frozen=True, kw_only=True)
class AttackConfig:
    """What `rolewise attack` does."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")]
    """Conversations in JSONL (or JSON), or rows with instruction, input and output; - for standard input."""
    output: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="OUT")]
    """The JSONL file to write."""
    attack: str
    """The attack's name (rolewise attacks lists them)."""
    payload: str | None = None
    """A payload's name (rolewise attacks --payloads; hacked when not given), or any instruction, with --witness."""
    witness: str | None = None
    """What an output contains only if --payload was carried out: for an instruction of your own, or in place of a
    named payload's witness."""
    role: Literal["data", "user"] = "data"
    """Whose text carries the injection."""
    position: Literal["begin", "middle", "end"] | None = None
    """Where in that text; the attack's own place when not given."""
    split: Literal["train", "test"] = "test"
    """Which vocabulary of sentences and foreign delimiters is drawn from; they share nothing."""
    seed: int = 0
    """Decides what attacks draw."""
    model: str | None = None
    """Forge the delimiters of this model's chat template."""
    template: Literal["text", "delimiter", "chatml"] | None = None
    """Forge the delimiters of one of our templates; ChatML's when neither this nor --model is given."""
    forged_answer: str | None = None
    """The answer that completions forge; the assistant's in the conversation when not given."""
    struq_compat: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Repeat the accidents of StruQ's code on which published numbers depend."""
    no_answers: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave out the assistant's message at the end, as rolewise generate wants it."""
    skip_bad: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave out rows without data (--role user: without a user turn) and bad rows, and count them, instead of
    stopping at the first one."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace OUT when it exists."""

    def __post_init__(self) -> None:
        if self.model is not None and self.template is not None:
            raise ValueError("give either --model or --template, not both: each names the delimiters to forge")
        if self.witness is not None and self.payload is None:
            raise ValueError(f"--witness {self.witness!r} says what shows that a payload was carried out: name it too, "
                             "with --payload")  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(AttackConfig, arguments, command="attack", teach=TEACH)
    output = check_output(config.output, config.overwrite, [config.file])
    where = None if attack_info(config.attack).positions and config.position is None else config.position
    options: dict[str, Any] = {"role": config.role, "position": where, "split": config.split}
    options["struq_compat"] = config.struq_compat
    make_attack(config.attack, **options)  # a wrong option shows before anything is read
    payload = _payload(config)
    options["real"] = _delimiters(config)
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    without = 0
    for number, row in enumerate(read_conversations(config.file, alpaca=True)):
        if isinstance(row, Conversation):
            try:
                rows.append(_attacked(config, row, number, payload, options))
                continue
            except NoTextError as error:
                if not config.skip_bad:
                    raise ValueError(f"{row.place}: {error} (--skip-bad leaves such rows out)") from error
                without += 1
                continue
            except ValueError as error:
                row = BadRow(problem=f"{row.place}: {error}")
        if not config.skip_bad:
            raise ValueError(f"{row.problem} (--skip-bad leaves such rows out)")
        problems.append(row.problem)
    for problem in problems[:5]:
        say(f"skipped {problem}")
    lack = f"without {'data' if config.role == 'data' else 'a user turn'}"
    if not rows:
        raise ValueError(
            f"{config.file} has no conversation that can be attacked ({without} {lack}, {len(problems)} bad rows)"
        )
    write_jsonl(rows, output)
    left = [f"{without} {lack}"] * bool(without) + [f"{len(problems)} bad"] * bool(problems)
    say(f"{len(rows)} conversations in {config.output}" + (f"; left out: {', '.join(left)}" if left else ""))
    return 0


def check_output(name: str, overwrite: bool, inputs: Sequence[str] = ()) -> Path:
    """The file to write, refused when it is there already, is one of the inputs, or cannot be a file."""
    if not name.strip():
        raise ValueError("-o is empty; name the file to write")
    if name == "-":
        raise ValueError("-o - is no file: the rows appear whole or not at all, which a pipe cannot do; name a file")
    output = Path(name).expanduser()
    if output.is_dir():
        raise IsADirectoryError(f"{name} is a directory; name a file in it")
    above = next(directory for directory in output.absolute().parents if directory.exists())
    if not above.is_dir():
        raise NotADirectoryError(f"{above} is a file, so {name} cannot be under it; name another file with -o")
    for source in inputs:
        path = Path(source).expanduser()
        if output.exists() and path.exists() and output.samefile(path):
            raise ValueError(f"{name} is an input; name another file with -o")
    if output.exists() and not output.is_file():
        raise ValueError(f"{name} is not a regular file; name one, as the rows are moved into place")
    if output.exists() and not overwrite:
        raise FileExistsError(f"{name} exists; name another file with -o, or give --overwrite to replace it")
    return output


def _payload(config: AttackConfig) -> Payload:
    name = "hacked" if config.payload is None else config.payload
    if config.witness is not None and name not in PAYLOADS:
        return Payload(text=name, witness=config.witness)
    try:
        named = payload_named(name)
        return named if config.witness is None else replace(named, witness=config.witness)
    except ValueError as error:
        raise ValueError(f"{error}; an instruction of your own needs --witness") from None


def _delimiters(config: AttackConfig) -> Delimiters:
    if config.model is None:
        return NAMED_DELIMITERS[config.template or "chatml"]
    tokenizer, _ = load_tokenizer_only(config.model)
    return template_delimiters(tokenizer)


def _attacked(
    config: AttackConfig, row: Conversation, number: int, payload: Payload, options: dict[str, Any]
) -> dict[str, Any]:
    meta = _meta(row.meta)
    name = str(meta.get("id", f"row-{number}"))
    messages, sample = attack_conversation(
        row.messages,
        config.attack,
        conversation_rng(config.seed, name, config.attack),
        payload=payload,
        forged_answer=config.forged_answer,
        id=name,
        **options,
    )
    if config.no_answers and messages[-1]["role"] == "assistant":
        messages = messages[:-1]
    result: dict[str, Any] = {"messages": messages}
    if row.tools:
        result["tools"] = row.tools
    if row.documents:
        result["documents"] = row.documents
    return {**result, "meta": {**meta, "id": name, **_record(config, sample)}}


def _meta(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {"input": given}


def _record(config: AttackConfig, sample: Sample) -> dict[str, Any]:
    from rolewise.samples import audit

    written = audit(sample)
    record: dict[str, Any] = {"condition": config.attack, "domain": attack_info(config.attack).domain}
    return record | {"payload": written["payload"], "injections": written["injections"]}
