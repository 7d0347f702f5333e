"""Give a trained model away: our own format in one directory, or folded for stock engines, each with a model card."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolewise.export.client import FoldedClient as FoldedClient
    from rolewise.export.probes import Difference as Difference
    from rolewise.export.prompts import PromptEmbeddings as PromptEmbeddings
    from rolewise.export.run import ExportResult as ExportResult
    from rolewise.export.run import export_model as export_model
    from rolewise.export.scores import read_scores as read_scores

# A client needs neither the training code nor the evaluation.
_HOMES = {
    "Difference": "rolewise.export.probes",
    "ExportResult": "rolewise.export.run",
    "FoldedClient": "rolewise.export.client",
    "PromptEmbeddings": "rolewise.export.prompts",
    "export_model": "rolewise.export.run",
    "read_scores": "rolewise.export.scores",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rolewise.export' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)
