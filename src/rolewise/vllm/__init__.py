"""The vLLM plugin: packed ids come in, every token keeps its role.

vLLM finds `register` by its entry point (`vllm.general_plugins`) and calls it in each of its processes, whatever model
they serve, so that it does no more than make names known:

- configurations of `rolewise_*` models are read (as their base's, so that vLLM treats them as it treats the base);
- the architectures `Segmented...ForCausalLM` are built by `rolewise.vllm.models`;
- what the engine cannot do with roles is refused at its start (`rolewise.vllm.configuration`);
- prompts are checked by a renderer of our own (`rolewise.vllm.renderer`), packed ids only and never text, and by the
  engine itself once more (`rolewise.vllm.hooks`).
"""

# pyright: reportMissingImports=false
# vLLM lives in an environment of its own.

from __future__ import annotations

import logging
import sys
from typing import Any

ARCHITECTURE_PREFIX = "Segmented"
MODE = "rolewise"
"""The name of our tokenizer mode, by which vLLM chooses the renderer."""


def register() -> None:
    """Make vLLM know Rolewise models. Called by vLLM, once or more in each process.

    A vLLM that lacks a place where we hook in goes on serving other models; ours it does not know, or refuses.
    """
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as KNOWN

    from rolewise.vllm.configuration import config_reader, refusals
    from rolewise.vllm.versions import misfit

    try:
        from vllm.model_executor.models import ModelRegistry
        from vllm.model_executor.models.config import MODELS_CONFIG_MAP
        from vllm.renderers.registry import RENDERER_REGISTRY
        from vllm.tokenizers.registry import TokenizerRegistry

        if "vllm.v1.engine.core" in sys.modules:  # this process runs an engine
            from rolewise.vllm.hooks import install_in_engine

            install_in_engine()
    except (ImportError, RuntimeError) as error:
        logging.getLogger("vllm.rolewise").warning("%s", misfit(str(error)))
        return
    native = set(ModelRegistry.get_supported_archs())
    if f"{ARCHITECTURE_PREFIX}LlamaForCausalLM" in native:
        return
    RENDERER_REGISTRY.renderers[MODE] = ("rolewise.vllm.renderer", "PackedRenderer")
    TokenizerRegistry.tokenizers[MODE] = TokenizerRegistry.tokenizers["hf"]
    for model_type, base in KNOWN.items():
        reader: Any = config_reader(model_type)
        AutoConfig.register(reader.model_type, reader, exist_ok=True)
        architecture = ARCHITECTURE_PREFIX + base
        MODELS_CONFIG_MAP[architecture] = refusals(MODELS_CONFIG_MAP.get(base))
        # Last, so that nothing is served when a step before failed.
        ModelRegistry.register_model(architecture, f"rolewise.vllm.models:{architecture}")
