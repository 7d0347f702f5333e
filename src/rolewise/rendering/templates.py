"""Chat templates of our own, for base models that come without one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tokenizers import AddedToken

from rolewise.rendering.encoding import data_layout

TemplateName = Literal["auto", "text", "delimiter", "chatml", "own"]

STORED = "rolewise"
"""Under which key of the tokenizer's configuration the choice is kept."""


@dataclass(frozen=True)
class PreparedTokenizer:
    """What `prepare_tokenizer` did."""

    template: str
    """"own" when the tokenizer's template was kept, else the name of ours."""
    data_layout: str
    """"header" when a data message has a frame of its own, "inline" when it goes into the user turn."""
    added_words: dict[str, str] = field(default_factory=dict[str, str])
    """Each token that this call added, with the words from whose embeddings its own should start."""


@dataclass(frozen=True)
class _Template:
    source: str
    words: dict[str, str] = field(default_factory=dict[str, str])
    end_of_turn: str | None = None


def _structured(instruction: str, data: str, response: str) -> str:
    """A Structured Query template (StruQ, as the ISE paper uses it): a section for each message."""
    return (
        "{{ bos_token if bos_token else '' }}{% for message in messages %}"
        "{% if message['role'] == 'assistant' %}"
        "{{ '" + response + "\\n' + message['content'] + eos_token }}{% if not loop.last %}{{ '\\n\\n' }}{% endif %}"
        "{% elif message['role'] in ['data', 'tool'] %}{{ '" + data + "\\n' + message['content'] + '\\n\\n' }}"
        "{% else %}{{ '" + instruction + "\\n' + message['content'] + '\\n\\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '" + response + "\\n' }}{% endif %}"
    )


_TEMPLATES = {
    "text": _Template(_structured("### instruction:", "### input:", "### response:")),
    "delimiter": _Template(
        _structured("[MARK] [INST][COLN]", "[MARK] [INPT][COLN]", "[MARK] [RESP][COLN]"),
        {"[MARK]": "###", "[INST]": "instruction", "[INPT]": "input", "[RESP]": "response", "[COLN]": ":"},
    ),
    "chatml": _Template(
        "{{ bos_token if bos_token and bos_token != '<|im_start|>' else '' }}{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        {"<|im_start|>": "start", "<|im_end|>": "end"},
        "<|im_end|>",
    ),
}


def prepare_tokenizer(tokenizer: Any, template: TemplateName = "auto") -> PreparedTokenizer:
    """Give a base model's tokenizer a chat template, and the reserved tokens that it writes.

    The choice is remembered in `tokenizer.init_kwargs["rolewise"]`, which `save_pretrained` stores. Whoever calls
    this must make room in the model's embeddings when tokens were added, and start them from `added_words`.

    Args:
        tokenizer: the tokenizer; changed in place.
        template: "text" or "delimiter" (Structured Query, with plain or reserved delimiters), "chatml" (with a
            `data` header), "own" (keep the tokenizer's), or "auto" (its own, or ChatML where it has none).

    Raises:
        ValueError: when the name is unknown, "own" finds no template, or the tokenizer has no end-of-text token.
    """
    if template not in ("auto", "own", *_TEMPLATES):
        raise ValueError(f"template={template!r} must be one of auto, own, {', '.join(_TEMPLATES)}")
    has_own = getattr(tokenizer, "chat_template", None) is not None
    stored = tokenizer.init_kwargs.get(STORED) or {}
    if template == "own" and not has_own:
        raise ValueError("template='own', but the tokenizer has no chat template; use 'chatml', 'delimiter' or 'text'")
    if has_own and (template in ("auto", "own") or stored.get("template") == template):
        # The tokens of an earlier call may be trained by now: nobody shall start them from their words again.
        kept = _remember(tokenizer, stored.get("template", "own"), stored.get("added_words", {}))
        return replace(kept, added_words={})
    name = "chatml" if template == "auto" else template
    chosen = _TEMPLATES[name]
    if chosen.end_of_turn is None and tokenizer.eos_token is None:
        raise ValueError(f"template={name!r} ends an answer with the end-of-text token, but the tokenizer has none")
    known = tokenizer.get_vocab()
    added = {token: words for token, words in chosen.words.items() if token not in known}
    if chosen.words:
        # Flagged special, so that no content can write them, whether they are new or were there.
        tokenizer.add_tokens(
            [AddedToken(token, special=True, normalized=False) for token in chosen.words], special_tokens=True
        )
    if chosen.end_of_turn is not None:
        tokenizer.eos_token = chosen.end_of_turn
    tokenizer.chat_template = chosen.source
    tokenizer.init_kwargs.pop(STORED, None)
    return _remember(tokenizer, name, added)


def _remember(tokenizer: Any, name: str, added: dict[str, str]) -> PreparedTokenizer:
    layout = data_layout(tokenizer)
    tokenizer.init_kwargs[STORED] = {"template": name, "data_layout": layout, "added_words": dict(added)}
    return PreparedTokenizer(name, layout, dict(added))
