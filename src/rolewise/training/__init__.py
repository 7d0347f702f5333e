"""Supervised fine-tuning: recipes, data, the trainer, and adapters for TRL."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolewise.training.config import LoraConfig as LoraConfig
    from rolewise.training.config import TrainConfig as TrainConfig
    from rolewise.training.config import config_from_dict as config_from_dict
    from rolewise.training.config import config_to_dict as config_to_dict
    from rolewise.training.config import load_recipe as load_recipe
    from rolewise.training.dataset import RoleDataset as RoleDataset
    from rolewise.training.lora import adapt as adapt
    from rolewise.training.prepare import Prepared as Prepared
    from rolewise.training.prepare import prepare_data as prepare_data
    from rolewise.training.rows import parse_row as parse_row
    from rolewise.training.rows import read_rows as read_rows
    from rolewise.training.run import TrainResult as TrainResult
    from rolewise.training.run import train as train
    from rolewise.training.trainer import RoleTrainer as RoleTrainer
    from rolewise.training.trl import to_trl_rows as to_trl_rows
    from rolewise.training.trl import trl_collator as trl_collator
    from rolewise.training.trl import trl_optimizer as trl_optimizer
    from rolewise.training.trl import trl_options as trl_options

# Public names by home: the command line needs the configuration without torch.
_HOMES = {
    "LoraConfig": "config",
    "Prepared": "prepare",
    "RoleDataset": "dataset",
    "RoleTrainer": "trainer",
    "TrainConfig": "config",
    "TrainResult": "run",
    "adapt": "lora",
    "config_from_dict": "config",
    "config_to_dict": "config",
    "load_recipe": "config",
    "parse_row": "rows",
    "prepare_data": "prepare",
    "read_rows": "rows",
    "to_trl_rows": "trl",
    "train": "run",
    "trl_collator": "trl",
    "trl_optimizer": "trl",
    "trl_options": "trl",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
