"""Room in a model for the reserved tokens of a chat template."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rolewise.modeling.mixin import SegmentedCausalLM
from rolewise.rendering import PreparedTokenizer, prepare_tokenizer
from rolewise.rendering.schemes import note_scheme


def apply_template(model: SegmentedCausalLM, tokenizer: Any, template: str = "auto") -> PreparedTokenizer:
    """Give a tokenizer a chat template, and the model embeddings for the tokens that this adds.

    The model's role scheme is noted in the tokenizer too, so that `rolewise.encode` uses no other.

    A new token's embedding (and its row of an untied head) starts as the mean of those of the words that it stands
    for, as in StruQ; every other row stays as it was.

    Args:
        model: the model; its vocabulary grows when there is no room for the new tokens.
        tokenizer: its tokenizer, changed in place.
        template: see `rolewise.prepare_tokenizer`.

    Raises:
        ValueError: when the template is unknown, or does not fit the tokenizer.
    """
    note_scheme(tokenizer, model.role_scheme)
    prepared = prepare_tokenizer(tokenizer, template)  # pyright: ignore[reportArgumentType] (checked there)
    if prepared.template != "own":
        _stop_at(model, tokenizer.eos_token_id)
    if len(tokenizer) > _rows(model.get_input_embeddings()):
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    elif not prepared.added_words:
        return prepared
    head: Any = model.get_output_embeddings()
    tied = head.weight is model.get_input_embeddings().weight
    for token, words in prepared.added_words.items():
        new = tokenizer.convert_tokens_to_ids(token)
        old = [number for number in tokenizer.encode(words, add_special_tokens=False) if number != new]
        if not old:  # the words have no token either: leave the row that resizing made
            continue
        _start_from(model.get_input_embeddings(), new, old)
        if not tied:
            _start_from(head, new, old)
    return prepared


def _stop_at(model: SegmentedCausalLM, token: int) -> None:
    """Let `generate` end an answer where the template does, too."""
    settings: Any = model.generation_config
    known = settings.eos_token_id
    stops = known if isinstance(known, list) else [] if known is None else [known]
    if token not in stops:
        settings.eos_token_id = [*stops, token] if stops else token


@torch.no_grad()
def _start_from(module: nn.Module, row: int, others: list[int]) -> None:
    for parameter in (module.weight, getattr(module, "bias", None)):
        if isinstance(parameter, nn.Parameter):
            parameter[row] = parameter[others].mean(dim=0)


def _rows(embedding: Any) -> int:
    return embedding.weight.shape[0]
