"""Give a plain causal language model a segment table."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from rolewise.modeling.families import PAPER_INIT_STD, segmented_class
from rolewise.modeling.mixin import SegmentedCausalLM
from rolewise.roles import DEFAULT_SCHEME, RoleScheme, require_scheme

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

FOLDED = "rolewise_folded"
"""The field of a configuration that marks a checkpoint of `rolewise export --to folded`."""


def attach(
    model: PreTrainedModel,
    *,
    scheme: RoleScheme = DEFAULT_SCHEME,
    init_std: float | None = None,
    init_ratio: float | None = None,
) -> SegmentedCausalLM:
    """Turn a causal LM of transformers into a segmented one, in place, and return it.

    The weights are shared, not copied: `model` itself becomes the segmented model, with a fresh table.

    Args:
        model: a decoder-only `...ForCausalLM` of transformers.
        scheme: which role takes which row.
        init_std: standard deviation of the new table's entries; 0.01 when neither is given (ISE's code).
        init_ratio: the same, relative to the RMS of the model's token embeddings. 0.01 is lost among embeddings of
            RMS 0.136 (SmolLM2) and large for others, so a ratio carries over from one model to another.

    Raises:
        ValueError: when the model has a table already, is not decoder-only, or both `init_std` and `init_ratio` are
            given or negative.
    """
    name = type(model).__name__
    require_scheme(scheme)
    if isinstance(model, SegmentedCausalLM):
        raise ValueError(f"{name} has a segment table already; use it as it is, or load the plain model to start anew")
    if getattr(model.config, FOLDED, None):
        raise ValueError(
            f"{name} was exported folded: OUTPUT's row is in its token embeddings already, so it is no bare model; "
            "load the model that it was made from, or serve this one with rolewise.export.FoldedClient"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{name} is an encoder-decoder model; Rolewise needs a decoder-only causal LM")
    if model.get_output_embeddings() is not None and model.base_model is model:
        raise ValueError(
            f"{name} does not say which of its modules is the backbone (its base_model_prefix "
            f"{model.base_model_prefix!r} is none of {', '.join(dict(model.named_children()))}), and the roles are "
            "added there; Rolewise does not support this architecture yet"
        )
    if model.get_output_embeddings() is None:
        raise ValueError(f"{name} has no language-model head over a backbone; load it with AutoModelForCausalLM")
    if (
        model.config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
        and getattr(model.config, "is_decoder", None) is False
    ):
        raise ValueError(
            f"{name} reads both ways (config.is_decoder is False), so it is no causal LM; load one that is, or set "
            "is_decoder=True before loading"
        )
    if init_std is not None and init_ratio is not None:
        raise ValueError(f"pass either init_std={init_std} or init_ratio={init_ratio}, not both")
    if any(value is not None and value < 0 for value in (init_std, init_ratio)):
        raise ValueError(f"init_std={init_std} and init_ratio={init_ratio} must not be negative")
    plain_config = model.config
    cls = segmented_class(type(model))
    config: Any = copy.deepcopy(plain_config)
    config.__class__ = cls.config_class
    config.segment_scheme = scheme.to_dict()
    config.segment_scale = 1.0
    config.segment_init_std = PAPER_INIT_STD if init_std is None else float(init_std)
    for module in model.modules():  # backbone and layers hold on to the configuration too
        if getattr(module, "config", None) is plain_config:
            cast("Any", module).config = config
    converted: Any = model
    converted.__class__ = cls
    converted._keep_in_fp32_modules_strict = {
        *(getattr(model, "_keep_in_fp32_modules_strict", None) or ()),
        "segment_embedding",
    }
    converted._no_split_modules = [*(getattr(model, "_no_split_modules", None) or ()), "SegmentEmbedding"]
    converted.add_segment_table()
    segmented: SegmentedCausalLM = converted
    if init_ratio is not None:
        _scale_to_ratio(segmented, init_ratio)
    if segmented.segment_embedding.weight.device.type != "meta":
        logger.info(
            "new segment table of %d x %d: its RMS is %.3f of the token embeddings'",
            *segmented.segment_embedding.weight.shape,
            segmented.segment_ratio(),
        )
    return segmented


@torch.no_grad()
def _scale_to_ratio(model: SegmentedCausalLM, ratio: float) -> None:
    config: Any = model.config
    words = config.segment_init_std / max(model.segment_ratio(), 1e-12)  # about the embeddings' RMS
    table = model.segment_embedding.weight
    config.segment_init_std = ratio * words
    table.mul_(ratio / max(model.segment_ratio(), 1e-12))
