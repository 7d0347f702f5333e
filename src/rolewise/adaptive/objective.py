"""How surely a model begins its answer with a target, as a function of a suffix, and its gradient.

The loss is the mean cross-entropy of the target's tokens, teacher-forced, behind the whole conversation. Its gradient
is taken with respect to the one-hot rows of the suffix's tokens: these times the token embeddings are what the model
gets as `inputs_embeds`, and it adds the segment table's rows to them as it does to any embedding. What stands before
the suffix is computed once.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from rolewise.engine.decoding import PromptTooLongError
from rolewise.engine.kv import Prefix, cut_rows, empty_cache, join_rows, supports_sharing
from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.caches import cache_name


class TargetLoss:
    """The loss of suffixes of one length at one place.

    Shapes: B suffixes, N tokens in each, A allowed tokens, T tokens of the target, D hidden, V vocabulary.

    Args:
        model: the model, in evaluation mode.
        head: ids and segments of what stands before the suffix.
        row: the segment of the suffix.
        tail: ids and segments of what stands behind it, up to the answer.
        target: ids and segments of what the answer is to begin with.
        allowed: ids that a suffix may hold.
        batch_size: suffixes that are computed together.

    Raises:
        PromptTooLongError: by `losses` and `gradient`, when all of it does not fit into the model's positions.
    """

    def __init__(
        self,
        model: SegmentedCausalLM,
        *,
        head: tuple[Sequence[int], Sequence[int]],
        row: int,
        tail: tuple[Sequence[int], Sequence[int]],
        target: tuple[Sequence[int], Sequence[int]],
        allowed: Sequence[int],
        batch_size: int = 32,
    ) -> None:
        assert target[0], "a target has at least one token"
        self.model, self._row, self._batch_size = model, row, batch_size
        self._head, self._target = head, list(target[0])
        # The last token of the target is predicted, and read by nobody.
        self._rest_ids = self._tensor([*tail[0], *target[0][:-1]])
        self._rest_segments = [*tail[1], *target[1][:-1]]
        self._allowed = self._tensor(list(allowed))
        self._place = {token: place for place, token in enumerate(allowed)}
        self._takes = frozenset(inspect.signature(model.forward).parameters)
        self._shares = supports_sharing(model) and len(head[0]) > 0
        self._prefix: Prefix | None = None
        self.computed_tokens = 0
        """Positions computed so far, forward passes only."""

    @torch.no_grad()
    def losses(self, suffixes: Sequence[Sequence[int]]) -> list[float]:
        """The loss of each suffix, in nats per token of the target."""
        found: list[float] = []
        for at in range(0, len(suffixes), self._batch_size):
            some_BN = self._tensor(suffixes[at : at + self._batch_size])
            ids = torch.cat([some_BN, self._rest_ids.expand(len(some_BN), -1)], dim=1)
            found += self._loss(len(some_BN), some_BN.shape[1], ids=ids).tolist()
        return found

    def gradient(self, suffix: Sequence[int]) -> tuple[float, torch.Tensor]:
        """The loss of a suffix, and its gradient by the one-hot row of each of its tokens, [N, A].

        Column a is what the loss gains, to first order, for each bit of the allowed token a that a place takes on.
        """
        embedding: Any = self.model.get_input_embeddings()
        with torch.no_grad():
            # By calling the module: some scale what they look up.
            table_AD = embedding(self._allowed)
            rest_D = embedding(self._rest_ids)
            head_D = None if self._shares else embedding(self._tensor(list(self._head[0])))
        places = torch.tensor([self._place[token] for token in suffix], device=table_AD.device)
        one_hot_NA = torch.zeros(len(suffix), len(table_AD), dtype=table_AD.dtype, device=table_AD.device)
        one_hot_NA[torch.arange(len(suffix)), places] = 1.0
        with torch.enable_grad():
            one_hot_NA.requires_grad_()
            embeds = torch.cat([one_hot_NA @ table_AD, rest_D])
            if head_D is not None:
                embeds = torch.cat([head_D, embeds])
            loss = self._loss(1, len(suffix), embeds=embeds.unsqueeze(0))[0]
            (gradient,) = torch.autograd.grad(loss, one_hot_NA)
        return float(loss.detach()), gradient.detach()

    def _loss(
        self, rows: int, width: int, *, ids: torch.Tensor | None = None, embeds: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The loss of each row, [B]: of ids from the suffix on, or of embeddings (from the head on, if not shared)."""
        before = len(self._head[0])
        total = before + width + len(self._rest_segments)
        positions: int | None = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if positions and total > positions:
            raise PromptTooLongError(total, positions, "the conversation with the suffix and the target")
        segments = [*[self._row] * width, *self._rest_segments]
        options: dict[str, Any] = {}
        if self._shares:
            prefix = self._computed_prefix()
            options[cache_name(self.model)] = join_rows([prefix] * rows, [before] * rows)
            options["use_cache"] = True
            if "position_ids" in self._takes:
                options["position_ids"] = self._tensor([list(range(before, total))]).expand(rows, -1)
            options["attention_mask"] = torch.ones(rows, total, dtype=torch.long, device=self.model.device)
        else:
            segments = [*self._head[1], *segments]
            options["use_cache"] = False
            if ids is not None:
                ids = torch.cat([self._tensor(list(self._head[0])).expand(rows, -1), ids], dim=1)
        if "logits_to_keep" in self._takes:
            options["logits_to_keep"] = len(self._target)
        self.computed_tokens += rows * len(segments)
        given = {"input_ids": ids} if ids is not None else {"inputs_embeds": embeds}
        logits_BTV = self.model(
            **given, segment_ids=self._tensor([segments]).expand(rows, -1), **options
        ).logits[:, -len(self._target) :]  # fmt: skip
        if logits_BTV.dtype != torch.float64:
            logits_BTV = logits_BTV.float()
        target_BT1 = self._tensor([self._target]).expand(rows, -1).unsqueeze(-1)
        return -logits_BTV.log_softmax(-1).gather(-1, target_BT1).squeeze(-1).mean(-1)

    @torch.no_grad()
    def _computed_prefix(self) -> Prefix:
        """Keys and values of what stands before the suffix."""
        if self._prefix is None:
            cache: Any = empty_cache()
            options: dict[str, Any] = {cache_name(self.model): cache, "use_cache": True}
            if "logits_to_keep" in self._takes:
                options["logits_to_keep"] = 1
            self.model(input_ids=self._tensor([self._head[0]]), segment_ids=self._tensor([self._head[1]]), **options)
            self.computed_tokens += len(self._head[0])
            (self._prefix,) = cut_rows(cache, [len(self._head[0])])
        return self._prefix

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, device=self.model.device)
