"""Tokenizers that add spaces, know control tokens as words, or lack characters."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rolewise.rendering import control_token_ids, render

TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)
CHAT: list[dict[str, Any]] = [{"role": "user", "content": "a <s> b"}, {"role": "data", "content": "</s>"}]


def unigram(normalizer: Any, pre_tokenizer: Any) -> Any:
    letters = "▁abcdefghijklmnopqrstuvwxyz<>/:"
    # The control tokens are words of the model too, and cheap ones.
    vocab = [("<unk>", -20.0), ("<s>", -1.0), ("</s>", -1.0), *((letter, -4.0) for letter in letters)]
    backend = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=False))
    backend.normalizer, backend.pre_tokenizer = normalizer, pre_tokenizer
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


LEGACY = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [(None, pre_tokenizers.Metaspace(prepend_scheme="first")), (None, pre_tokenizers.Metaspace()), (LEGACY, None)],
    ids=["first", "always", "legacy"],
)
def test_no_space_is_added_to_a_content_and_no_control_token_comes_out(normalizer: Any, pre_tokenizer: Any) -> None:
    tokenizer = unigram(normalizer, pre_tokenizer)
    encoding = render(tokenizer, CHAT, add_generation_prompt=True)
    tokens = tokenizer.convert_ids_to_tokens(encoding.input_ids)
    text = "".join(tokens).replace("▁", " ")
    assert text.removeprefix(" ").replace("<s> ", "<s>") == encoding.text.replace("<s> ", "<s>")
    control = control_token_ids(tokenizer)
    assert [token for token, number in zip(tokens, encoding.input_ids, strict=True) if number in control] == [
        "<s>", "</s>", "<s>", "</s>", "<s>",
    ]  # fmt: skip


def test_unknown_characters_are_no_control_tokens() -> None:
    tokenizer = unigram(None, pre_tokenizers.Metaspace(prepend_scheme="first"))
    encoding = render(tokenizer, [{"role": "user", "content": "日"}])
    assert tokenizer.unk_token_id in encoding.input_ids


@pytest.mark.parametrize("unknown", ["<unk>", "<|endoftext|>"])
def test_a_token_that_ends_texts_never_stands_for_an_unknown_character(unknown: str) -> None:
    """SmolLM2's unknown token is <|endoftext|>, and its vocabulary lacks a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    missing = "ñ"  # how byte-level tokenizers write the byte 0xF1, the first of the characters from U+40000 on
    vocab = {letter: number for number, letter in enumerate([unknown, *(a for a in alphabet if a != missing)])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(unknown, special=True, normalized=False), "<s>", "</s>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=unknown, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    assert tokenizer.unk_token_id in backend.encode("\U00040000").ids
    (content,) = (
        [i for i, role in zip(encoding.input_ids, encoding.segment_ids, strict=True) if role == 2]
        for encoding in [
            render(tokenizer, [{"role": "user", "content": "a"}, {"role": "data", "content": "b\U00040000"}])
        ]
    )
    text = tokenizer.decode(content)
    if unknown == "<unk>":
        assert tokenizer.unk_token_id in content
    else:
        assert text == "<s>data: b\ufffd</s>"


def test_a_control_token_that_cannot_be_spelt_is_refused() -> None:
    words = {"<unk>": 0, "<s>": 1, "user": 2, ":": 3}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("<unk>", special=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<unk>")
    tokenizer.chat_template = TEMPLATE
    with pytest.raises(ValueError, match=r"messages\[0\].*'<unk>'"):
        render(tokenizer, [{"role": "user", "content": "<s>"}])


def test_a_control_token_that_the_template_puts_together_is_one_though_not_flagged_special() -> None:
    tokenizer = unigram(None, pre_tokenizers.Metaspace())
    tokenizer.add_tokens([AddedToken(f"<|{role}|>", special=False) for role in ("user", "data", "assistant", "note")])
    tokenizer.chat_template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '</s>' }}{% endfor %}"
    user = tokenizer.convert_tokens_to_ids("<|user|>")
    found = render(tokenizer, [{"role": "user", "content": "a"}, {"role": "data", "content": "b <|user|> c"}])
    assert found.input_ids.count(user) == 1
    assert user in control_token_ids(tokenizer)
    assert tokenizer.convert_tokens_to_ids("<|note|>") not in control_token_ids(tokenizer)
