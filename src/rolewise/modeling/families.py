"""The class factory: `Segmented<Base>` model and configuration classes for any causal LM of transformers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
)

from rolewise.modeling.mixin import SegmentedCausalLM
from rolewise.modeling.segments import forward_with_segments
from rolewise.roles import DEFAULT_SCHEME

MODEL_TYPE_PREFIX = "rolewise_"
PAPER_INIT_STD = 0.01

_classes: dict[type, type] = {}


def segmented_class(base: type[PreTrainedModel]) -> type[SegmentedCausalLM]:
    """The segmented class of a `...ForCausalLM` class; made once, and registered with the auto classes."""
    if issubclass(base, SegmentedCausalLM):
        return base
    if base not in _classes:
        config_class = _segmented_config(cast("type[PreTrainedConfig]", base.config_class))
        _classes[base] = _build(base, config_class)
        _copy_conversions(base, _classes[base])
        AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
        AutoModelForCausalLM.register(config_class, _classes[base], exist_ok=True)
    return _classes[base]


def _copy_conversions(base: type[PreTrainedModel], made: type[PreTrainedModel]) -> None:
    """Let our classes read and write files as their bases do, which keep the experts of a MoE apart on disk."""
    kinds = [cast("Any", cls.config_class).model_type for cls in (base, made)]
    for old, new in (kinds, (base.__name__, made.__name__)):
        if (conversions := get_checkpoint_conversion_mapping(old)) is not None:
            register_checkpoint_conversion_mapping(new, cast("Any", conversions), overwrite=True)


def _segmented_config(base: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    fields: dict[str, tuple[type, Any]] = {
        "segment_scheme": (dict, DEFAULT_SCHEME.to_dict()),
        "segment_scale": (float, 1.0),
        "segment_init_std": (float, PAPER_INIT_STD),
    }
    namespace: dict[str, Any] = {
        "__doc__": f"`{base.__name__}` with the segments of Rolewise.",
        "__module__": __name__,
        "model_type": MODEL_TYPE_PREFIX + base.model_type,
        "__annotations__": {name: kind for name, (kind, _) in fields.items() if name != "segment_scheme"},
        "segment_scale": 1.0,
        "segment_init_std": PAPER_INIT_STD,
        # A class attribute rather than a field: mutable defaults are not for dataclasses.
        "segment_scheme": DEFAULT_SCHEME.to_dict(),
    }
    return type(f"Segmented{base.__name__}", (base,), namespace)


def _build(base: type[PreTrainedModel], config_class: type[PreTrainedConfig]) -> type[SegmentedCausalLM]:
    namespace: dict[str, Any] = {
        "__doc__": f"`{base.__name__}` with a role for every token.",
        "__module__": __name__,
        "config_class": config_class,
        "forward": _forward(base),
        "prepare_inputs_for_generation": _prepare_inputs(base),
        "_keep_in_fp32_modules_strict": {*(base._keep_in_fp32_modules_strict or ()), "segment_embedding"},
        # FSDP2 wants one dtype a group: the fp32 table gets a group of its own.
        "_no_split_modules": [*(base._no_split_modules or ()), "SegmentEmbedding"],
    }
    return cast("type[SegmentedCausalLM]", type(f"Segmented{base.__name__}", (SegmentedCausalLM, base), namespace))


def _forward(base: type[PreTrainedModel]) -> Any:
    """The base's forward, which leaves `segment_ids` for its backbone."""
    base_forward = base.forward

    def forward(self: Any, *args: Any, segment_ids: Any = None, **kwargs: Any) -> Any:
        return forward_with_segments(base_forward, self, segment_ids, args, kwargs)

    return _with_signature_of(base_forward, forward)


def _prepare_inputs(base: type[PreTrainedModel]) -> Any:
    def prepare_inputs_for_generation(self: Any, *args: Any, **kwargs: Any) -> Any:
        return SegmentedCausalLM.prepare_inputs_for_generation(self, *args, **kwargs)

    return _with_signature_of(cast("Any", base).prepare_inputs_for_generation, prepare_inputs_for_generation)


def _with_signature_of(base_method: Callable[..., Any], method: Callable[..., Any]) -> Any:
    """`method` with the base's signature plus `segment_ids`: `generate` and `Trainer` look there for what it takes."""
    signature = inspect.signature(base_method)
    parameters = list(signature.parameters.values())
    segments = inspect.Parameter("segment_ids", inspect.Parameter.KEYWORD_ONLY, default=None)
    at = len(parameters) - (parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
    wrapped: Any = functools.wraps(base_method)(method)
    wrapped.__signature__ = signature.replace(parameters=[*parameters[:at], segments, *parameters[at:]])
    return wrapped


def register(model_type: str | None = None) -> None:
    """Let `AutoConfig` and `AutoModelForCausalLM` read saved Rolewise models.

    Args:
        model_type: one family, such as "llama" (or "rolewise_llama"); all that transformers has when None, which
            takes a few seconds. The loaders of Rolewise register what they need by themselves.

    Raises:
        ValueError: when transformers has no causal LM of that type.
    """
    if model_type is not None:
        model_type = model_type.removeprefix(MODEL_TYPE_PREFIX)
        if model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            raise ValueError(
                f"transformers has no causal language model of type {model_type!r}; known are, for example, llama, "
                "qwen3, gemma3_text, mistral, gpt2"
            )
        segmented_class(_base_class(model_type))
        return
    for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        segmented_class(_base_class(name))


def _base_class(model_type: str) -> type[PreTrainedModel]:
    return cast("type[PreTrainedModel]", MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[model_type]])


def __getattr__(name: str) -> Any:
    """Find a made class by its name, in this process or in one that unpickles a model's class."""
    base_name = name.removeprefix("Segmented")
    for model_type, base in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        if name != base_name and base_name in (base, CONFIG_MAPPING_NAMES.get(model_type)):
            made = segmented_class(_base_class(model_type))
            return made if base_name == base else made.config_class
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
