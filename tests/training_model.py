"""A tiny chat model on disk, with a real tokenizer, and rows for it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.models import plain_model

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WORDS = ("red", "green", "blue", "cat", "dog", "tree", "copy", "count", "the", "last", "first", "word", "of")
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def tiny_tokenizer(*, chat: bool = True) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of about 300 tokens, with ChatML, or a base model's without template."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=list(_SPECIAL if chat else _SPECIAL[:1]), initial_alphabet=alphabet
    )
    backend.train_from_iterator([" ".join(_WORDS), "system user data assistant"] * 4, trainer)
    if not chat:
        return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )


def save_tiny_model(directory: Path, family: str = "llama", *, chat: bool = True) -> Path:
    """A plain model and its tokenizer in `directory`."""
    tokenizer = tiny_tokenizer(chat=chat)
    plain_model(family, vocab=len(tokenizer)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def conversations(count: int = 12, *, seed: int = 0) -> list[dict[str, Any]]:
    """Small copying tasks, each with a system, a user, a data and an assistant message."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        words = [rng.choice(_WORDS) for _ in range(rng.randint(2, 8))]
        rows.append(
            {
                "messages": [
                    {"role": "system", "content": "copy"},
                    {"role": "user", "content": "the last word"},
                    {"role": "data", "content": " ".join(words)},
                    {"role": "assistant", "content": words[-1]},
                ]
            }
        )
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
