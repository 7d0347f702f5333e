"""Configurations of Rolewise models in vLLM, and what is refused before an engine starts."""

from __future__ import annotations

import logging
import os
from typing import Any

from transformers import PreTrainedConfig

from rolewise.roles import RoleScheme
from rolewise.serving.packed import PackedIds
from rolewise.vllm import MODE
from rolewise.vllm.versions import check_version

logger = logging.getLogger("vllm.rolewise")

MODEL_TYPE_PREFIX = "rolewise_"  # as in modeling.families, which would import every model class
V2_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"


def config_reader(model_type: str) -> type[PreTrainedConfig]:
    """What reads a `rolewise_*` configuration: it gives the base's, with the segment fields as extra attributes.

    vLLM decides much by a configuration's type (precision, attention, quantisation). As its base's, a segmented model
    gets what its base gets.
    """

    def from_dict(cls: type, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        base: Any = CONFIG_MAPPING[model_type]
        return base.from_dict({**config_dict, "model_type": model_type}, **kwargs)

    name = MODEL_TYPE_PREFIX + model_type
    return type(f"Reader_{name}", (PreTrainedConfig,), {"model_type": name, "from_dict": classmethod(from_dict)})


def packed_ids(hf_config: Any) -> PackedIds:
    """How the ids of a model are packed, from its configuration.

    Raises:
        ValueError: when the configuration is no Rolewise model's.
    """
    scheme = getattr(hf_config, "segment_scheme", None)
    if scheme is None:
        raise ValueError(
            "config.json has no segment_scheme, so the roles' rows are unknown; save the model again with "
            "model.save_pretrained"
        )
    return PackedIds(hf_config.vocab_size, RoleScheme.from_dict(scheme))


def refusals(base_hook: Any) -> type:
    """The configuration hook of a segmented architecture: refuse what loses roles, then do as the base does."""

    from rolewise.vllm import hooks

    class Hook:
        @staticmethod
        def verify_and_update_model_config(model_config: Any) -> None:
            if warning := check_version():
                logger.warning("%s", warning)
            packed = packed_ids(model_config.hf_config)
            if packed.limit > 2**31:
                raise ValueError(f"packed ids up to {packed.limit} do not fit into vLLM's 32 bits")
            _refuse(model_config.runner_type != "generate", "--runner pooling", "it is run on text, without roles")
            _refuse(model_config.enable_prompt_embeds, "--enable-prompt-embeds", "embeddings carry no roles")
            replay = getattr(model_config, "enable_trace_replay", False)
            _refuse(replay, "--enable-trace-replay", "it puts ids into the answer unseen")
            mode = model_config.tokenizer_mode
            _refuse(mode not in ("auto", "hf", MODE), f"--tokenizer-mode {mode}", "its renderer takes plain prompts")
            model_config.tokenizer_mode = MODE
            # The newer runner counts penalties in kernels, out of our reach. Unset, it is chosen on GPUs.
            os.environ.setdefault(V2_RUNNER, "0")
            if base_hook is not None:
                base_hook.verify_and_update_model_config(model_config)

        @staticmethod
        def verify_and_update_config(vllm_config: Any) -> None:
            speculating = vllm_config.speculative_config is not None
            _refuse(speculating, "--speculative-config", "drafts from the prompt would be packed ids")
            _refuse(vllm_config.use_v2_model_runner, f"{V2_RUNNER}=1", f"set {V2_RUNNER}=0")
            rust = os.environ.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0")
            _refuse(rust, "VLLM_USE_RUST_FRONTEND=1", "its renderer takes plain prompts")
            hooks.install_in_engine()  # a forked engine inherits it; for a spawned one `register` does it
            if base_hook is not None:
                base_hook.verify_and_update_config(vllm_config)

    return Hook


def _refuse(given: bool, option: str, why: str) -> None:
    if given:
        raise ValueError(f"a Rolewise model cannot be served with {option}: {why}")
