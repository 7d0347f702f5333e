"""Room in the embeddings for the tokens that a template adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rolewise.modeling import SegmentedCausalLM


@torch.no_grad()
def add_words(model: SegmentedCausalLM, tokenizer: PreTrainedTokenizerBase, added: Mapping[str, str]) -> None:
    """Start new tokens from the words that they stand for (Structured Query's reserved delimiters do).

    Args:
        model: grows when its vocabulary is too small; all other rows keep their values.
        tokenizer: has the new tokens already.
        added: each new token and its words (`PreparedTokenizer.added_words`).
    """
    if not added:
        return
    rows = _weight(model.get_input_embeddings()).shape[0]
    if len(tokenizer) > rows:
        model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=8, mean_resizing=False)
    tables = [_weight(model.get_input_embeddings())]
    head = _weight(model.get_output_embeddings())
    if head is not tables[0]:
        tables.append(head)
    sources = {
        _id(tokenizer, token): tokenizer.encode(words, add_special_tokens=False) for token, words in added.items()
    }
    assert all(words and not set(words) & sources.keys() for words in sources.values())
    for table in tables:
        for token, words in sources.items():
            table[token] = table[words].mean(0)


def _id(tokenizer: Any, token: str) -> int:
    return tokenizer.convert_tokens_to_ids(token)


def _weight(module: Any) -> torch.nn.Parameter:
    return module.weight
