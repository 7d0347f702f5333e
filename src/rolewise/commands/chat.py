"""`rolewise chat`: a terminal chat in which a line or a file can be entered as data."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from rolewise.commands.arguments import parse
from rolewise.commands.models import DEFAULT_MODEL, load_quietly, say

TEACH = """Talk to a model in the terminal, and hand it files as data that should give no orders.

A line is said as the user. Lines that begin with a slash are commands: /help lists them. /data FILE attaches a file
to the next line, with the data role; /roles shows what the model was given, coloured by role; /scale 0 turns the
segment table off. Ctrl-C stops an answer, Ctrl-D ends the chat.

examples:
  rolewise chat smollm2-135m
  rolewise chat runs/quickstart/models/delimiter+ISE --system "You summarise e-mails."
  printf '/data mail.txt\\nSum up this e-mail.\\n' | rolewise chat runs/ise
"""


@dataclass(frozen=True, kw_only=True)
class ChatConfig:
    """A terminal chat."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")] = DEFAULT_MODEL
    """"smollm2-135m", a hub id, a directory or a .gguf file."""
    system: str | None = None
    """The system prompt; by default there is none of ours."""
    max_new_tokens: int = 256
    """The most tokens of an answer."""
    temperature: float = 0.0
    """0 takes the likeliest token each time; above 0 samples."""
    top_p: float = 1.0
    """When sampling, only the likeliest tokens that make up this much probability."""
    seed: int | None = None
    """When sampling, makes the chat repeatable."""
    scale: float | None = None
    """Factor on the segment table, in place of the model's own; 0 is the bare model without roles."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError("--max-new-tokens must be at least 1")
        if not self.temperature >= 0 or not 0 < self.top_p <= 1:
            raise ValueError("--temperature must not be negative, and --top-p must be above 0 and at most 1")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config = parse(ChatConfig, arguments, command="chat", teach=TEACH)
    model, tokenizer = load_quietly(config.model, scale=config.scale)

    from rolewise.commands.chat_session import ChatSession

    session = ChatSession(model, tokenizer, config, write=_write)
    interactive = sys.stdin.isatty()
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]  (line editing and history in input())
        say("/help lists the commands, /data FILE hands over a file, Ctrl-D ends")
    while not session.ended:
        try:
            line = _read_line(session.prompt if interactive else None)
        except KeyboardInterrupt:  # a line begun and thought better of
            if not interactive:
                raise
            _write("\n")
            session.forget_half_done()
            continue
        if line is None:
            if interactive:
                _write("\n")
            break
        session.take(line)
    return 0


def _read_line(prompt: str | None) -> str | None:
    """The next line without its line feed; None at the end."""
    if prompt is None:
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input is not UTF-8 text ({error.reason})") from error
        return line.rstrip("\r\n") if line else None
    try:
        return input(prompt)
    except EOFError:
        return None


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
