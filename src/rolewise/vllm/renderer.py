"""What vLLM's engine lets in: packed ids, and nothing else.

Every endpoint of vLLM (chat, completions, responses, messages, tokens in, batches, pooling) hands its prompt to the
renderer of the engine, and every prompt passes `validate_token_ids` before it reaches the engine. So this is where
text, conversations and embeddings are refused: they would be tokens without roles.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# vLLM lives in an environment of its own.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from vllm.exceptions import VLLMValidationError
from vllm.renderers.hf import HfRenderer

from rolewise.vllm import hooks
from rolewise.vllm.configuration import packed_ids

_REMEDY = (
    "this server takes packed ids only (a list of integers in `prompt`, see rolewise.serving.PackedIds), since text "
    "has no roles; send conversations to `rolewise serve MODEL --upstream` in front of it"
)


class PackedRenderer(HfRenderer):
    """The renderer of an engine that serves a segmented model."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        self.packed = packed_ids(config.model_config.hf_config)
        if self.tokenizer is not None:
            hooks.install_in_front(self.packed.vocab_size, self.tokenizer)

    def validate_token_ids(self, token_ids: Sequence[int], *, parameter: str | None = None) -> None:
        """See that a prompt carries roles: the last gate before the engine, for every endpoint.

        Raises:
            VLLMValidationError: as `PackedIds.check` says; vLLM answers it with status 400.
        """
        try:
            self.packed.check(token_ids)
        except ValueError as error:
            raise VLLMValidationError(str(error), parameter=parameter or "prompt") from error

    def render_messages(self, messages: Any, params: Any) -> NoReturn:
        """Refuse a conversation."""
        raise _refused("messages")

    async def render_messages_async(self, messages: Any, params: Any) -> NoReturn:
        """Refuse a conversation."""
        raise _refused("messages")

    def render_completion_suffix(self, prompt: str, suffix: str) -> NoReturn:
        """Refuse a prompt with a suffix."""
        raise _refused("suffix")

    def _tokenize_prompt(self, prompt: Any, params: Any) -> NoReturn:
        raise _refused("prompt")

    def _process_tokens(self, prompt: Any, **options: Any) -> Any:
        self.validate_token_ids(prompt["prompt_token_ids"])  # here already, before a stream has its status 200
        return super()._process_tokens(prompt, **options)

    async def _process_tokens_async(self, prompt: Any, **options: Any) -> Any:
        self.validate_token_ids(prompt["prompt_token_ids"])
        return await super()._process_tokens_async(prompt, **options)

    def _process_embeds(self, prompt: Any) -> NoReturn:
        raise _refused("prompt_embeds")

    def _detokenize_prompt(self, prompt: Any) -> Any:
        return super()._detokenize_prompt(self._plain(prompt))

    async def _detokenize_prompt_async(self, prompt: Any) -> Any:
        text = await super()._detokenize_prompt_async(self._plain(prompt))
        return {**text, "prompt_token_ids": prompt["prompt_token_ids"]}

    def _plain(self, prompt: Any) -> Any:
        return {**prompt, "prompt_token_ids": [one % self.packed.vocab_size for one in prompt["prompt_token_ids"]]}

    def warmup(self, chat_params: Any) -> None:
        """Nothing to make ready: there is no chat template to compile."""


def _refused(parameter: str) -> VLLMValidationError:
    return VLLMValidationError(f"`{parameter}` is refused: {_REMEDY}", parameter=parameter)
