"""A folded model in a stock class of transformers, fed by the client's embeddings, is the model itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama.modeling_llama import LlamaModel

import rolewise as rw
from rolewise.export import PromptEmbeddings, export_model
from rolewise.export.folded import embedding_scale, fold
from rolewise.roles import RoleScheme
from tests.export_models import KINDS, MESSAGES, save_model
from tests.training_model import save_tiny_model

THREE = RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))


def stock(directory: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


@torch.no_grad()
def assert_same(model: Any, directory: Path, *, head: str = "untied", close: float = 1e-4) -> None:
    """Logits, and a greedy answer, of our model with segment ids and of the stock one with embeddings."""
    prompts, plain = PromptEmbeddings(directory), stock(directory)
    encoding = prompts.render(MESSAGES)
    assert len(set(encoding.segment_ids)) == prompts.scheme.num_segments
    ids, segments = torch.tensor([encoding.input_ids]), torch.tensor([encoding.segment_ids])
    embeds = prompts.embed(encoding.input_ids, encoding.segment_ids, dtype=torch.float32)[None]
    want, got = model(input_ids=ids, segment_ids=segments).logits, plain(inputs_embeds=embeds).logits
    if head == "tied":
        want, got = want.log_softmax(-1), got.log_softmax(-1)
    torch.testing.assert_close(got, want, atol=close, rtol=close)
    mask = torch.ones_like(ids)
    options: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "attention_mask": mask, "pad_token_id": 0}
    answer = model.generate(input_ids=ids, segment_ids=segments, **options)[0, ids.shape[1] :]
    assert torch.equal(plain.generate(inputs_embeds=embeds, **options)[0], answer)
    # Without the rows it would be another answer, or the test would show nothing.
    bare = plain(inputs_embeds=plain.get_input_embeddings()(ids)).logits
    assert not torch.allclose(bare.log_softmax(-1), want.log_softmax(-1), atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_the_stock_model_answers_as_ours(kind: str, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", kind)
    result = export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    assert_same(model, tmp_path / "folded")
    assert result.total.same_answers == result.total.answers > 0
    config = json.loads((tmp_path / "folded" / "config.json").read_text())
    assert config["model_type"] == model.config.model_type.removeprefix("rolewise_")
    assert config["tie_word_embeddings"] is False
    assert not [name for name in config if name.startswith("segment_")]
    with safe_open(tmp_path / "folded" / "model.safetensors", framework="pt") as file:
        assert not [name for name in file.keys() if "segment" in name]  # noqa: SIM118


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
def test_a_head_that_goes_on_sharing_gives_the_same_probabilities(kind: str, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", kind)
    result = export_model(tmp_path / "model", tmp_path / "folded", to="folded", head="tied")
    assert result.added_parameters == 0
    assert result.bytes < 1.05 * result.source_bytes
    assert json.loads((tmp_path / "folded" / "config.json").read_text())["tie_word_embeddings"] is True
    assert_same(model, tmp_path / "folded", head="tied")
    embedding: Any = model.get_input_embeddings()
    untied = export_model(tmp_path / "model", tmp_path / "untied", to="folded")
    assert untied.added_parameters == embedding.weight.numel()
    assert untied.bytes - result.bytes == pytest.approx(4 * untied.added_parameters, rel=0.05)


def test_a_model_that_caps_its_logits_cannot_go_on_sharing(tmp_path: Path) -> None:
    save_model(tmp_path / "model", "gemma2")
    with pytest.raises(ValueError, match=r"bends its logits.*--head untied"):
        export_model(tmp_path / "model", tmp_path / "folded", to="folded", head="tied")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("tied", [True, False])
def test_three_segments_a_scale_and_either_head(tied: bool, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", scheme=THREE, scale=0.5, tied=tied)
    result = export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    assert (result.scale, bool(result.added_parameters)) == (0.5, tied)
    assert PromptEmbeddings(tmp_path / "folded").scheme == THREE
    assert_same(model, tmp_path / "folded")


def test_another_scale_is_folded_in(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "folded", to="folded", scale=1.5)
    model.segment_scale = 1.5
    assert_same(model, tmp_path / "folded")


def test_scale_zero_is_the_bare_model_and_adds_no_head(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model")
    result = export_model(tmp_path / "model", tmp_path / "folded", to="folded", scale=0.0)
    assert result.added_parameters == 0
    model.segment_scale = 0.0
    ids = torch.arange(2, 30)[None]
    with torch.no_grad():
        assert torch.equal(stock(tmp_path / "folded")(input_ids=ids).logits, model(input_ids=ids).logits)


@pytest.mark.parametrize(("dtype", "close"), [("bf16", 0.05), ("fp16", 0.005)])
def test_a_smaller_dtype_is_rounded_once_and_measured(dtype: Any, close: float, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", "gemma3")
    result = export_model(tmp_path / "model", tmp_path / "folded", to="folded", dtype=dtype)
    assert 0 < result.rounding.mean < result.rounding.largest < close
    assert 0 < result.written.mean <= result.total.largest < close
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "folded").dtype != torch.float32
    prompts = PromptEmbeddings(tmp_path / "folded")
    encoding = prompts.render(MESSAGES)
    own = prompts.embed(encoding.input_ids, encoding.segment_ids)
    assert own.dtype == prompts.dtype != torch.float32
    embedding: Any = model.get_input_embeddings()
    with torch.no_grad():
        exact = type(embedding).forward(embedding, torch.tensor(encoding.input_ids))
        exact = exact + model.segment_embedding.weight[encoding.segment_ids]
    torch.testing.assert_close(own.float(), exact, atol=0.02, rtol=0.02)


def test_a_bf16_model_stays_one(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", "qwen3", dtype=torch.bfloat16)
    result = export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    assert result.dtype == "bfloat16"
    assert result.rounding.largest == 0
    assert_same(model, tmp_path / "folded", close=0.05)


def test_gemmas_scale_is_found_and_granites_is_none() -> None:
    class Twice(torch.nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 2.5

    class Normed(torch.nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.normalize(super().forward(input), dim=-1)

    assert embedding_scale(Twice(20, 8)) == pytest.approx(2.5)
    assert embedding_scale(torch.nn.Embedding(20, 8)) == 1.0
    with pytest.raises(ValueError, match="something else than look rows up"):
        embedding_scale(Normed(20, 8))


@pytest.mark.parametrize(("kind", "scale"), [("gemma3", 32**0.5), ("granite", 1.0), ("llama", 1.0)])
def test_the_fold_divides_by_the_scale(kind: str, scale: float, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", kind)
    folded = fold(model)
    assert folded.scale == pytest.approx(scale)
    embedding: Any = model.get_input_embeddings()
    torch.testing.assert_close(
        (folded.embeddings - embedding.weight) * folded.scale,
        model.segment_embedding.weight[3].expand_as(embedding.weight), atol=1e-5, rtol=1e-5,
    )  # fmt: skip
    assert torch.equal(folded.rows[3], torch.zeros(32))


def test_an_architecture_that_treats_embeddings_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path / "model")
    forward = LlamaModel.forward

    def changed(self: Any, input_ids: Any = None, inputs_embeds: Any = None, **kwargs: Any) -> Any:
        if inputs_embeds is not None:
            inputs_embeds = inputs_embeds * 1.1
        return forward(self, input_ids=input_ids, inputs_embeds=inputs_embeds, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", changed)
    with pytest.raises(ValueError, match=r"LlamaForCausalLM cannot be exported folded.*rolewise serve"):
        export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_fold_that_went_wrong_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rolewise.export import run
    from rolewise.export.folded import Fold

    def without_output(model: Any) -> Fold:
        made = fold(model)
        return Fold(embeddings=model.get_input_embeddings().weight.detach(), rows=made.rows, scale=made.scale)

    save_model(tmp_path / "model")
    monkeypatch.setattr(run, "fold", without_output)
    with pytest.raises(ValueError, match="does not answer as the model itself"):
        export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    assert not (tmp_path / "folded").exists()


def test_shards_are_read_by_the_client(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "folded", to="folded", max_shard_size="50KB")
    assert (tmp_path / "folded" / "model.safetensors.index.json").exists()
    assert_same(model, tmp_path / "folded")


def test_the_engine_gets_no_template_and_the_client_does(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    assert AutoTokenizer.from_pretrained(tmp_path / "folded").chat_template is None
    prompts = PromptEmbeddings(tmp_path / "folded")
    _, tokenizer = rw.load(tmp_path / "model")
    assert prompts.render(MESSAGES) == rw.render(tokenizer, MESSAGES, add_generation_prompt=True)
    # An engine reads every weights file beside its own.
    assert [file.name for file in (tmp_path / "folded").glob("*.safetensors")] == ["model.safetensors"]


def test_prompts_are_checked(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    prompts = PromptEmbeddings(tmp_path / "folded")
    for ids, segments, said in (
        ([], [], "empty"), ([5], [4], "outside of 0..3"), ([5], [-1], "outside of 0..3"), ([5, 6], [1], "shape"),
        ([300], [0], "outside of 0..299"), ([-1], [0], "outside of 0..299"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            prompts.embed(ids, segments)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"format": 2}'])
def test_a_damaged_client_folder_is_said_so(damage: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    file = tmp_path / "folded" / "client" / "folded.json"
    if "format" in damage:
        file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2}))
    else:
        file.write_text(damage)
    with pytest.raises(ValueError, match=r"damaged|of format 2"):
        PromptEmbeddings(tmp_path / "folded")


def test_what_has_no_table_or_is_folded_already_is_refused(tmp_path: Path) -> None:
    plain = save_tiny_model(tmp_path / "plain")
    for to in ("folded", "hf"):
        with pytest.raises(ValueError, match=r"has no segment table.*rolewise train"):
            export_model(plain, tmp_path / "out", to=to)
    save_model(tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "folded", to="folded")
    with pytest.raises(ValueError, match="is folded already"):
        export_model(tmp_path / "folded", tmp_path / "again", to="hf")
    with pytest.raises(ValueError, match=r"was exported folded.*no bare model"):
        rw.load_model(tmp_path / "folded")  # a fresh table, or scale 0, would make everything OUTPUT
    with pytest.raises(FileNotFoundError, match=r"is no folded model.*--to folded"):
        PromptEmbeddings(tmp_path / "model")
