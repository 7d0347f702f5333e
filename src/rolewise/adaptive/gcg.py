"""GCG: greedy coordinate gradient, a white-box search for a suffix of tokens (Zou et al., 2023, arXiv 2307.15043).

A step takes the gradient of the loss (`objective`) by the one-hot rows of the suffix, draws candidates that each put a
token from among the best of a place's gradient into that place, computes their losses, and goes on with the best of
them. Every few steps the best suffix so far is put into the conversation as text, encoded like everything else, and
the model answers it: that is when an attack has succeeded or not.

As the paper has it, the best candidate is taken even when it is worse than what it comes from. Unlike the paper, the
suffix stands within a whole conversation with roles, may hold no delimiters, and must survive being text (`suffix`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import torch

from rolewise.adaptive.objective import TargetLoss
from rolewise.adaptive.placing import Carrier, check_carrier
from rolewise.adaptive.suffix import Suffix
from rolewise.adaptive.trajectory import Answered, Attacked, Attempt, Nearest, Trajectory, criterion_named
from rolewise.adaptive.vocabulary import allowed_tokens
from rolewise.engine.batches import Engine
from rolewise.engine.decoding import PromptTooLongError, Request
from rolewise.evaluation.judging import settled
from rolewise.evaluation.store import AnswerStore, content_key
from rolewise.modeling import SegmentedCausalLM
from rolewise.rendering.encoding import workshop
from rolewise.roles import Role

_DRAWS = 4
"""How many candidates are drawn, at most, for each that is wanted: many do not survive being text."""


@dataclass(frozen=True, kw_only=True)
class GCGConfig:
    """How the search goes.

    Raises:
        ValueError: when a number is out of range or the criterion unknown.
    """

    steps: int = 50
    """The budget. The paper's successors have 500."""
    candidates: int = 32
    """Suffixes whose loss is computed in a step; 512 in the papers."""
    top_k: int = 64
    """How many tokens of a place's gradient candidates draw from; 256 in the papers."""
    suffix_tokens: int = 20
    """The length of the suffix."""
    check_every: int = 5
    """Every so many steps the model answers the best suffix so far."""
    criterion: str = "in_response"
    """When its answer counts as a success: in_response or begins_with."""
    max_new_tokens: int = 32
    """The most tokens of that answer."""
    ascii_only: bool = True
    """Whether the suffix is ASCII."""
    seed: int = 0
    """Of what is drawn."""

    def __post_init__(self) -> None:
        criterion_named(self.criterion)
        for name in ("steps", "candidates", "top_k", "suffix_tokens", "check_every", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where the search stands."""

    number: int
    """0 is the start."""
    loss: float
    """Of the suffix that the search goes on from."""
    best: float
    """The least so far."""
    success: bool | None = None
    """Whether the best suffix so far was answered as it should; None when it was not tried at this step."""


def gcg(
    model: SegmentedCausalLM,
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    witness: str,
    target: str | None = None,
    role: Carrier = "data",
    config: GCGConfig | None = None,
    batch_size: int = 32,
    segments: Callable[[Sequence[int]], Sequence[int]] = list,
    store: AnswerStore | None = None,
    identity: object = None,
    told: Callable[[Step], None] | None = None,
) -> Attacked:
    """Search for a suffix to the last text of a role such that the model begins its answer with a target.

    Args:
        model: the model, in evaluation mode. Its scale counts: at 0 the roles are not seen by the search either.
        tokenizer: its tokenizer.
        messages: the conversation up to the answer; it may hold an attack already.
        witness: what a successful answer contains, or begins with.
        target: what the answer is to begin with; by default the witness.
        role: whose last text the suffix is put at the end of.
        config: the search.
        batch_size: suffixes that are computed together.
        segments: what the model is told in place of the segments (a probe of `rolewise.evaluation.probes`).
        store: keeps every finished step, so that a killed search repeats none, and a larger budget goes on from it.
        identity: what tells this model's weights from others' in the store.
        told: is told of each step; what it raises ends the search.

    Raises:
        ValueError: when nobody with that role has text, the target or witness is empty, the model does not read
            `inputs_embeds` as it reads ids, or no suffix survives being text.
        PromptTooLongError: when the conversation does not fit into the model's positions; a ValueError, too.
    """
    search = _Search(
        model, tokenizer, messages, witness, witness if target is None else target, check_carrier(role),
        config or GCGConfig(), batch_size, segments, store, identity,
    )  # fmt: skip
    return search.run(told)


class _Search:
    def __init__(
        self,
        model: SegmentedCausalLM,
        tokenizer: Any,
        messages: Sequence[Mapping[str, Any]],
        witness: str,
        target: str,
        role: Carrier,
        config: GCGConfig,
        batch_size: int,
        segments: Callable[[Sequence[int]], Sequence[int]],
        store: AnswerStore | None,
        identity: object,
    ) -> None:
        if not witness.strip() or not target.strip():
            raise ValueError(f"GCG needs a witness and a target, got {witness!r} and {target!r}")
        self.config, self.role, self._witness, self._segments = config, role, witness, segments
        scheme = model.role_scheme
        self.suffix = Suffix(tokenizer, messages, role, scheme)
        embedding: Any = model.get_input_embeddings()
        self._allowed = allowed_tokens(tokenizer, embedding.weight.shape[0], ascii_only=config.ascii_only)
        target_ids = workshop(tokenizer).encoder.content(target, "the target")
        output = [scheme.row(Role.OUTPUT)] * len(target_ids)
        head, tail = self.suffix.head, self.suffix.tail
        self.loss = TargetLoss(
            model,
            head=(head.input_ids, segments(head.segment_ids)),
            row=segments([self.suffix.row])[0],
            tail=(tail.input_ids, segments(tail.segment_ids)),
            target=(target_ids, output),  # as the model writes them, whatever a probe tells it of the prompt
            allowed=self._allowed,
            batch_size=batch_size,
        )
        self._engine = Engine(model, tokenizer, batch_size=1)
        self._store = store
        searched = {name: value for name, value in asdict(config).items() if name not in ("steps", "check_every")}
        self._key = content_key(
            "gcg", identity, model.segment_scale, [dict(message) for message in messages], role, witness, target,
            searched, self.loss_stamp(),
        )  # fmt: skip

    def loss_stamp(self) -> list[int]:
        """What a probe makes of the segments."""
        return [*self._segments(self.suffix.head.segment_ids), *self._segments([self.suffix.row])]

    def run(self, told: Callable[[Step], None] | None) -> Attacked:
        """Search until an answer is as it should be, or the budget is spent."""
        config, nearest = self.config, Nearest(self._witness)
        attempts, losses = list[Attempt](), list[float]()
        current, best, least = list[int](), list[int](), float("inf")
        tried: tuple[list[int], Answered] | None = None
        for number in range(config.steps + 1):
            current, loss = self._kept(f"step {number}", lambda at=number, of=current: self._step(at, of))
            losses.append(loss)
            if loss < least or not best:
                best, least = current, loss
            success = None
            if number % config.check_every == 0 or number == config.steps:
                (text,) = self.suffix.texts([best])
                assert text is not None, "no suffix is taken that does not survive"
                if tried is None or tried[0] != best:
                    tried = best, self._answered(text)
                success = criterion_named(config.criterion)(tried[1].text, self._witness)
                attempts.append(Attempt(cost=number, success=success, label="suffix", loss=least, text=text))
                nearest.offer(self.suffix.messages(text), tried[1], text, success)
            if told is not None:
                told(Step(number=number, loss=loss, best=least, success=success))
            if success:
                break
        settings = {name: value for name, value in asdict(config).items() if name not in ("steps", "criterion")}
        return nearest.attacked(
            Trajectory(
                method="gcg", unit="steps", budget=config.steps, criterion=config.criterion, attempts=tuple(attempts),
                losses=tuple(losses), settings={**settings, "role": self.role},
            )
        )  # fmt: skip

    def _kept(self, what: str, compute: Callable[[], Any]) -> Any:
        """What the store has, or what is computed now, and kept."""
        if self._store is None:
            return compute()
        key = content_key(self._key, what)
        if (known := self._store.get(key)) is None:
            known = compute()
            self._store.put(key, known)
        return known

    def _step(self, number: int, current: list[int]) -> tuple[list[int], float]:
        """The suffix after a step, and its loss."""
        rng = Random(f"rolewise-gcg:{self.config.seed}:{number}")
        if not number:
            start = self.suffix.start(self.config.suffix_tokens, self._allowed, rng)
            (loss,) = self.loss.losses([start])
            self._check_embeddings(start, loss)
            return start, loss
        loss, gradient = self.loss.gradient(current)
        candidates = self._candidates(current, gradient, rng)
        if not candidates:  # the next step draws others
            return current, loss
        found = self.loss.losses(candidates)
        at = min(range(len(found)), key=found.__getitem__)
        return candidates[at], found[at]

    def _candidates(self, current: list[int], gradient: torch.Tensor, rng: Random) -> list[list[int]]:
        """Suffixes that differ from the current one in one token, drawn, each different, that survive being text."""
        top = (-gradient).topk(min(self.config.top_k, gradient.shape[1]), dim=1).indices.tolist()
        found: list[list[int]] = []
        seen = {tuple(current)}
        for _ in range(_DRAWS):
            drawn: list[list[int]] = []
            for _ in range(self.config.candidates):
                place = rng.randrange(len(current))
                changed = [*current]
                changed[place] = self._allowed[rng.choice(top[place])]
                if tuple(changed) not in seen:
                    seen.add(tuple(changed))
                    drawn.append(changed)
            texts = self.suffix.texts(drawn) if drawn else []
            found += [row for row, text in zip(drawn, texts, strict=True) if text is not None]
            if len(found) >= self.config.candidates:
                break
        return found[: self.config.candidates]

    def _answered(self, text: str) -> Answered:
        """The model's greedy answer to the conversation with this suffix, encoded from its text."""
        return Answered(text=self._kept(f"answer {text}", lambda: self._answer(text)))

    def _answer(self, text: str) -> str:
        encoding = self.suffix.encoding(text)
        request = Request(
            input_ids=encoding.input_ids, segment_ids=self._segments(encoding.segment_ids),
            max_new_tokens=self.config.max_new_tokens, settled=self._settled,
        )  # fmt: skip
        ((_, answer),) = self._engine.answers([request])
        return answer.text

    def _settled(self, so_far: str) -> bool:
        return settled(so_far, self._witness)

    def _check_embeddings(self, start: list[int], by_ids: float) -> None:
        by_embeddings, _ = self.loss.gradient(start)
        model: Any = self.loss.model
        tolerance = 3e-2 if model.dtype in (torch.bfloat16, torch.float16) else 1e-3
        if abs(by_embeddings - by_ids) > tolerance * max(1.0, abs(by_ids)):
            raise ValueError(
                f"{type(model).__name__} reads inputs_embeds otherwise than the ids they stand for (loss "
                f"{by_embeddings:.4g} in place of {by_ids:.4g}), so GCG has no gradient that could guide it; use "
                "best_of_n or pair for this model"
            )


__all__ = ["GCGConfig", "PromptTooLongError", "Step", "gcg"]
