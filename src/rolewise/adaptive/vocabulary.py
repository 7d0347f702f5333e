"""Which tokens an optimised suffix may hold: what a person could have typed, and nothing that a template writes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from rolewise.attacks import RESERVED, template_delimiters

_BATCH = 4096
_KNOWN: weakref.WeakKeyDictionary[Any, dict[Any, list[int]]] = weakref.WeakKeyDictionary()


def allowed_tokens(tokenizer: Any, rows: int, *, ascii_only: bool = True) -> list[int]:
    """The ids that a suffix may hold, in ascending order.

    Left out are control, special and all other added tokens, ids without a row in the embedding or without a token,
    bytes of a character, what does not print, what is blank, and what holds a delimiter (see `forbidden_texts`).

    Args:
        tokenizer: with a fast backend and a chat template.
        rows: of the model's token embedding.
        ascii_only: also leave out what is not ASCII.

    Raises:
        ValueError: when nothing is left.
    """
    known = _KNOWN.setdefault(tokenizer, {})
    stamp = (rows, ascii_only, len(tokenizer), tokenizer.chat_template)
    if stamp not in known:
        known[stamp] = _allowed(tokenizer, rows, ascii_only)
    return known[stamp]


def _allowed(tokenizer: Any, rows: int, ascii_only: bool) -> list[int]:
    from rolewise.rendering import control_token_ids

    closed = set(control_token_ids(tokenizer)) | set(tokenizer.added_tokens_decoder) | set(tokenizer.all_special_ids)
    banned = forbidden_texts(tokenizer)
    known = [token for token in sorted(tokenizer.get_vocab().values()) if token < rows and token not in closed]
    found: list[int] = []
    for at in range(0, len(known), _BATCH):
        some = known[at : at + _BATCH]
        texts = tokenizer.batch_decode([[token] for token in some], clean_up_tokenization_spaces=False)
        found += [token for token, text in zip(some, texts, strict=True) if _typed(text, ascii_only, banned)]
    if not found:
        raise ValueError("the tokenizer has no token that a suffix could hold; try ascii_only=False")
    return found


def _typed(text: str, ascii_only: bool, banned: Sequence[str]) -> bool:
    if not text.strip() or not text.isprintable() or "\ufffd" in text or (ascii_only and not text.isascii()):
        return False
    return not any(one in text for one in banned)


def forbidden_texts(tokenizer: Any) -> tuple[str, ...]:
    """Strings that a suffix must not spell, token by token or together: control tokens and the template's delimiters.

    Rolewise reads them as ordinary text wherever content holds them. They are left out so that what GCG finds is not
    a completion attack, which has a name of its own.
    """
    added = [str(token.content) for token in tokenizer.added_tokens_decoder.values()]
    try:
        delimiters = template_delimiters(tokenizer)
        lines = [*delimiters.response.splitlines(), *delimiters.instruction.splitlines()]
    except ValueError:  # the template writes nothing that could be forged
        lines = []
    # The bare word of a header (`user`) is no delimiter: anybody may write it.
    marks = [line.strip() for line in lines if not line.strip().isalnum()]
    return tuple(dict.fromkeys(text for text in (*added, *RESERVED, *marks) if text.strip()))
