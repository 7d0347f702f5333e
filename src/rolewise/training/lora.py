"""Parameter-efficient fine-tuning: adapters on the weights, the segment table trained whole."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolewise.training.trainer import refuse_without_roles

if TYPE_CHECKING:
    from peft import PeftModel

    from rolewise.modeling import SegmentedCausalLM
    from rolewise.training.config import LoraConfig

TABLE_MODULE = "segment_embedding"


def require_peft() -> None:
    """Raise ImportError, with the remedy, when peft is not installed."""
    try:
        importlib.import_module("peft")
    except ImportError as error:
        raise ImportError("method: lora needs peft; in your clone, pip install -e '.[peft]'") from error


def add_lora(model: SegmentedCausalLM, settings: LoraConfig, *, base: str) -> PeftModel:
    """Put LoRA adapters on `model`.

    Args:
        model: a segmented model.
        settings: rank, scale and targets.
        base: what `rolewise.load` finds the base model under; stored in the adapter.

    Raises:
        ImportError: when peft is not installed.
        ValueError: when no module of the model has a name in `settings.targets`.
    """
    require_peft()
    import peft

    targets = settings.targets
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=settings.dropout,
        target_modules=targets[0] if targets == ("all-linear",) else list(targets),
    )
    adapted = adapt(model, config)
    local = Path(base).expanduser()
    config.base_model_name_or_path = str(local.resolve()) if local.exists() else base
    return adapted


def adapt(model: SegmentedCausalLM, config: Any) -> PeftModel:
    """`peft.get_peft_model`, with the segment table among the modules that are trained and saved whole.

    The directory that the result saves is read by `rolewise.load`, which finds the base model in it.

    Args:
        model: a segmented model.
        config: a `peft.PeftConfig` of a method that adapts weights.

    Raises:
        ValueError: when tokens would have no role: with prompt learning, and with `trainable_token_indices`.
    """
    import peft

    refuse_without_roles(config)  # before PEFT changes the model
    config.modules_to_save = sorted({*(config.modules_to_save or ()), TABLE_MODULE})
    was_trained = model.segment_embedding.weight.requires_grad
    adapted: Any = peft.get_peft_model(model, config)
    if not was_trained:  # the delimiter arm: a zero table that stays so, but is saved with the adapter
        adapted.base_model.model.segment_embedding.requires_grad_(False)
    return adapted
