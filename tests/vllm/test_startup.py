"""What loses roles is refused before an engine starts, and a vLLM that lacks a place to hook into, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from rolewise.roles import DEFAULT_SCHEME
from rolewise.vllm import configuration, hooks, models, register, versions
from tests.vllm.servers import launch, wait


def configured(**changed: Any) -> SimpleNamespace:
    values = {
        "hf_config": SimpleNamespace(vocab_size=100, segment_scheme=DEFAULT_SCHEME.to_dict()),
        "runner_type": "generate", "enable_prompt_embeds": False, "enable_trace_replay": False,
        "tokenizer_mode": "auto",
    }  # fmt: skip
    return SimpleNamespace(**{**values, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"runner_type": "pooling"}, "--runner pooling"),
        ({"enable_prompt_embeds": True}, "--enable-prompt-embeds"),
        ({"enable_trace_replay": True}, "--enable-trace-replay"),
        ({"tokenizer_mode": "mistral"}, "--tokenizer-mode mistral"),
        ({"hf_config": SimpleNamespace(vocab_size=100)}, "segment_scheme"),
        ({"hf_config": SimpleNamespace(vocab_size=2**30, segment_scheme=DEFAULT_SCHEME.to_dict())}, "32 bits"),
    ],
)
def test_a_model_configuration_that_loses_roles(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        configuration.refusals(None).verify_and_update_model_config(configured(**changed))


def test_an_engine_configuration_that_loses_roles() -> None:
    hook = configuration.refusals(None)
    with pytest.raises(ValueError, match="speculative"):
        hook.verify_and_update_config(SimpleNamespace(speculative_config=object(), use_v2_model_runner=False))
    with pytest.raises(ValueError, match="VLLM_USE_V2_MODEL_RUNNER=0"):
        hook.verify_and_update_config(SimpleNamespace(speculative_config=None, use_v2_model_runner=True))


def test_a_good_configuration_gets_our_renderer_and_its_bases_hook() -> None:
    called: list[Any] = []
    base = SimpleNamespace(verify_and_update_model_config=called.append, verify_and_update_config=called.append)
    hook, good = configuration.refusals(base), configured()
    hook.verify_and_update_model_config(good)
    assert good.tokenizer_mode == "rolewise"
    engine = SimpleNamespace(speculative_config=None, use_v2_model_runner=False)
    hook.verify_and_update_config(engine)
    assert called == [good, engine]


def test_an_untested_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda: "0.99.1")
    with pytest.raises(RuntimeError, match=r"0\.99\.1"):
        configuration.refusals(None).verify_and_update_model_config(configured())
    monkeypatch.setenv(versions.OVERRIDE, "1")
    assert "roles may be lost" in (versions.check_version() or "")


def test_this_vllm_is_one_of_the_tested() -> None:
    assert versions.check_version() is None


def test_a_place_to_hook_into_that_is_not_there() -> None:
    class Renamed:
        def other(self) -> None: ...

    class Changed:
        def method(self, more: int) -> None: ...

    for owner in (Renamed, Changed):
        with pytest.raises(RuntimeError, match=r"method\(self\)"):
            hooks._wrap(owner, "method", ("self",), lambda original: original)


def test_a_backbone_that_embeds_elsewhere_is_refused() -> None:
    class Backbone(torch.nn.Module):
        def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids + 1

    with pytest.raises(RuntimeError, match="embed_input_ids"):
        models.find_embedding(SimpleNamespace(model=Backbone()))
    with pytest.raises(RuntimeError, match="embed_input_ids"):
        models.find_embedding(SimpleNamespace())


def test_the_engine_itself_refuses_what_came_past_the_renderer() -> None:
    engine = SimpleNamespace(vllm_config=SimpleNamespace(model_config=configured()))
    checked = hooks._with_roles(lambda self, request: "taken")

    def request(ids: list[int] | None, embeds: object = None) -> SimpleNamespace:
        return SimpleNamespace(prompt_token_ids=ids, prompt_embeds=embeds)

    assert checked(engine, request([5, 105])) == "taken"
    for refused in (request([5, 6]), request([400]), request([]), request(None), request([105], object())):
        with pytest.raises(ValueError, match=r"prompt"):
            checked(engine, refused)
    engine.vllm_config.model_config.hf_config = SimpleNamespace(vocab_size=100)
    assert checked(engine, request([5, 6])) == "taken", "another model in the same process"


def test_the_engine_is_hooked_into_before_it_starts() -> None:
    from vllm.v1.engine.core import EngineCore

    engine = SimpleNamespace(speculative_config=None, use_v2_model_runner=False)
    configuration.refusals(None).verify_and_update_config(engine)
    assert getattr(EngineCore.preprocess_add_request, hooks._MARK)


def test_the_rust_front_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    engine = SimpleNamespace(speculative_config=None, use_v2_model_runner=False)
    with pytest.raises(ValueError, match="RUST"):
        configuration.refusals(None).verify_and_update_config(engine)


def test_plain_prompts_are_filled_up_as_vllm_does() -> None:
    """Token 0 of block 1 is the number that vLLM fills up with."""
    batch = SimpleNamespace(vocab_size=10, num_prompt_tokens=[3, 2])
    packed = torch.tensor([[10, 35, 4], [19, 10, 10]])
    plain = hooks._plain_prompts(lambda self: packed.clone())(batch)
    assert plain.tolist() == [[0, 5, 4], [9, 0, 10]]


def test_registering_twice_is_as_good_as_once_and_leaves_plain_models_alone() -> None:
    from transformers import AutoConfig
    from vllm.model_executor.models import ModelRegistry

    register()
    known = set(ModelRegistry.get_supported_archs())
    register()
    assert set(ModelRegistry.get_supported_archs()) == known
    assert {"SegmentedLlamaForCausalLM", "SegmentedGemma3ForCausalLM", "LlamaForCausalLM"} <= known
    assert type(AutoConfig.for_model("llama")) is LlamaConfig


def test_a_vllm_without_our_places_still_serves_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.models import ModelRegistry

    known = dict(ModelRegistry.models)
    ours = [name for name in known if name.startswith("Segmented")]
    for name in ours:
        ModelRegistry.models.pop(name)
    try:
        monkeypatch.setitem(sys.modules, "vllm.renderers.registry", None)
        register()
        assert not any(name.startswith("Segmented") for name in ModelRegistry.models)
    finally:
        ModelRegistry.models.update(known)


def test_importing_the_plugin_is_light() -> None:
    code = "import sys, rolewise.vllm; print({'torch', 'transformers', 'vllm'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


@pytest.mark.parametrize("damage", ["missing", "shape"])
def test_a_damaged_table_stops_the_server(llama: Path, tmp_path: Path, damage: str) -> None:
    for file in llama.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    table = weights.pop("segment_embedding.weight")
    if damage == "shape":
        weights["segment_embedding.weight"] = table[:3].clone()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    server = launch(tmp_path, tmp_path / "log")
    try:
        with pytest.raises(RuntimeError, match="the server ended"):
            wait(server)
    finally:
        server.kill()
    words = "has no segment table" if damage == "missing" else "the segment table has shape"
    assert words in server.log.read_text()
