"""Loading for the commands: quiet libraries, and a line that says what is going on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolewise.modeling import SegmentedCausalLM
    from rolewise.roles import RoleScheme

DEFAULT_MODEL = "smollm2-135m"
NO_TABLE = "it has no segment table, so it is run as the bare model; rolewise train gives it one"


def load_quietly(name: str, *, scale: float | None = None) -> tuple[SegmentedCausalLM, Any]:
    """Load a model for inference, and its tokenizer.

    Args:
        name: as `rolewise.load` takes it.
        scale: factor on its table. By default the model's own; 0 for a model that comes without a table, as its fresh
            one is random.

    Raises:
        ValueError: when the tokenizer has no chat template, besides what `rolewise.load` raises.
    """
    say(f"loading {name} …")
    quiet_libraries()
    import torch

    from rolewise.modeling import load
    from rolewise.modeling.loading import has_table

    model, tokenizer = load(name)
    if scale is None and not has_table(name):
        say(NO_TABLE)
        scale = 0.0
    device: Any = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    model.to(device)
    if scale is not None:
        model.segment_scale = scale
    return model.eval(), tokenizer


def load_tokenizer_only(name: str) -> tuple[Any, RoleScheme]:
    """The tokenizer of a model, and the roles' rows of its table (the default for a model that has none yet)."""
    quiet_libraries()
    from transformers import PreTrainedConfig

    from rolewise.modeling import load_tokenizer
    from rolewise.modeling.loading import resolve_source
    from rolewise.roles import DEFAULT_SCHEME, RoleScheme

    tokenizer = load_tokenizer(name)
    source = resolve_source(name)
    stored = None
    if source.suffix != ".gguf":
        config, _ = PreTrainedConfig.get_config_dict(str(source))  # an object: load_tokenizer has looked
        stored = config.get("segment_scheme")
    return tokenizer, RoleScheme.from_dict(stored) if stored else DEFAULT_SCHEME


def quiet_libraries() -> None:
    """No progress bars or notices of transformers between our own lines; its errors reach the user as ours."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def say(text: str) -> None:
    """A line for the person at the terminal, out of the way of what is piped on."""
    print(text, file=sys.stderr, flush=True)
