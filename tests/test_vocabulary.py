"""Base models get a chat template, and room for its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rolewise as rw
from rolewise.modeling import load_tokenizer
from tests.chat import byte_level_tokenizer
from tests.models import plain_model, tiny_model


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


def test_encode_takes_the_scheme_of_the_model_and_no_other(tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer(("<|endoftext|>",), None)
    tokenizer.eos_token = "<|endoftext|>"
    plain_model("llama", vocab=len(tokenizer)).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    scheme = rw.RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
    model, loaded = rw.load(tmp_path / "base", scheme=scheme)
    model.save_pretrained(tmp_path / "saved")
    messages = [{"role": "user", "content": "a"}, {"role": "data", "content": "b"}]
    for own in (loaded, load_tokenizer(tmp_path / "saved")):  # the note is saved along
        batch = rw.encode(own, messages, return_tensors="pt")
        assert set(batch["segment_ids"][0].tolist()) == {0, 1}
        assert rw.encode(own, messages, scheme=model.role_scheme).segment_ids == batch["segment_ids"][0].tolist()
        # Of its rows none is out of range, but DATA would be OUTPUT to the model.
        with pytest.raises(ValueError, match=r"instruction.*leave scheme out, or pass model\.role_scheme"):
            rw.encode(own, messages, scheme=rw.RoleScheme())
    with pytest.raises(TypeError, match="not str"):
        rw.encode(tokenizer_without_note(), messages, scheme="default")


def test_a_tokenizer_goes_with_one_scheme() -> None:
    tokenizer = tokenizer_without_note()
    scheme = rw.RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
    rw.apply_template(rw.attach(plain_model("llama", vocab=len(tokenizer))), tokenizer)
    rw.apply_template(rw.attach(plain_model("gpt2", vocab=len(tokenizer))), tokenizer)  # of the same scheme
    other = rw.attach(plain_model("llama", vocab=len(tokenizer)), scheme=scheme)
    with pytest.raises(ValueError, match=r"another role scheme already .*tokenizer of its own for each model"):
        rw.apply_template(other, tokenizer)
    messages = [{"role": "user", "content": "a"}, {"role": "data", "content": "b"}]
    assert set(rw.encode(tokenizer, messages).segment_ids) == {0, 1, 2}  # as before


@pytest.mark.parametrize(
    "note",
    [
        3,
        [],
        {},
        {"names": ["a"]},
        {"names": "abcd", "rows": [0, 1, 2, 3]},
        {"names": ["a", "b", "c", "d"], "rows": [0, 1, 2, 9]},
        {"names": ["system", "user", "data", "output"], "rows": [0.0, 1, 2, 3]},
    ],
    ids=str,
)
def test_a_damaged_note_is_refused(note: Any) -> None:
    tokenizer = tokenizer_without_note()
    tokenizer.init_kwargs["rolewise_scheme"] = note
    with pytest.raises(ValueError, match=r"rolewise_scheme is damaged .* take that line out"):
        rw.encode(tokenizer, [{"role": "user", "content": "a"}, {"role": "data", "content": "b"}])


def tokenizer_without_note() -> Any:
    tokenizer = byte_level_tokenizer(("<|endoftext|>",), None)
    tokenizer.eos_token = "<|endoftext|>"
    rw.prepare_tokenizer(tokenizer, "text")
    return tokenizer
