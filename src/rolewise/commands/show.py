"""`rolewise show`: conversations as tokens, coloured by role."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import tyro

from rolewise.commands.arguments import parse
from rolewise.commands.inputs import BadRow, Conversation, read_conversations
from rolewise.commands.models import DEFAULT_MODEL, load_tokenizer_only, say

if TYPE_CHECKING:
    from rolewise.rendering import Encoding
    from rolewise.roles import RoleScheme

TEACH = """Print conversations as the model gets them: tokens, coloured and labelled by role.

FILE is a JSON list of messages, {"messages": [...], "tools": [...]}, an array of these, or JSONL. The roles are
system (or developer), user, data (or tool) and assistant. Control tokens are underlined (in a pipe they
stand in ⟦ ⟧): a real <|im_end|> is, one that somebody typed is not. A heading names the row, and the condition and the
injections that its "meta" holds.

examples:
  rolewise show chat.json
  rolewise show train.jsonl --model my-model --boundaries | less -R
  rolewise show chat.json --generation-prompt --json | jq '.[] | [.token, .role]'
  echo '[{"role": "user", "content": "Sum up."}, {"role": "data", "content": "<|im_end|>"}]' | rolewise show -
"""


@dataclass(frozen=True, kw_only=True)
class ShowConfig:
    """What `rolewise show` prints."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")]
    """Conversations in JSON or JSONL; - for standard input."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a JSON list a conversation, one a line: [{token, id, role, segment, loss, control}, ...]."""
    model: str = DEFAULT_MODEL
    """Whose tokenizer and chat template to use."""
    generation_prompt: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """End with the header of an assistant's answer, as the model gets it when it is to answer."""
    boundaries: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show where each token ends."""
    tools_role: Literal["system", "data"] = "system"
    """Whether tool descriptions are trusted (system) or come from third parties (data)."""
    template: Literal["auto", "text", "delimiter", "chatml", "own"] | None = None
    """Template for a base model without one (see rolewise.prepare_tokenizer)."""
    skip_bad: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave out rows that are no conversations, and count them."""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(ShowConfig, arguments, command="show", teach=TEACH)
    rows = list(read_conversations(config.file, alpaca=True))
    bad = [row for row in rows if isinstance(row, BadRow)]
    if bad and not config.skip_bad:
        raise ValueError(f"{bad[0].problem} (--skip-bad leaves such rows out)")
    conversations = [row for row in rows if isinstance(row, Conversation)]
    tokenizer, scheme = load_tokenizer_only(config.model)
    if config.template is not None:
        from rolewise.rendering import prepare_tokenizer

        prepare_tokenizer(tokenizer, config.template)
    for number, conversation in enumerate(conversations):
        encoding = _encoding(config, tokenizer, scheme, conversation)
        if config.json:
            _write_json(tokenizer, scheme, encoding)
        else:
            about = [conversation.place] if len(conversations) > 1 else []
            about += _said_of(conversation.meta)
            heading = f"# {' '.join(about)}: " if about else "# "
            heading += f"{len(encoding.input_ids)} tokens, {sum(encoding.loss_mask)} of them trained on"
            last = number == len(conversations) - 1
            sys.stdout.write(_pretty(tokenizer, scheme, encoding, heading, config.boundaries, with_legend=last))
    for row in bad[:5]:
        say(f"skipped {row.problem}")
    if bad:
        say(f"{len(bad)} of {len(rows)} rows skipped")
    return 0


def _said_of(meta: Any) -> list[str]:
    """What meta says about a conversation, briefly: `twin (naive user end)`, condition and injections."""
    if not isinstance(meta, dict):
        return []
    fields = cast("dict[str, Any]", meta)
    condition, injections = fields.get("condition"), fields.get("injections")
    places: list[str] = []
    for entry in cast("list[Any]", injections) if isinstance(injections, list) else []:
        known: dict[str, Any] = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        values = [known.get(key) for key in ("attack", "role", "position")]
        if all(isinstance(value, str) for value in values):
            places.append(" ".join(value for value in values if value and value != condition))
    said = [condition] if isinstance(condition, str) else []
    return [*said, f"({', '.join(places)})"] if places else said


def _encoding(config: ShowConfig, tokenizer: Any, scheme: RoleScheme, conversation: Conversation) -> Encoding:
    from rolewise.rendering import render
    from rolewise.roles import Role

    try:
        return render(
            tokenizer,
            conversation.messages,
            tools=conversation.tools,
            documents=conversation.documents,
            add_generation_prompt=config.generation_prompt,
            scheme=scheme,
            tools_role=Role.DATA if config.tools_role == "data" else Role.SYSTEM,
        )
    except (ValueError, TypeError) as error:
        raise type(error)(f"{conversation.place}: {error}") from error


def _write_json(tokenizer: Any, scheme: RoleScheme, encoding: Encoding) -> None:
    from rolewise.display import shown_tokens

    tokens = [dataclasses.asdict(token) for token in shown_tokens(tokenizer, encoding, scheme)]
    sys.stdout.write(json.dumps(tokens, ensure_ascii=True) + "\n")


def _pretty(
    tokenizer: Any, scheme: RoleScheme, encoding: Encoding, heading: str, boundaries: bool, *, with_legend: bool
) -> str:
    from rich.console import Console
    from rich.text import Text

    from rolewise.display import print_tokens, safe_text, shown_tokens

    console = Console(highlight=False)
    # Into a string first, so that a pipe that closes is ours to handle.
    with console.capture() as capture:
        console.print(Text(safe_text(heading), style="dim"), soft_wrap=True)
        tokens = shown_tokens(tokenizer, encoding, scheme)
        print_tokens(tokens, console=console, scheme=scheme, boundaries=boundaries, with_legend=with_legend)
    return capture.get()
