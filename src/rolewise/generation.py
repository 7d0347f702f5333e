"""Answers to many conversations: rows of like length together, left-padded, with the KV cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from rolewise.modeling import SegmentedCausalLM
from rolewise.rendering import Encoding, control_token_ids, render
from rolewise.roles import Role


def generate_batch(
    model: SegmentedCausalLM,
    tokenizer: Any,
    conversations: Sequence[Any],
    *,
    max_new_tokens: int = 256,
    batch_size: int = 16,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int | None = None,
    max_length: int | None = None,
    **template_kwargs: Any,
) -> Iterator[tuple[int, str]]:
    """Generate the assistant's next message for each conversation.

    All conversations are rendered, and so checked, before the first batch runs; then the longest go first, so that a
    batch that does not fit in memory fails at once.

    Args:
        model: a segmented model.
        tokenizer: its tokenizer.
        conversations: lists of messages, or mappings with `messages` and perhaps `tools` and `documents`.
        max_new_tokens: the most tokens of an answer.
        batch_size: conversations that are answered together.
        temperature: 0 takes the likeliest token each time; above 0 samples.
        top_p: when sampling, only the likeliest tokens that make up this much probability.
        seed: when sampling, makes the answers repeatable (for the same conversations and batch size).
        max_length: the most tokens of a prompt; what is longer is refused.
        **template_kwargs: arguments of the chat template (such as `enable_thinking`).

    Yields:
        (index of the conversation, text of the answer), a batch at a time, in the order in which they are done.

    Raises:
        ValueError: when a conversation cannot be rendered (its index is named) or a setting is out of range.
    """
    if max_new_tokens < 1 or batch_size < 1 or temperature < 0 or not 0 < top_p <= 1:
        raise ValueError(
            f"max_new_tokens={max_new_tokens} and batch_size={batch_size} must be at least 1, "
            f"temperature={temperature} not negative, and top_p={top_p} in (0, 1]"
        )
    prompts = [
        _prompt(model, tokenizer, index, conversation, max_length, template_kwargs)
        for index, conversation in enumerate(conversations)
    ]
    return _answers(model, tokenizer, prompts, max_new_tokens, batch_size, temperature, top_p, seed)


def _prompt(
    model: SegmentedCausalLM,
    tokenizer: Any,
    index: int,
    conversation: Any,
    max_length: int | None,
    template_kwargs: dict[str, Any],
) -> Encoding:
    messages, tools, documents = conversation, None, None
    if isinstance(conversation, Mapping):
        messages, tools, documents = (conversation.get(key) for key in ("messages", "tools", "documents"))
    try:
        return render(
            tokenizer,
            messages,  # pyright: ignore[reportArgumentType] (render says what is wrong with it)
            tools=tools,
            documents=documents,
            add_generation_prompt=True,
            scheme=model.role_scheme,
            max_length=max_length,
            **template_kwargs,
        )
    except (ValueError, TypeError) as error:
        raise type(error)(f"conversation {index}: {error}") from error


def _answers(
    model: SegmentedCausalLM,
    tokenizer: Any,
    prompts: list[Encoding],
    max_new_tokens: int,
    batch_size: int,
    temperature: float,
    top_p: float,
    seed: int | None,
) -> Iterator[tuple[int, str]]:
    stops = stop_token_ids(model, tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (stops or [0])[0]
    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "pad_token_id": pad, "do_sample": temperature > 0}
    if stops:
        options["eos_token_id"] = stops
    if temperature > 0:
        options |= {"temperature": temperature, "top_p": top_p, "top_k": 0}
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index].input_ids))
    generator_state: torch.Tensor | None = None
    for at in range(0, len(order), batch_size):
        chosen = order[at : at + batch_size]
        batch = left_padded([prompts[index] for index in chosen], pad, model.role_scheme.row(Role.OUTPUT))
        batch = {key: tensor.to(model.device) for key, tensor in batch.items()}
        # A random stream of our own, so that neither the caller's draws change ours nor ours the caller's.
        with torch.random.fork_rng(enabled=temperature > 0 and seed is not None), torch.inference_mode():
            if generator_state is not None:
                torch.set_rng_state(generator_state)
            elif seed is not None:
                torch.manual_seed(seed)
            output = model.generate(**batch, **options)
            generator_state = torch.get_rng_state() if temperature > 0 and seed is not None else None
        width = batch["input_ids"].shape[1]
        for index, row in zip(chosen, output[:, width:].tolist(), strict=True):
            yield index, decode_answer(tokenizer, row, stops)


def decode_answer(tokenizer: Any, ids: Sequence[int], stops: Sequence[int]) -> str:
    """The text of generated ids up to the first that ends the turn, special tokens left out."""
    end = next((place for place, token in enumerate(ids) if token in stops), len(ids))
    return tokenizer.decode(list(ids[:end]), skip_special_tokens=True)


def left_padded(prompts: Sequence[Encoding], pad_token_id: int, output_row: int) -> dict[str, torch.Tensor]:
    """Prompts as tensors [batch, seq], ids and segments padded on the same, left side."""
    width = max(len(prompt.input_ids) for prompt in prompts)

    def padded(rows: list[list[int]], value: int) -> torch.Tensor:
        return torch.tensor([[value] * (width - len(row)) + row for row in rows])

    return {
        "input_ids": padded([prompt.input_ids for prompt in prompts], pad_token_id),
        "segment_ids": padded([prompt.segment_ids for prompt in prompts], output_row),
        "attention_mask": padded([[1] * len(prompt.input_ids) for prompt in prompts], 0),
    }


def stop_token_ids(model: SegmentedCausalLM, tokenizer: Any) -> list[int]:
    """The tokens that end an answer: the model's, the tokenizer's, and the one that ends a turn in its template."""
    configured: Any = getattr(model.generation_config, "eos_token_id", None)
    found: list[Any] = [*configured] if isinstance(configured, list) else [configured]
    found.append(tokenizer.eos_token_id)
    turn = render(tokenizer, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    trained = [token for token, train in zip(turn.input_ids, turn.loss_mask, strict=True) if train]
    if trained and trained[-1] in control_token_ids(tokenizer):
        found.append(trained[-1])
    return list(dict.fromkeys(token for token in found if token is not None))
