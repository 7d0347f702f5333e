"""Rolewise: language models that know who is speaking."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolewise.collation import RoleCollator as RoleCollator
    from rolewise.collation import pack as pack
    from rolewise.modeling import apply_template as apply_template
    from rolewise.modeling import attach as attach
    from rolewise.modeling import labelled_loss as labelled_loss
    from rolewise.modeling import load as load
    from rolewise.modeling import load_model as load_model
    from rolewise.modeling import register as register
    from rolewise.rendering import Encoding as Encoding
    from rolewise.rendering import data_layout as data_layout
    from rolewise.rendering import encode as encode
    from rolewise.rendering import prepare_tokenizer as prepare_tokenizer
    from rolewise.rendering import render as render
    from rolewise.roles import Role as Role
    from rolewise.roles import RoleScheme as RoleScheme
    from rolewise.training import TrainConfig as TrainConfig
    from rolewise.training import train as train

__version__ = "0.1.0"

# Public names by home. Importing rolewise must stay under half a second, and torch alone takes longer.
_HOMES = {
    "Encoding": "rolewise.rendering",
    "Role": "rolewise.roles",
    "RoleCollator": "rolewise.collation",
    "RoleScheme": "rolewise.roles",
    "TrainConfig": "rolewise.training",
    "apply_template": "rolewise.modeling",
    "attach": "rolewise.modeling",
    "data_layout": "rolewise.rendering",
    "encode": "rolewise.rendering",
    "labelled_loss": "rolewise.modeling",
    "load": "rolewise.modeling",
    "load_model": "rolewise.modeling",
    "pack": "rolewise.collation",
    "prepare_tokenizer": "rolewise.rendering",
    "register": "rolewise.modeling",
    "render": "rolewise.rendering",
    "train": "rolewise.training",
}

__all__ = sorted([*_HOMES, "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rolewise' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
