"""The model as both engines call it: rows with their roles, on top of a cache."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from rolewise.engine.decoding import PromptTooLongError, Request, require_finite
from rolewise.engine.kv import empty_cache, supports_sharing
from rolewise.generation import stop_token_ids
from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.caches import cache_name
from rolewise.roles import Role


class Reader:
    """Computes rows of tokens with a segmented model.

    Args:
        model: the model, in evaluation mode.
        tokenizer: its tokenizer.
    """

    def __init__(self, model: SegmentedCausalLM, tokenizer: Any) -> None:
        self.model = model
        self.keys_only = supports_sharing(model)
        """Whether keys and values are all that the model keeps of its past; else it runs a row at a time."""
        self.stops = stop_token_ids(model, tokenizer)
        """The tokens that end an answer."""
        self.output = model.role_scheme.row(Role.OUTPUT)
        self.pass_cost = 48 if model.device.type == "cpu" else 2048
        """A pass reads all weights: on a CPU that is worth some dozens of positions, on an accelerator far more."""
        self.computed_tokens = 0
        """Positions computed so far, padding included."""
        self._cache_name = cache_name(model)
        self._takes = frozenset(inspect.signature(model.forward).parameters)
        self._counting = threading.Lock()

    @property
    def positions(self) -> int | None:
        """How many tokens the model can read and write in all; None when there is no limit."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or None

    def room_for(self, request: Request) -> int | None:
        """How many tokens the model's positions leave for an answer; None when there is no limit.

        Raises:
            PromptTooLongError: when the prompt fills them all.
        """
        if (positions := self.positions) is None:
            return None
        if (room := positions - len(request.input_ids)) < 1:
            raise PromptTooLongError(len(request.input_ids), positions)
        return room

    @torch.inference_mode()
    def try_out(self) -> None:
        """Read a token in each role, to see that weights and table make numbers.

        Raises:
            NotFiniteError: when they do not.
        """
        segments = torch.arange(self.model.num_segments, device=self.model.device)[:, None]
        embedding: Any = self.model.get_input_embeddings()
        rows = embedding.weight.shape[0]
        ids = torch.full_like(segments, next((token for token in self.stops if token < rows), 0))
        logits = self.model(input_ids=ids, segment_ids=segments, use_cache=False).logits
        for value in logits[:, -1].amax(-1).tolist():
            require_finite(value)

    def new_cache(self) -> Any:
        """An empty cache, of a kind of its own for a model that keeps more than keys and values."""
        return empty_cache() if self.keys_only else DynamicCache(config=self.model.config)

    def read(
        self, requests: Sequence[Request], lengths: Sequence[int], settled: Sequence[int], cache: Any
    ) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Compute the tokens of each prompt from `settled` to `lengths`, padded on the left.

        Returns:
            the logits after each row's last token [rows, vocabulary], the cache, and the mask [rows, all positions].
        """
        before = max(settled)
        width = max(length - start for length, start in zip(lengths, settled, strict=True))
        shape = (len(requests), width)
        ids, segments, positions = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
        mask = torch.zeros((len(requests), before + width), dtype=torch.long)
        for row, (request, length, start) in enumerate(zip(requests, lengths, settled, strict=True)):
            at = width - (length - start)
            assert not (at and start), "padding between a prefix and its rest would shift windows of attention"
            # Masked, but a padding token that the embeddings lack, or that is not a number there, would harm the row.
            ids[row, :at], segments[row, :at] = request.input_ids[0], request.segment_ids[0]
            ids[row, at:] = torch.tensor(request.input_ids[start:length])
            segments[row, at:] = torch.tensor(request.segment_ids[start:length])
            positions[row, at:] = torch.arange(start, length)
            mask[row, before - start : before] = 1
            mask[row, before + at :] = 1
        ids, segments, positions, mask = (one.to(self.model.device) for one in (ids, segments, positions, mask))
        logits, cache = self._call(ids, segments, mask, positions, cache)
        return logits, cache, mask

    def step(
        self, tokens: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any
    ) -> tuple[torch.Tensor, Any]:
        """Compute one written token of each row.

        Args:
            tokens: [rows].
            mask: [rows, all positions], these tokens' included.
            positions: [rows].
            cache: of the positions before.

        Returns:
            the logits after these tokens [rows, vocabulary], and the cache, which has grown in place.
        """
        ids = tokens[:, None]
        return self._call(ids, torch.full_like(ids, self.output), mask, positions[:, None], cache)

    @torch.inference_mode()
    def _call(
        self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any
    ) -> tuple[torch.Tensor, Any]:
        options: dict[str, Any] = {"use_cache": True, self._cache_name: cache, "attention_mask": mask}
        if not self.keys_only:
            # A row alone has no padding, and a mask as long as the past is none that a state-space layer expects.
            del options["attention_mask"]
        if "position_ids" in self._takes:
            options["position_ids"] = positions
        if "logits_to_keep" in self._takes:
            options["logits_to_keep"] = 1  # a head over the whole prompt would cost more than the rest of a small model
        with self._counting:
            self.computed_tokens += ids.numel()
        output = self.model(input_ids=ids, segment_ids=segments, **options)
        return output.logits[:, -1], cache
