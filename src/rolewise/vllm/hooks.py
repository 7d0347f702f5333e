"""Where vLLM must be told of packed ids: as few places as possible, and each is looked for before anything is served.

Where it uses a prompt's ids for more than to embed them, it is given plain ones.

A prompt's tokens count for the penalties, are the targets of `prompt_logprobs`, and start the detokeniser. All these
are about tokens, not roles. Taking a plain id modulo the vocabulary changes nothing, so that these hooks are safe for
any other model in the same process.
"""

# pyright: reportMissingImports=false
# vLLM lives in an environment of its own.

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from rolewise.vllm.configuration import packed_ids
from rolewise.vllm.versions import misfit

_MARK = "_rolewise_wrapped"


def install_in_worker() -> None:
    """Hook into the process that runs the model. Twice is as good as once.

    Raises:
        RuntimeError: when a place to hook into is not there.
    """
    from vllm.v1.worker.gpu_input_batch import InputBatch
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    _wrap(InputBatch, "_make_prompt_token_ids_cpu_tensor", ("self",), _plain_prompts)
    arguments = ("self", "hidden_states", "num_scheduled_tokens")
    _wrap(GPUModelRunner, "_get_prompt_logprobs_dict", arguments, _plain_targets)


def install_in_front(vocab_size: int, tokenizer: Any) -> None:
    """Hook into the process that reads and writes text.

    Raises:
        RuntimeError: when a place to hook into is not there.
    """
    from vllm.v1.engine.output_processor import OutputProcessor

    tokenizer.rolewise_vocab_size = vocab_size
    arguments = ("self", "request", "prompt", "parent_req", "request_index", "queue")
    _wrap(OutputProcessor, "add_request", arguments, _plain_start)


def install_in_engine() -> None:
    """Hook into the process that schedules: the last gate, for requests that came past vLLM's own front.

    Raises:
        RuntimeError: when a place to hook into is not there.
    """
    from vllm.v1.engine.core import EngineCore

    _wrap(EngineCore, "preprocess_add_request", ("self", "request"), _with_roles)


def _with_roles(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Refuse a request to a segmented model that has no roles; vLLM answers it with an error."""

    def checked(self: Any, request: Any) -> Any:
        config = self.vllm_config.model_config.hf_config
        if getattr(config, "segment_scheme", None) is not None:
            if request.prompt_embeds is not None:
                raise ValueError("prompt embeddings carry no roles")
            packed_ids(config).check(request.prompt_token_ids or ())
        return original(self, request)

    return checked


def _plain_prompts(original: Callable[[Any], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
    """What penalties count: [requests, longest prompt], filled up with the vocabulary's size."""

    def plain(self: Any) -> torch.Tensor:
        ids = original(self)
        beyond = torch.arange(ids.shape[1]) >= torch.as_tensor(self.num_prompt_tokens[: ids.shape[0]])[:, None]
        return ids.remainder_(self.vocab_size).masked_fill_(beyond, self.vocab_size)

    return plain


def _plain_targets(original: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """The tokens of a prompt whose log-probabilities are asked for."""

    def plain(self: Any, hidden_states: Any, num_scheduled_tokens: Any) -> Any:
        asked = [self.requests[one] for one in self.num_prompt_logprobs if one in self.requests]
        packed = [request.prompt_token_ids for request in asked]
        vocab_size = self.input_batch.vocab_size
        try:
            for request, ids in zip(asked, packed, strict=True):
                request.prompt_token_ids = None if ids is None else [one % vocab_size for one in ids]
            return original(self, hidden_states, num_scheduled_tokens)
        finally:
            for request, ids in zip(asked, packed, strict=True):
                request.prompt_token_ids = ids

    return plain


def _plain_start(original: Callable[..., None]) -> Callable[..., None]:
    """What a detokeniser has read before the answer begins, and what `echo` repeats."""

    def plain(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        vocab_size, packed = getattr(self.tokenizer, "rolewise_vocab_size", None), request.prompt_token_ids
        if vocab_size is None or packed is None:
            return original(self, request, *args, **kwargs)
        request.prompt_token_ids = [one % vocab_size for one in packed]
        try:
            return original(self, request, *args, **kwargs)
        finally:
            request.prompt_token_ids = packed  # the same request goes to the engine next

    return plain


def _wrap(owner: type, name: str, arguments: tuple[str, ...], wrapper: Callable[[Any], Any]) -> None:
    original: Any = owner.__dict__.get(name)
    if getattr(original, _MARK, False):
        return
    if original is None or tuple(inspect.signature(original).parameters) != arguments:
        raise misfit(f"{owner.__name__}.{name}({', '.join(arguments)})")
    wrapped: Any = functools.wraps(original)(wrapper(original))
    setattr(wrapped, _MARK, True)
    setattr(owner, name, wrapped)
