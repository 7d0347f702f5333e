"""The fold: a checkpoint of the base architecture whose token embeddings hold OUTPUT's row already."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from rolewise.export.probes import Probe, Reading, greedy
from rolewise.export.prompts import (
    CHECKED_TOKENS,
    CLIENT,
    FOLDED_FILE,
    FORMAT,
    ROWS,
    ROWS_FILE,
    PromptEmbeddings,
)
from rolewise.modeling import SegmentedCausalLM
from rolewise.modeling.attach import FOLDED
from rolewise.modeling.mixin import TABLE_KEY

Head = Literal["untied", "tied"]


@dataclass(frozen=True, kw_only=True)
class Fold:
    """What the table becomes."""

    embeddings: torch.Tensor
    """Token embeddings with OUTPUT's row, in fp32, [vocab, hidden]."""
    rows: torch.Tensor
    """Each row minus OUTPUT's, times the scale, in fp32, [segments, hidden]."""
    scale: float
    """What the embedding module multiplies its weights by."""


@torch.no_grad()
def fold(model: SegmentedCausalLM) -> Fold:
    """Fold OUTPUT's row into the token embeddings.

    Args:
        model: in fp32.

    Raises:
        ValueError: when its embedding module does something else than look rows up and scale them.
    """
    embedding: Any = model.get_input_embeddings()
    weight: torch.Tensor = embedding.weight
    scale = embedding_scale(embedding)
    table = model.segment_embedding.weight.float() * model.segment_scale
    output = table[model.role_output]
    return Fold(embeddings=weight.float() + output / scale, rows=table - output, scale=scale)


@torch.no_grad()
def embedding_scale(embedding: Any) -> float:
    """What an embedding module multiplies its weights by, found by asking it.

    Gemma's multiplies by the root of the hidden size; Granite's does not, as that model scales later, roles and all.

    Raises:
        ValueError: when the module's output is no multiple of its weights.
    """
    weight: torch.Tensor = embedding.weight
    ids = torch.linspace(0, weight.shape[0] - 1, min(weight.shape[0], 256)).long()
    looked_up, given = weight[ids].float(), type(embedding).forward(embedding, ids).float()  # past our own hook
    largest = looked_up.abs().argmax()
    if given.shape == looked_up.shape:
        scale = float(given.flatten()[largest] / looked_up.flatten()[largest])
        scale = 1.0 if torch.equal(given, looked_up) else scale
        if scale > 0 and torch.allclose(given, looked_up * scale, rtol=1e-5, atol=1e-7):
            return scale
    raise ValueError(
        f"{type(embedding).__name__} does something else than look rows up and scale them, so no row can be folded "
        "into its weights; serve this model with rolewise serve instead"
    )


@torch.no_grad()
def write_folded(
    model: SegmentedCausalLM, tokenizer: Any, folded: Fold, directory: Path, *, head: Head, max_shard_size: str
) -> int:
    """Write the checkpoint of the base architecture, all but the client's check, and say how much it grew.

    Args:
        model: the model, its weights of the dtype that is to be written.
        tokenizer: its tokenizer.
        folded: from `fold`.
        directory: where to.
        head: whether a head that shares its weights with the embeddings gets its own, or goes on sharing.
        max_shard_size: of a file, as transformers takes it.

    Returns:
        The number of parameters that were added.
    """
    base: Any = type(model).__bases__[-1]
    embedding: Any = model.get_input_embeddings()
    output_head: Any = model.get_output_embeddings()
    embedding_key, head_key = f"{_path_of(model, embedding)}.weight", f"{_path_of(model, output_head)}.weight"
    was_tied = output_head.weight is embedding.weight
    unties = was_tied and head == "untied" and bool(model.segment_embedding.weight.any()) and model.segment_scale != 0
    weights = {name: tensor for name, tensor in model.state_dict().items() if name != TABLE_KEY}
    weights[embedding_key] = folded.embeddings.to(embedding.weight.dtype)
    if was_tied and not unties:
        weights[head_key] = weights[embedding_key]
    with torch.device("meta"):
        plain = base(_plain_config(model, base, tied=was_tied and not unties))
    plain.load_state_dict(weights, assign=True)
    if was_tied and not unties:
        plain.tie_weights()
    plain.generation_config = copy.deepcopy(model.generation_config)
    plain.save_pretrained(directory, max_shard_size=max_shard_size)
    (directory / CLIENT).mkdir()
    tokenizer.save_pretrained(directory / CLIENT)
    # Without a template the engine's own chat endpoint refuses, which would put all messages into OUTPUT.
    bare = copy.deepcopy(tokenizer)
    bare.chat_template = None
    bare.save_pretrained(directory)
    save_file({ROWS: folded.rows.contiguous()}, directory / CLIENT / ROWS_FILE)
    _write_folded_file(directory, _description(model, folded, embedding_key))
    return output_head.weight.numel() if unties else 0


def _description(model: SegmentedCausalLM, folded: Fold, embedding_key: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "scheme": model.role_scheme.to_dict(),
        "vocab_size": folded.embeddings.shape[0],
        "hidden_size": folded.embeddings.shape[1],
        "embedding": embedding_key,
        "embedding_scale": folded.scale,
        "check": {},
    }


def add_check(directory: Path, probe: Probe, reading: Reading) -> None:
    """Store the first probe and what the folded model made of it, by which a client knows the right server."""
    stored = json.loads((directory / CLIENT / FOLDED_FILE).read_text(encoding="utf-8"))
    answer = reading.said[0]
    logits = reading.logits[0][-len(answer) - 1 : -1]  # the last position is after the answer
    best = logits.log_softmax(-1).topk(min(CHECKED_TOKENS, logits.shape[-1]))
    places = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    stored["check"] = {
        "input_ids": probe.input_ids,
        "segment_ids": probe.segment_ids,
        "answer": answer,
        "likeliest": [dict(zip(tokens, values, strict=True)) for tokens, values in places],
        "spread": float(logits.std()),
    }
    _write_folded_file(directory, stored)


def _write_folded_file(directory: Path, value: dict[str, Any]) -> None:
    (directory / CLIENT / FOLDED_FILE).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _plain_config(model: Any, base: Any, *, tied: bool) -> Any:
    values = {name: value for name, value in model.config.to_dict().items() if not name.startswith("segment_")}
    values.pop("model_type")
    return base.config_class.from_dict({**values, "tie_word_embeddings": tied, FOLDED: FORMAT})


def _path_of(model: Any, module: Any) -> str:
    return next(name for name, one in model.named_modules(remove_duplicate=False) if one is module)


class FoldedAsked:
    """A folded model in a stock class of transformers, asked as a client asks a server: with embeddings.

    Args:
        directory: the folded model.

    Raises:
        ValueError: when the stock class treats embeddings in another way than tokens.
    """

    def __init__(self, directory: Path) -> None:
        self.prompts = PromptEmbeddings(directory)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, use_safetensors=True
        ).eval()
        self._require_equal_paths()
        self._require_shift_unseen()

    @torch.no_grad()
    def _require_equal_paths(self) -> None:
        """See that the stock model makes the same of tokens as of their embeddings, where all are OUTPUT."""
        count = self.prompts.vocab_size
        ids = torch.linspace(0, count - 1, min(count, 48)).long()
        embeds = self._embeds(ids.tolist(), [self.prompts.scheme.output] * len(ids))
        name = type(self._model).__name__
        own: torch.Tensor = self._model.get_input_embeddings()(ids)
        if embeds.shape[1:] != own.shape or not torch.allclose(embeds[0], own, rtol=1e-4, atol=1e-6):
            raise ValueError(_refusal(name, "its embeddings of tokens are not those that a client makes"))
        try:
            by_embeds: torch.Tensor = self._model(inputs_embeds=embeds).logits
        except (ValueError, TypeError, RuntimeError) as error:
            raise ValueError(_refusal(name, f"it takes no embeddings ({error})")) from error
        by_tokens: torch.Tensor = self._model(input_ids=ids[None]).logits
        if not torch.allclose(by_embeds, by_tokens, rtol=1e-3, atol=1e-3 * float(by_tokens.std())):
            raise ValueError(_refusal(name, "it makes something else of embeddings than of the tokens themselves"))

    @torch.no_grad()
    def _require_shift_unseen(self) -> None:
        """Where the head shares the folded embeddings, see that a row in all of its weights changes no probability.

        It adds one number to all logits of a position, unless what follows bends them (Gemma 2's cap on logits).
        """
        head, embedding = self._model.get_output_embeddings(), self._model.get_input_embeddings()
        if head.weight is not embedding.weight:
            return
        ids = torch.arange(min(self.prompts.vocab_size, 24))[None]
        chances: torch.Tensor = self._model(input_ids=ids).logits.log_softmax(-1)
        row = embedding.weight[embedding.weight.norm(dim=-1).argmax()]
        head.weight = torch.nn.Parameter(embedding.weight + 4 * row)
        moved: torch.Tensor = self._model(input_ids=ids).logits.log_softmax(-1)
        head.weight = embedding.weight
        if not torch.allclose(chances, moved, rtol=1e-3, atol=1e-3 * float(chances.std())):
            raise ValueError(
                f"{type(self._model).__name__} bends its logits, so its head cannot share the folded embeddings; "
                "export it with --head untied"
            )

    def _embeds(self, input_ids: Sequence[int], segment_ids: Sequence[int]) -> torch.Tensor:
        return self.prompts.embed(input_ids, segment_ids, dtype=torch.float32)[None]

    @torch.no_grad()
    def logits(self, input_ids: Sequence[int], segment_ids: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
        """See `Asked`. The answer's tokens are embedded by the model itself."""
        embeds = self._embeds(input_ids, segment_ids)
        if answer:
            embeds = torch.cat([embeds, self._model.get_input_embeddings()(torch.tensor([list(answer)]))], dim=1)
        return self._model(inputs_embeds=embeds).logits[0]

    @torch.no_grad()
    def answer(self, input_ids: Sequence[int], segment_ids: Sequence[int], new_tokens: int) -> list[int]:
        """See `Asked`."""
        embeds = self._embeds(input_ids, segment_ids)
        made = self._model.generate(
            inputs_embeds=embeds, attention_mask=torch.ones(embeds.shape[:2], dtype=torch.long),
            generation_config=greedy(self._model, new_tokens),
        )  # fmt: skip
        return made[0].tolist()


def _refusal(name: str, why: str) -> str:
    return (
        f"{name} cannot be exported folded: {why}, so that roles would be lost or wrong. Serve this model with "
        "rolewise serve, or export it with --to hf"
    )
