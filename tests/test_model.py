"""The segment table on a model: what it adds, what it leaves alone, how it is kept."""

from __future__ import annotations

import copy
import json
import pickle
import re
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BertConfig, BertLMHeadModel, T5Config, T5ForConditionalGeneration

import rolewise as rw
from rolewise.modeling import SegmentedCausalLM, load_tokenizer
from rolewise.roles import RoleScheme
from tests.models import FAMILIES, VOCAB, plain_model, random_batch, tiny_model
from tests.training_model import save_tiny_model


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@torch.no_grad()
def logits(model: torch.nn.Module, **batch: torch.Tensor) -> torch.Tensor:
    return model(**batch).logits


def test_forward_adds_the_rows_to_the_embeddings(family: str) -> None:
    """The definition of the method, by hand: run the plain model on its embeddings plus the rows."""
    plain, model = plain_model(family), tiny_model(family)
    batch = random_batch()
    with torch.no_grad():
        embeds = plain.get_input_embeddings()(batch["input_ids"])
        by_hand = plain(inputs_embeds=embeds + model.segment_embedding.weight[batch["segment_ids"]]).logits
    torch.testing.assert_close(logits(model, **batch), by_hand)
    assert not torch.allclose(by_hand, logits(plain, input_ids=batch["input_ids"]))


def test_scale_zero_and_a_zero_table_are_the_bare_model_bit_for_bit(family: str) -> None:
    batch = random_batch()
    bare = logits(plain_model(family), input_ids=batch["input_ids"])
    model = tiny_model(family)
    assert not torch.equal(logits(model, **batch), bare)
    model.segment_scale = 0.0
    assert torch.equal(logits(model, **batch), bare)
    assert torch.equal(logits(model, input_ids=batch["input_ids"]), bare)
    model.segment_scale = 1.0
    torch.nn.init.zeros_(model.segment_embedding.weight)
    assert torch.equal(logits(model, **batch), bare)


def test_scale_multiplies_the_rows(family: str) -> None:
    batch = random_batch()
    half, halved = tiny_model(family), tiny_model(family)
    half.segment_scale = 0.5
    with torch.no_grad():
        halved.segment_embedding.weight.mul_(0.5)
    torch.testing.assert_close(logits(half, **batch), logits(halved, **batch))


def test_attach_converts_in_place_and_leaves_a_sibling_of_the_same_config_alone() -> None:
    plain = plain_model("llama")
    sibling = type(plain)(plain.config)
    assert rw.attach(plain) is plain
    assert isinstance(plain, SegmentedCausalLM)
    assert type(plain).__name__ == "SegmentedLlamaForCausalLM"
    assert not isinstance(sibling, SegmentedCausalLM)
    assert sibling.config.model_type == "llama"
    assert plain.base_model.config is plain.config


def test_save_and_load_give_the_same_logits(family: str, tmp_path: Path) -> None:
    model, batch = tiny_model(family), random_batch()
    model.segment_scale = 0.75
    model.save_pretrained(tmp_path)
    expected = logits(model, **batch)
    rw.register(model.config.model_type)
    for loaded in (rw.load_model(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)):
        assert type(loaded) is type(model)
        assert loaded.segment_scale == 0.75
        assert torch.equal(logits(loaded, **batch), expected)
        tied = loaded.get_input_embeddings().weight is loaded.get_output_embeddings().weight
        assert tied == bool(model.config.tie_word_embeddings)
    assert not list(tmp_path.glob(".saving-*"))


def test_a_tied_head_stays_tied_and_the_table_is_not_part_of_it() -> None:
    model = tiny_model("llama")
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert "segment_embedding.weight" in model.state_dict()


def test_resizing_the_vocabulary_keeps_the_table(family: str) -> None:
    model, batch = tiny_model(family), random_batch()
    table = model.segment_embedding.weight.clone()
    before = logits(model, **batch)
    model.resize_token_embeddings(VOCAB + 7, mean_resizing=False)
    assert torch.equal(model.segment_embedding.weight, table)
    torch.testing.assert_close(logits(model, **batch)[..., :VOCAB], before)
    with pytest.raises(ValueError, match="missing"):
        model(input_ids=batch["input_ids"])


def test_the_table_stays_fp32_in_a_bf16_model(tmp_path: Path) -> None:
    model = tiny_model("llama")
    table = model.segment_embedding.weight.detach().clone()
    model.to(torch.bfloat16)
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16
    assert torch.equal(model.segment_embedding.weight, table)
    batch = random_batch()
    assert logits(model, **batch).dtype == torch.bfloat16
    model.save_pretrained(tmp_path)
    for dtype in ("auto", torch.bfloat16, torch.float16):
        loaded = rw.load_model(tmp_path, dtype=dtype)
        assert loaded.segment_embedding.weight.dtype == torch.float32
        assert torch.equal(loaded.segment_embedding.weight, table)


def test_copies_have_tables_of_their_own() -> None:
    model, batch = tiny_model("llama"), random_batch()
    expected = logits(model, **batch)
    clone = copy.deepcopy(model)
    with torch.no_grad():
        model.segment_embedding.weight.zero_()
    assert torch.equal(logits(clone, **batch), expected)
    assert not torch.equal(logits(model, **batch), expected)
    assert torch.equal(logits(pickle.loads(pickle.dumps(clone)), **batch), expected)


def test_threads_that_share_a_model_do_not_swap_roles() -> None:
    model, batch = tiny_model("llama"), random_batch(batch=4, seq=64)
    batches = [batch | {"segment_ids": torch.full_like(batch["segment_ids"], row)} for row in range(4)]
    expected = [logits(model, **each) for each in batches]
    wrong: list[int] = []

    def work(row: int) -> None:
        for _ in range(30):
            if not torch.equal(logits(model, **batches[row]), expected[row]):
                wrong.append(row)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_failed_call_leaves_no_roles_behind() -> None:
    model, batch = tiny_model("llama"), random_batch()
    plain = model.get_input_embeddings()(batch["input_ids"]).detach()
    with pytest.raises(ValueError, match="missing"):
        model(input_ids=batch["input_ids"])
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=batch["input_ids"] + 1000, segment_ids=batch["segment_ids"])
    assert torch.equal(model.get_input_embeddings()(batch["input_ids"]), plain)


def test_an_architecture_that_embeds_elsewhere_is_refused() -> None:
    model, batch = tiny_model("llama"), random_batch()
    embedding = model.get_input_embeddings()
    embedding._forward_hooks.clear()
    with pytest.raises(RuntimeError, match="did not call its input embedding"):
        model(**batch)


def test_the_table_gets_gradient_just_where_its_segment_occurs(family: str) -> None:
    model, batch = tiny_model(family), random_batch(segments=3)
    batch["segment_ids"][batch["segment_ids"] == 1] = 0
    model(**batch, labels=batch["input_ids"]).loss.backward()
    norms = model.segment_embedding.weight.grad.norm(dim=1)
    assert (norms > 0).tolist() == [True, False, True, False]


def test_labelled_loss_equals_the_loss_of_the_model(family: str) -> None:
    batch = random_batch(batch=3)
    labels = batch["input_ids"].clone()
    labels[:, :5] = -100
    labels[1, :9] = -100
    losses, gradients = [], []
    for ours in (True, False):
        model = tiny_model(family)
        loss = rw.labelled_loss(model, batch | {"labels": labels}) if ours else model(**batch, labels=labels).loss
        loss.backward()
        losses.append(loss.item())
        gradients.append(model.segment_embedding.weight.grad)
        assert not model.get_output_embeddings()._forward_pre_hooks
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    torch.testing.assert_close(*gradients)


def test_labelled_loss_refuses_a_batch_without_labels() -> None:
    model, batch = tiny_model("llama"), random_batch()
    with pytest.raises(ValueError, match="no labels"):
        rw.labelled_loss(model, batch)
    with pytest.raises(ValueError, match="nothing to learn"):
        rw.labelled_loss(model, batch | {"labels": torch.full_like(batch["input_ids"], -100)})


@pytest.mark.slow
def test_compiles_to_one_graph() -> None:
    model, batch = tiny_model("llama"), random_batch()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(logits(compiled, **batch), logits(model, **batch))
    other = batch | {"segment_ids": (batch["segment_ids"] + 1) % 4}
    torch.testing.assert_close(logits(compiled, **other), logits(model, **other))
    with pytest.raises(ValueError, match="missing"):
        model(input_ids=batch["input_ids"])


def test_init_std_and_ratio() -> None:
    for options, ratio in (({"init_ratio": 0.5}, 0.5), ({"init_std": 0.0}, 0.0)):
        assert rw.attach(plain_model("gemma3"), **options).segment_ratio() == pytest.approx(ratio, abs=1e-3)
    wide = rw.attach(plain_model("llama", hidden=256), init_std=0.02)
    assert wide.segment_embedding.weight.detach().std().item() == pytest.approx(0.02, rel=0.1)
    with pytest.raises(ValueError, match="not both"):
        rw.attach(plain_model("llama"), init_std=0.1, init_ratio=0.1)
    with pytest.raises(ValueError, match="negative"):
        rw.attach(plain_model("llama"), init_ratio=-0.1)


def test_other_hierarchies(tmp_path: Path) -> None:
    scheme = RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
    model = rw.attach(plain_model("llama"), scheme=scheme, init_ratio=1.0)
    assert model.segment_embedding.weight.shape == (3, 32)
    with pytest.raises(ValueError, match=r"outside of 0\.\.2"):
        model(**random_batch(segments=4))
    model.save_pretrained(tmp_path)
    assert rw.load_model(tmp_path).role_scheme == scheme


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"names": ("a", "a", "b"), "rows": (0, 1, 1, 2)}, "a name of its own"),
        ({"names": ("a", "", "b"), "rows": (0, 1, 1, 2)}, "a name of its own"),
        ({"names": ["a", "b"]}, r"names=\['a', 'b'\] must be a tuple of str"),
        ({"rows": [0, 1, 2, 3]}, "rows=.* must be a tuple of int"),
        ({"rows": (0.0, 1.0, 2.0, 3.0)}, "must be a tuple of int"),
        ({"names": ("a", "b"), "rows": (False, False, False, True)}, "must be a tuple of int"),
        ({"rows": (0, 1, 2)}, "one row for each"),
    ],
)
def test_a_scheme_is_checked(options: dict[str, object], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        RoleScheme(**options)  # type: ignore[arg-type]


def test_no_scheme_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"rolewise\.RoleScheme.* not NoneType"):
        rw.attach(plain_model("llama"), scheme=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"rolewise\.RoleScheme.* not dict"):
        rw.RoleCollator(pad_token_id=0, scheme=RoleScheme().to_dict())  # type: ignore[arg-type]


def test_segment_ids_without_values_are_refused() -> None:
    batch = random_batch()
    with pytest.raises(ValueError, match="on the meta device"):
        tiny_model("llama")(**batch | {"segment_ids": batch["segment_ids"].to("meta")})


def test_attach_refuses_what_it_cannot_convert() -> None:
    with pytest.raises(ValueError, match="already"):
        rw.attach(tiny_model("llama"))
    with pytest.raises(ValueError, match="encoder-decoder"):
        rw.attach(T5ForConditionalGeneration(T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)))
    bert = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=9)
    with pytest.raises(ValueError, match="reads both ways"):
        rw.attach(BertLMHeadModel(bert))
    with pytest.raises(ValueError, match="AutoModelForCausalLM"):
        rw.attach(plain_model("llama").base_model)


def edit_config(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    def saved(name: str) -> Path:
        tiny_model("llama").save_pretrained(tmp_path / name)
        return tmp_path / name

    weights = load_file(saved("whole") / "model.safetensors")

    no_table = saved("no table")
    save_file(
        {k: v for k, v in weights.items() if "segment" not in k},
        no_table / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ValueError, match="no segment table"):
        rw.load_model(no_table)
    with pytest.raises(ValueError, match="no segment table"):
        AutoModelForCausalLM.from_pretrained(no_table)

    for name, shape in (("other H", (5, 32)), ("other D", (4, 16))):
        other = saved(name)
        changed = weights | {"segment_embedding.weight": torch.zeros(shape)}
        save_file(changed, other / "model.safetensors", {"format": "pt"})
        with pytest.raises(ValueError, match="segment"):
            rw.load_model(other)
        with pytest.raises(ValueError, match="segment"):
            rw.load_model(other, ignore_mismatched_sizes=True)

    truncated = saved("truncated")
    content = (truncated / "model.safetensors").read_bytes()
    (truncated / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="damaged or truncated"):
        rw.load_model(truncated)

    unpickled = saved("pickle")
    (unpickled / "model.safetensors").unlink()
    torch.save(weights, unpickled / "pytorch_model.bin")
    with pytest.raises(ValueError, match="no safetensors"):
        rw.load_model(unpickled)

    with pytest.raises(FileNotFoundError, match="does not exist"):
        rw.load_model(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="did you mean 'smollm2-135m'"):
        rw.load_model("smollm2-135")
    with pytest.raises(ValueError, match="is a file"):
        rw.load_model(truncated / "model.safetensors")
    with pytest.raises(ValueError, match="already"):
        rw.load_model(tmp_path / "whole", init_std=0.1)


MODEL_FILES = ("generation_config.json", "model.safetensors.index.json", "config.json")
TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "special_tokens_map.json", "config.json")


@pytest.mark.parametrize("content", ["[]", "null", "{", "[" * 3000])
@pytest.mark.parametrize("name", sorted({*MODEL_FILES, *TOKENIZER_FILES, "adapter_config.json"}))
def test_a_file_of_a_model_that_holds_no_object_is_named(name: str, content: str, tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    (tmp_path / name).write_text(content)
    if name in (*MODEL_FILES, "adapter_config.json"):
        with pytest.raises(ValueError, match=f"{re.escape(name)}.* (object|valid JSON)"):
            rw.load_model(tmp_path)
    if name in (*TOKENIZER_FILES, "adapter_config.json"):
        with pytest.raises(ValueError, match=f"{re.escape(name)}.* (object|valid JSON)"):
            load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["{}", '{"base_model_name_or_path": null}', '{"base_model_name_or_path": ["a"]}'])
def test_an_adapter_that_names_no_base_model(content: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    (tmp_path / "adapter_config.json").write_text(content)
    for load in (rw.load_model, load_tokenizer):
        with pytest.raises(ValueError, match=r"adapter_config\.json names no base model under base_model_name_or_path"):
            load(tmp_path)


def test_a_failed_save_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny_model("llama"), random_batch()
    model.save_pretrained(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with torch.no_grad():
        model.segment_embedding.weight.zero_()

    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert logits(rw.load_model(tmp_path), **batch) is not None


def test_saving_again_in_other_shards_leaves_no_old_weights(tmp_path: Path) -> None:
    model, batch = tiny_model("llama"), random_batch()
    for shard_size in ("5GB", "20KB", "5GB"):
        with torch.no_grad():
            model.segment_embedding.weight.mul_(0.5)
        model.save_pretrained(tmp_path, max_shard_size=shard_size)
        assert torch.equal(logits(rw.load_model(tmp_path), **batch), logits(model, **batch))
    assert [file.name for file in tmp_path.glob("model*")] == ["model.safetensors"]


def test_a_plain_checkpoint_gets_a_fresh_table(family: str, tmp_path: Path) -> None:
    plain_model(family).save_pretrained(tmp_path)
    model = rw.load_model(tmp_path, init_ratio=0.3)
    assert model.segment_ratio() == pytest.approx(0.3, rel=1e-3)
    again = rw.load_model(tmp_path, init_ratio=0.3)
    assert torch.equal(model.segment_embedding.weight, again.segment_embedding.weight)


def test_load_model_converts_a_model_in_memory() -> None:
    plain = plain_model("qwen3")
    assert rw.load_model(plain) is plain
    assert rw.load_model(plain) is plain


def test_register_refuses_an_unknown_family() -> None:
    with pytest.raises(ValueError, match="no_such_family"):
        rw.register("no_such_family")
