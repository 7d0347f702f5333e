"""What a model calls its cache: the name changes between architectures and releases of Transformers.

A cache under a name that `forward` does not take would vanish in its `**kwargs` without a word.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

CACHE_NAMES = ("cache", "past_key_values", "cache_params")
"""From Transformers 5.20 on; before it; that of Mamba and its kin before it."""


def cache_name(model: Any) -> str:
    """The name under which a model's `forward` takes its cache.

    Raises:
        ValueError: when it takes none.
    """
    taken = inspect.signature(model.forward).parameters
    for name in CACHE_NAMES:
        if name in taken:
            return name
    raise ValueError(
        f"{type(model).__name__}.forward takes no cache under any known name ({', '.join(CACHE_NAMES)}), so it cannot "
        "write answers here; use model.generate"
    )


def given_cache(options: Mapping[str, Any]) -> Any:
    """The cache among the options of a call, under whatever name; None when there is none."""
    return next((options[name] for name in CACHE_NAMES if options.get(name) is not None), None)
