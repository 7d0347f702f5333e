"""Tokens as a person can check them: coloured and labelled by role, control characters made visible."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rolewise.roles import DEFAULT_SCHEME, Role, RoleScheme

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from rolewise.rendering import Encoding

# Colours that differ in brightness too, and a label for every run of tokens: colour is never the only cue.
STYLES = {
    Role.SYSTEM: "bold white on dark_magenta",
    Role.USER: "black on bright_cyan",
    Role.DATA: "black on bright_yellow",
    Role.OUTPUT: "black on bright_green",
}

_MOST_TOKENS_OF_A_CHARACTER = 4  # UTF-8 has at most four bytes a character


@dataclass(frozen=True)
class ShownToken:
    """One token, as `rolewise show --json` gives it."""

    token: str
    id: int
    role: str
    segment: int
    loss: int
    control: bool


def shown_tokens(tokenizer: Any, encoding: Encoding, scheme: RoleScheme = DEFAULT_SCHEME) -> list[ShownToken]:
    """Every token of `encoding` with its role; see `token_texts` for characters of several tokens."""
    from rolewise.rendering import control_token_ids

    control = control_token_ids(tokenizer)
    return [
        ShownToken(text, token, scheme.names[segment], segment, loss, token in control)
        for text, token, segment, loss in zip(
            token_texts(tokenizer, encoding.input_ids, encoding.segment_ids),
            encoding.input_ids,
            encoding.segment_ids,
            encoding.loss_mask,
            strict=True,
        )
    ]


def token_texts(tokenizer: Any, ids: Sequence[int], segments: Sequence[int] | None = None) -> list[str]:
    """What each token adds to the text.

    A character that several tokens of one segment make up together stands with the last of them, and the earlier ones
    are empty. Bytes that make up no character show their tokens' names.
    """
    segments = [0] * len(ids) if segments is None else segments
    texts: list[str] = []
    at = 0
    while at < len(ids):
        size = 1
        text = _decoded(tokenizer, ids[at : at + 1])
        while "\ufffd" in text and size < _MOST_TOKENS_OF_A_CHARACTER and at + size < len(ids):
            if segments[at + size] != segments[at]:
                break
            size += 1
            text = _decoded(tokenizer, ids[at : at + size])
        if not text or "\ufffd" in text:
            size, text = 1, f"⟨{tokenizer.convert_ids_to_tokens(ids[at])}⟩"
        texts += [""] * (size - 1) + [text]
        at += size
    return texts


def _decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    # SentencePiece decoders drop the space that begins a word when the word stands alone.
    begins_word = str(tokenizer.convert_ids_to_tokens(ids[0])).startswith("▁")
    return f" {text}" if begins_word and not text.startswith(" ") else text


def safe_text(text: str) -> str:
    """`text` without anything that a terminal would obey: control, format and surrogate characters are escaped.

    Line feeds and tabs stay. Escaped are escape sequences, carriage returns, and the bidirectional controls with which
    untrusted text can disguise itself; joiners that scripts and emoji need are left alone.
    """
    return "".join(char if _harmless(char) else _escaped(char) for char in text)


def _harmless(char: str) -> bool:
    return char in "\n\t\u200c\u200d" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def render_tokens(
    tokens: Sequence[ShownToken],
    *,
    boundaries: bool = False,
    scheme: RoleScheme = DEFAULT_SCHEME,
    width: int | None = None,
    brackets: bool = False,
) -> Text:
    """Tokens as rich text: each run of one role begins with the role's name, and is in its colour.

    Control tokens are underlined, so that a real `<|im_end|>` differs from one that somebody typed. Only the role's
    name ever stands in the first columns, so that no text can pass itself off as a run of another role.

    Args:
        tokens: what to show.
        boundaries: put a dot between tokens.
        scheme: names and order of the roles.
        width: break lines at this many columns; None leaves them whole.
        brackets: also put control tokens in ⟦ ⟧, for where nothing can be underlined; typed brackets are escaped.
    """
    from rich.text import Text

    text = Text()
    indent = max(7, *map(len, scheme.names)) + 1
    for name, run in groupby(tokens, key=lambda token: token.role):
        style = _style(name, scheme)
        if text.plain and not text.plain.endswith("\n"):
            text.append("\n")
        text.append(f"{name:>{indent - 1}} ", style="dim")
        column = indent
        for token in run:
            shown = _visible(token, brackets)
            column = _append(text, shown, f"{style} underline" if token.control else style, column, indent, width)
            if boundaries and shown:
                column = _append(text, "·", "dim", column, indent, width)
        if text.plain.endswith("\n" + " " * indent):  # the run ended with a line feed: the next one starts there
            text.right_crop(indent)
    return text


def _visible(token: ShownToken, brackets: bool) -> str:
    shown = safe_text(token.token)
    if brackets:
        shown = "".join(_escaped(char) if char in "⟦⟧" else char for char in shown)
        shown = f"⟦{shown}⟧" if token.control else shown
    return shown.replace("\n", "⏎\n").replace("\t", "⇥")


def _append(text: Text, shown: str, style: str, column: int, indent: int, width: int | None) -> int:
    """Append `shown` within the columns from `indent` to `width`; returns the column after it."""
    from rich.cells import cell_len

    room = max(width, indent + 4) if width is not None else sys.maxsize
    size = cell_len(shown)
    if column > indent and column + size > room >= indent + size and "\n" not in shown:
        text.append("\n" + " " * indent)  # rather before a token than within
        column = indent
    line = ""
    for char in shown:
        size = cell_len(char)
        if char == "\n" or column + size > room:
            text.append(line, style=style)
            text.append("\n" + " " * indent)
            line, column = "", indent
        if char != "\n":
            line += char
            column += size
    text.append(line, style=style)
    return column


def legend(scheme: RoleScheme = DEFAULT_SCHEME, *, brackets: bool = False) -> Text:
    """The roles' colours, in one line."""
    from rich.text import Text

    text = Text("roles: ")
    for name in scheme.names:
        text.append(f" {name} ", style=_style(name, scheme))
        text.append(" ")
    text.append("  ⏎ line feed, ", style="dim")
    text.append("⟦control token⟧" if brackets else "control token", style="underline")
    return text


def print_tokens(
    tokens: Sequence[ShownToken],
    *,
    console: Console | None = None,
    scheme: RoleScheme = DEFAULT_SCHEME,
    boundaries: bool = False,
    with_legend: bool = True,
) -> None:
    """Print tokens as the console can show them: wrapped on a terminal, with brackets where there are no styles."""
    from rich.console import Console

    console = console or Console()
    brackets = console.color_system is None
    width = console.width if console.is_terminal else None
    text = render_tokens(tokens, boundaries=boundaries, scheme=scheme, width=width, brackets=brackets)
    # What is for a person is wrapped above; what goes into a file or a pipe keeps its lines.
    console.print(text, soft_wrap=True)
    if with_legend:
        console.print(legend(scheme, brackets=brackets), soft_wrap=True)


def _style(name: str, scheme: RoleScheme) -> str:
    row = scheme.names.index(name)
    return STYLES[next(role for role in Role if scheme.row(role) == row)]


def print_conversation(
    tokenizer: Any,
    messages: Sequence[Any],
    *,
    console: Console | None = None,
    scheme: RoleScheme | None = None,
    boundaries: bool = False,
    with_legend: bool = True,
    **options: Any,
) -> None:
    """Print a conversation as the model gets it; `options` go to `rolewise.render`."""
    from rolewise.rendering import render
    from rolewise.rendering.schemes import scheme_of

    scheme = scheme_of(tokenizer, scheme)
    encoding = render(tokenizer, messages, scheme=scheme, **options)
    tokens = shown_tokens(tokenizer, encoding, scheme)
    print_tokens(tokens, console=console, scheme=scheme, boundaries=boundaries, with_legend=with_legend)
