"""The class factory: `Segmented<Base>` for vLLM's model classes.

The embedding unpacks: it looks tokens up as ever, scale of the family included, and adds the rows of their blocks.
That is where the Transformers model adds them (see `rolewise.modeling.segments`), and nothing else of a model changes.
In vLLM's own classes it is the backbone's `embed_input_ids`; where vLLM runs the model of Transformers, the input
embedding itself. Both are inside of what vLLM compiles and captures.
"""

# pyright: reportMissingImports=false
# vLLM lives in an environment of its own.

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from vllm.logger import init_logger
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.transformers.base import Base as TransformersBase

from rolewise.vllm import ARCHITECTURE_PREFIX, hooks
from rolewise.vllm.configuration import packed_ids
from rolewise.vllm.versions import misfit

logger = init_logger("vllm.rolewise")

TABLE_KEY = "segment_embedding.weight"
RUN = (
    "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM",
    "MistralForCausalLM", "GraniteForCausalLM", "SmolLM3ForCausalLM",
)  # fmt: skip
"""Bases whose answers were compared with Transformers' (tests/vllm). Others are the same by construction only."""


class Unpacking(nn.Module):
    """What embeds packed ids: a table beside the tokens'."""

    vocab_size_of_ids: int
    segment_rows: nn.Parameter
    """The table [segments, hidden] by block, times `segment_scale`, in the model's precision."""

    def rows_of(self, packed: torch.Tensor) -> torch.Tensor:
        """The rows of packed ids' roles, [..., hidden]."""
        return functional.embedding(packed // self.vocab_size_of_ids, self.segment_rows)


class UnpackingBackbone(Unpacking):
    """Put before the class of a backbone of vLLM."""

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Tokens' embeddings plus their roles' rows, for packed ids [tokens]."""
        words: torch.Tensor = super().embed_input_ids(input_ids % self.vocab_size_of_ids)  # pyright: ignore
        return words + self.rows_of(input_ids)


class UnpackingEmbedding(Unpacking):
    """Put before the class of the input embedding of a model of Transformers."""

    def forward(self, input_: torch.Tensor) -> torch.Tensor:
        """Tokens' embeddings plus their roles' rows, for packed ids [batch, tokens]."""
        words: torch.Tensor = super().forward(input_ % self.vocab_size_of_ids)
        return words + self.rows_of(input_)


class SegmentedModel(nn.Module):
    """Put before a `...ForCausalLM` class of vLLM."""

    def __init__(self, *, vllm_config: Any, prefix: str = "", **kwargs: Any) -> None:
        if vllm_config.use_v2_model_runner:
            raise misfit("the V1 model runner; set VLLM_USE_V2_MODEL_RUNNER=0")
        hooks.install_in_worker()
        super().__init__(vllm_config=vllm_config, prefix=prefix, **kwargs)
        base = type(self).__name__.removeprefix(ARCHITECTURE_PREFIX)
        if base not in RUN:
            logger.warning("Rolewise's plugin was never run on %s: compare answers before you trust it", base)
        config = vllm_config.model_config.hf_config
        self._packed, self._scale = packed_ids(config), float(config.segment_scale)
        self._place, part, unpacking = find_embedding(self)
        rows = torch.empty(self._packed.scheme.num_segments, config.hidden_size)
        part.__class__ = _unpacking_class(unpacking, type(part))
        part.vocab_size_of_ids = self._packed.vocab_size
        part.segment_rows = nn.Parameter(rows, requires_grad=False)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load a checkpoint of `save_pretrained`, table included.

        Raises:
            ValueError: when it has no segment table, or one of another shape.
        """
        seen: list[str] = []

        def without_table() -> Iterable[tuple[str, torch.Tensor]]:
            for name, tensor in weights:
                if name == TABLE_KEY:
                    self._load_table(tensor)
                    seen.append(name)
                else:
                    yield name, tensor

        loaded: set[str] = super().load_weights(without_table())  # pyright: ignore
        if not seen:
            raise ValueError(
                f"the checkpoint has no segment table ({TABLE_KEY}), so its roles would be random; save it again with "
                "model.save_pretrained of a Rolewise model"
            )
        return loaded | {f"{self._place}.segment_rows"}

    @torch.no_grad()
    def _load_table(self, table: torch.Tensor) -> None:
        rows = self.get_parameter(f"{self._place}.segment_rows")
        if table.shape != rows.shape:
            raise ValueError(
                f"the segment table has shape {list(table.shape)}, but config.json says {list(rows.shape)}; load it "
                "with the configuration that it was saved with"
            )
        by_block = table.float()[list(self._packed.rows)] * self._scale
        rows.copy_(by_block.to(rows.dtype))


def find_embedding(model: Any) -> tuple[str, Any, type[Unpacking]]:
    """The part of a model that embeds its tokens: its name within the model, itself, and how it is to unpack.

    Raises:
        RuntimeError: when there is none, for then roles would be lost.
    """
    if isinstance(model, TransformersBase):
        embedding = model.model.get_input_embeddings()
        for name, part in model.named_modules():
            if part is embedding:
                return name, part, UnpackingEmbedding
    for name in ("model", "transformer"):
        backbone = getattr(model, name, None)
        if hasattr(type(backbone), "embed_input_ids") and _calls(type(backbone), "embed_input_ids"):
            return name, backbone, UnpackingBackbone
    raise misfit(f"a backbone of {type(model).__name__} whose forward calls embed_input_ids")


def _calls(cls: type, method: str) -> bool:
    """Whether the forward of a class names a method; one that only adds to its base's is looked at with it."""
    for base in cls.__mro__:
        if (forward := vars(base).get("forward")) is not None:
            names = inspect.unwrap(forward).__code__.co_names
            if method in names or "super" not in names:
                return method in names
    return False


@functools.cache
def _unpacking_class(unpacking: type[Unpacking], base: type) -> type:
    return type(ARCHITECTURE_PREFIX + base.__name__, (unpacking, base), {})


@functools.cache
def segmented_class(architecture: str) -> type:
    """The class of a segmented architecture, by its name. Bases that vLLM has no class for run as in Transformers.

    Raises:
        AttributeError: when the name is no segmented architecture's.
    """
    base_name = architecture.removeprefix(ARCHITECTURE_PREFIX)
    known: Any = ModelRegistry.models.get(base_name) or ModelRegistry.models.get("TransformersForCausalLM")
    if base_name == architecture or known is None:
        raise AttributeError(f"vLLM has no model class for {architecture!r}")
    return type(architecture, (SegmentedModel, known.load_model_cls()), {"__module__": __name__})


def __getattr__(name: str) -> Any:
    """Make a class when vLLM asks for it by name."""
    if not name.startswith(ARCHITECTURE_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return segmented_class(name)
