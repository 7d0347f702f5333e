"""Tokens as a person can check them: coloured and labelled by role, control characters made visible."""

from __future__ import annotations

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
    """Every token of `encoding` with its role.

    A character that several tokens make up together stands with the last of them; the earlier ones show their bytes'
    token names.
    """
    from rolewise.rendering import control_token_ids

    control = control_token_ids(tokenizer)
    return [
        ShownToken(text, token, scheme.names[segment], segment, loss, token in control)
        for text, token, segment, loss in zip(
            token_texts(tokenizer, encoding.input_ids),
            encoding.input_ids,
            encoding.segment_ids,
            encoding.loss_mask,
            strict=True,
        )
    ]


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text; the token's own name where it ends within a character."""
    texts: list[str] = []
    for token in ids:
        text = tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        texts.append(text if text and "�" not in text else f"⟨{tokenizer.convert_ids_to_tokens(token)}⟩")
    return texts


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
    tokens: Sequence[ShownToken], *, boundaries: bool = False, scheme: RoleScheme = DEFAULT_SCHEME
) -> Text:
    """Tokens as rich text: each run of one role begins with the role's name, and is in its colour.

    Control tokens are underlined, so that a real `<|im_end|>` differs from one that somebody typed. With `boundaries`
    a thin bar stands between tokens.
    """
    from rich.text import Text

    text = Text()
    for name, run in groupby(tokens, key=lambda token: token.role):
        style = _style(name, scheme)
        if text.plain and not text.plain.endswith("\n"):
            text.append("\n")
        text.append(f"{name:>7} ", style="dim")
        for token in run:
            shown = safe_text(token.token).replace("\n", "⏎\n        ").replace("\t", "⇥")
            text.append(shown, style=f"{style} underline" if token.control else style)
            if boundaries:
                text.append("·", style="dim")
        if text.plain.endswith("\n        "):  # the run ended with a line feed: the next one starts there
            text.right_crop(8)
    return text


def legend(scheme: RoleScheme = DEFAULT_SCHEME) -> Text:
    """The roles' colours, in one line."""
    from rich.text import Text

    text = Text("roles: ")
    for name in scheme.names:
        text.append(f" {name} ", style=_style(name, scheme))
        text.append(" ")
    text.append("  ⏎ line feed, ", style="dim")
    text.append("control token", style="underline")
    return text


def _style(name: str, scheme: RoleScheme) -> str:
    row = scheme.names.index(name)
    return STYLES[next(role for role in Role if scheme.row(role) == row)]


def print_conversation(
    tokenizer: Any,
    messages: Sequence[Any],
    *,
    console: Console | None = None,
    scheme: RoleScheme = DEFAULT_SCHEME,
    boundaries: bool = False,
    with_legend: bool = True,
    **options: Any,
) -> None:
    """Print a conversation as the model gets it; `options` go to `rolewise.render`."""
    from rich.console import Console

    from rolewise.rendering import render

    encoding = render(tokenizer, messages, scheme=scheme, **options)
    console = console or Console()
    console.print(render_tokens(shown_tokens(tokenizer, encoding, scheme), boundaries=boundaries, scheme=scheme))
    if with_legend:
        console.print(legend(scheme))
