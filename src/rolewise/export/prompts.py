"""Prompts as embeddings, for a stock engine that serves a folded model: the client's half of the fold.

The engine's own embeddings hold OUTPUT's row already, so what it generates is OUTPUT without its knowing. A prompt's
token gets its role's row in place of OUTPUT's: embedding + (row - row of OUTPUT).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoTokenizer

from rolewise.modeling.segments import check_segment_ids
from rolewise.rendering import Encoding, render
from rolewise.roles import RoleScheme

CLIENT = "client"
"""The folder of a folded model that only its clients read. An engine loads all weights that lie beside its own."""
FOLDED_FILE = "folded.json"
ROWS_FILE = "segments.safetensors"
ROWS = "rows_minus_output"
FORMAT = 1
CHECKED_TOKENS = 5
"""How many of the likeliest tokens are kept for each place of the known answer."""


def is_folded(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a folded model."""
    return (Path(directory) / CLIENT / FOLDED_FILE).is_file()


class PromptEmbeddings:
    """Makes the embeddings of prompts for a folded model.

    It reads the folder `client` and, of the weights, the token embeddings alone, which stay in the file.

    Args:
        directory: a folded model, from `rolewise export --to folded`.

    Raises:
        FileNotFoundError: when it is none, or a file is missing.
        ValueError: when a file of it is damaged, or of a newer version.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).expanduser()
        stored = _stored(self.directory)
        self.scheme = RoleScheme.from_dict(stored["scheme"])
        """Which row each role takes."""
        self.embedding_scale = float(stored["embedding_scale"])
        """What the engine multiplies the weights by when it embeds a token (Gemma); 1 in most models."""
        self.check: Mapping[str, Any] = stored["check"]
        """A prompt (`input_ids`, `segment_ids`), what the model answers (`answer`), the log-probabilities of the
        `likeliest` tokens at each place of it, and the `spread` of logits (their standard deviation)."""
        self._weight = _tensor(self.directory, stored["embedding"])
        with safe_open(self.directory / CLIENT / ROWS_FILE, framework="pt") as file:
            self._rows: torch.Tensor = file.get_tensor(ROWS)
        if self._rows.shape != (self.scheme.num_segments, self._weight.shape[1]):
            raise ValueError(
                f"{self.directory / CLIENT / ROWS_FILE} holds rows of shape {list(self._rows.shape)}, which do not fit "
                f"the {self.scheme.num_segments} segments and the embeddings {list(self._weight.shape)} of the model; "
                "export it again"
            )
        self.tokenizer: Any = AutoTokenizer.from_pretrained(self.directory / CLIENT)
        """With the chat template, which the engine's own copy lacks."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the model's weights."""
        return self._weight.dtype

    @property
    def vocab_size(self) -> int:
        """Rows of the token embeddings."""
        return self._weight.shape[0]

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Encoding:
        """`rolewise.render` with the header of the answer, and with the roles of this model."""
        return render(self.tokenizer, messages, add_generation_prompt=True, scheme=self.scheme, **options)

    def embed(
        self, input_ids: Sequence[int], segment_ids: Sequence[int], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """What goes into the model's first block, [seq, hidden].

        Args:
            input_ids: the prompt's tokens, [seq].
            segment_ids: the row of the segment table that each takes, [seq].
            dtype: in which the engine computes; the weights' own by default.

        Raises:
            ValueError: when there are no tokens, or an id is out of range, or the two differ in length.
        """
        dtype = self.dtype if dtype is None else dtype
        ids, segments = torch.tensor(list(input_ids)), torch.tensor(list(segment_ids))
        if not len(ids):
            raise ValueError("the prompt is empty")
        check_segment_ids(segments, tuple(ids.shape), self.scheme.num_segments, check_range=True)
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.vocab_size:
            raise ValueError(f"input_ids hold {low if low < 0 else high}, outside of 0..{self.vocab_size - 1}")
        # As the engine embeds a token: scaled in the precision that it computes in.
        scale = torch.tensor(self.embedding_scale).to(dtype).float()
        return (self._weight[ids].float() * scale + self._rows[segments]).to(dtype)


def _stored(directory: Path) -> dict[str, Any]:
    path = directory / CLIENT / FOLDED_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{str(directory)!r} is no folded model (it has no {CLIENT}/{FOLDED_FILE}); make one with "
            "rolewise export MODEL --to folded -o DIR"
        )
    try:
        stored: Any = json.loads(path.read_text(encoding="utf-8"))
        missing = {"format", "scheme", "embedding", "embedding_scale", "check"} - stored.keys()
        problem = f"it lacks {', '.join(sorted(missing))}" if missing else ""
    except (ValueError, AttributeError, RecursionError) as error:
        stored, problem = {}, str(error)
    if problem:
        raise ValueError(f"{path} is damaged ({problem}); export the model again")
    if stored["format"] != FORMAT:
        raise ValueError(f"{path} is of format {stored['format']!r}, and this version reads {FORMAT}; update rolewise")
    return stored


def _tensor(directory: Path, name: str) -> torch.Tensor:
    """One weight of a saved model, from the file that holds it."""
    index = directory / "model.safetensors.index.json"
    file = "model.safetensors"
    if index.is_file():
        file = json.loads(index.read_text(encoding="utf-8"))["weight_map"].get(name, file)
    path = directory / file
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: it holds {name}, which a client needs; copy it there, too")
    with safe_open(path, framework="pt") as weights:
        if name not in weights.keys():  # noqa: SIM118 (no mapping)
            raise ValueError(f"{path} holds no {name}; export the model again")
        return weights.get_tensor(name)
