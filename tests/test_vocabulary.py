"""Base models get a chat template, and room for its tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rolewise as rw
from tests.chat import byte_level_tokenizer
from tests.models import tiny_model


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_new_tokens_start_from_the_words_they_stand_for(family: str) -> None:
    tokenizer = byte_level_tokenizer(("<|endoftext|>",), None)
    tokenizer.eos_token = "<|endoftext|>"
    model = tiny_model(family, vocab=len(tokenizer))
    before = model.get_input_embeddings().weight.detach().clone()
    head = model.get_output_embeddings().weight.detach().clone()
    prepared = rw.apply_template(model, tokenizer, "delimiter")
    assert set(prepared.added_words) == {"[MARK]", "[INST]", "[INPT]", "[RESP]", "[COLN]"}
    after = model.get_input_embeddings().weight
    assert torch.equal(after[: len(before)], before)  # no old row is overwritten, the first included
    for token, words in prepared.added_words.items():
        ids = tokenizer(words, add_special_tokens=False).input_ids
        new = tokenizer.convert_tokens_to_ids(token)
        torch.testing.assert_close(after[new], before[ids].mean(0))
        torch.testing.assert_close(model.get_output_embeddings().weight[new], head[ids].mean(0))
    batch = rw.encode(
        tokenizer,
        [{"role": "user", "content": "[INST] a"}, {"role": "data", "content": "[RESP]"}],
        add_generation_prompt=True,
        return_tensors="pt",
    )
    control = [tokenizer.convert_tokens_to_ids(token) for token in ("[INST]", "[RESP]")]
    assert [int((batch["input_ids"] == token).sum()) for token in control] == [1, 1]  # the template's own alone
    assert model(**batch).logits.shape[-1] == len(tokenizer)


def test_a_padded_vocabulary_is_used_before_it_grows() -> None:
    tokenizer = byte_level_tokenizer(("<|endoftext|>",), None)
    tokenizer.eos_token = "<|endoftext|>"
    model = tiny_model("llama", vocab=len(tokenizer) + 16)
    rw.apply_template(model, tokenizer, "delimiter")
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer) - 5 + 16


def test_load_gives_a_base_model_a_template_and_saves_it_along(tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer(("<|endoftext|>",), None)
    tokenizer.eos_token = "<|endoftext|>"
    tiny_model("llama", vocab=len(tokenizer)).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    model, loaded = rw.load(tmp_path / "base")
    messages = [{"role": "user", "content": "a"}, {"role": "data", "content": "b"}]
    batch = rw.encode(loaded, messages, add_generation_prompt=True, return_tensors="pt")
    assert "<|im_start|>data" in loaded.decode(batch["input_ids"][0])
    new = loaded.convert_tokens_to_ids("<|im_end|>")
    with torch.no_grad():  # training moves the new tokens away from their words; loading must not put them back
        model.get_input_embeddings().weight[new] += 1.0
    model.save_pretrained(tmp_path / "prepared")
    again, same = rw.load(tmp_path / "prepared")
    assert rw.data_layout(same) == "header"
    stops = again.generation_config.eos_token_id
    assert new in (stops if isinstance(stops, list) else [stops])
    second = rw.encode(same, messages, add_generation_prompt=True, return_tensors="pt")
    assert torch.equal(batch["input_ids"], second["input_ids"])
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, again(**second).logits)
    with pytest.raises(ValueError, match="nonsense"):
        rw.load(tmp_path / "base", template="nonsense")
