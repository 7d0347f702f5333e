"""The provider `rolewise/<path>`: any suite of inspect_ai on a segmented model, roles kept.

inspect eval rolewise/structured_query --model rolewise/runs/ise -M probe=data-as-user
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    TopLogprob,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo

from rolewise.engine.decoding import Answer, PromptTooLongError, Request
from rolewise.evaluation.conversations import to_rolewise, to_schemas
from rolewise.evaluation.devices import require_device
from rolewise.evaluation.judging import settled
from rolewise.evaluation.probes import make_probe
from rolewise.evaluation.unaskable import TOO_LONG_KEY
from rolewise.evaluation.watching import tell_wrote
from rolewise.evaluation.worker import Job, Worker
from rolewise.roles import Role
from rolewise.tools.format import CHOICES, Said, ToolFormat, split_thoughts, tool_format

OPTIONS_KEY = "rolewise"
"""Where `extra_body` of a request has options of this provider: `{"rolewise": {"settled_by": "hacked"}}`."""

_ARGUMENTS = ("batch_size", "scale", "probe", "device", "dtype", "max_new_tokens", "tool_format")
_REFUSED = ("logit_bias", "best_of", "response_schema", "prompt_logprobs",
            "reasoning_tokens", "reasoning_effort", "reasoning_mode", "reasoning_summary", "effort", "verbosity",
            "modalities", "fallback_models")  # fmt: skip
_WINDOW_BATCHES = 8
"""Batches that are collected before work begins: more rows share more prefixes, and are of more equal length."""


class RolewiseAPI(ModelAPI):
    """A segmented model as a model of inspect_ai.

    Model arguments (`-M name=value`):
        batch_size: rows computed together (32).
        scale: factor on the segment table, in place of the model's own; 0 is the bare model, and what a model
            without a table gets.
        probe: a probe of `rolewise.evaluation.probes` (`system-as-user`, `data-as-user`, `all-one-role`, `scale-0`).
        device: where the model runs (an accelerator if there is one).
        dtype: of the weights ("auto").
        max_new_tokens: the most tokens of an answer for which a task sets no limit (256).
        tool_format: how the model is told of tools: "auto" (its chat template's way, or a plain one where it has
            none) or "plain".

    Raises:
        ValueError: for an unknown model argument or probe, besides what `rolewise.load` raises.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 (as inspect_ai's own)
        **model_args: Any,
    ) -> None:
        super().__init__(model_name=model_name, base_url=base_url, api_key=api_key, config=config)
        if unknown := sorted(model_args.keys() - set(_ARGUMENTS)):
            raise ValueError(
                f"unknown model argument {unknown[0]!r}; the rolewise provider has {', '.join(_ARGUMENTS)}"
            )
        import torch

        from rolewise.engine.batches import Engine
        from rolewise.modeling import load
        from rolewise.modeling.loading import has_table

        self.batch_size = int(model_args.get("batch_size", 32))
        self._max_new_tokens = int(model_args.get("max_new_tokens", 256))
        self._tool_choice = str(model_args.get("tool_format", "auto"))
        if self._tool_choice not in CHOICES:
            raise ValueError(f"tool_format={self._tool_choice!r} must be one of {', '.join(CHOICES)}")
        self._tool_format: ToolFormat | None = None
        require_device(model_args.get("device"))
        self.model, self.tokenizer = load(model_name, dtype=model_args.get("dtype", "auto"))
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        self.model.to(cast("Any", model_args.get("device") or accelerator or "cpu"))
        self.model.eval()
        self.probe = make_probe(model_args.get("probe"), self.model.role_scheme)
        scale = model_args.get("scale")
        if scale is not None and self.probe.scale is not None:
            raise ValueError(f"probe {model_args['probe']!r} sets the scale itself; leave scale={scale} out")
        if not has_table(model_name):  # the one that `load` made is random
            if model_args.get("probe"):
                raise ValueError(f"{model_name} has no segment table that a probe could be about; train it first")
            scale = 0.0 if scale is None else scale
        if (scale := self.probe.scale if scale is None else float(scale)) is not None:
            self.model.segment_scale = scale
        self.engine = Engine(self.model, self.tokenizer, batch_size=self.batch_size, wrote=self._wrote)
        self._worker = Worker(self._work, window=self.max_connections())

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Answer a conversation; what is asked concurrently is answered in batches.

        A prompt that is too long for the model comes back with the stop reason `model_length` and the error, as
        inspect_ai's other providers tell it: it fails alone, and the evaluation goes on.

        Raises:
            ValueError: when the conversation cannot be rendered, or an option is not supported; it names which.
        """
        began = time.monotonic()
        if tool_choice not in ("auto", "none"):
            raise ValueError(
                f"the rolewise provider cannot force a tool call (tool_choice={tool_choice!r}); use 'auto' or 'none'"
            )
        tools = [] if tool_choice == "none" else tools
        request = self._request(input, tools, config)
        try:
            self.engine.room_for(request)
        except PromptTooLongError as error:
            return self._too_long(error)
        seeds = [None if config.seed is None else config.seed + choice for choice in range(config.num_choices or 1)]
        futures = [self._worker.submit("generate", replace(request, seed=seed)) for seed in seeds]
        answers = [await _result(future) for future in futures]
        called = sum(len(message.tool_calls or ()) for message in input if isinstance(message, ChatMessageAssistant))
        written = sum(len(answer.token_ids) for answer in answers)
        read = len(request.input_ids)
        return ModelOutput(
            model=self.model_name,
            choices=[self._choice(answer, request, to_schemas(tools), called) for answer in answers],
            usage=ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written),
            time=time.monotonic() - began,
        )

    async def answer_logprob(self, messages: Sequence[ChatMessage], answer: str) -> float:
        """The mean log-likelihood per token of `answer` (and its end of turn) to a conversation, teacher-forced.

        Raises:
            ValueError: when the conversation cannot be rendered with that answer.
            PromptTooLongError: when the two do not fit into the model's positions.
        """
        from rolewise.rendering import render

        asked, _ = self._conversation(messages, ())
        conversation = [*asked, {"role": "assistant", "content": answer}]
        encoding = render(self.tokenizer, conversation, scheme=self.model.role_scheme, train_on="last")
        ids, segments = encoding.input_ids, self.probe(encoding.segment_ids)
        if (positions := self.engine.positions) is not None and len(ids) > positions:
            raise PromptTooLongError(len(ids), positions, "the conversation with this answer")
        return await _result(self._worker.submit("score", (ids, segments, encoding.loss_mask)))

    def _request(self, input: list[ChatMessage], tools: list[ToolInfo], config: GenerateConfig) -> Request:
        from rolewise.rendering import render

        if refused := [name for name in _REFUSED if getattr(config, name, None) not in (None, 0, 0.0)]:
            raise ValueError(f"the rolewise provider has no {refused[0]}; leave it out")
        if config.parallel_tool_calls is False:
            raise ValueError(
                "the rolewise provider cannot keep a model to one tool call; leave parallel_tool_calls out"
            )
        messages, schemas = self._conversation(input, tools)
        encoding = render(
            self.tokenizer,
            messages,
            tools=schemas,
            add_generation_prompt=True,
            scheme=self.model.role_scheme,
        )
        if unknown := sorted((config.extra_body or {}).keys() - {OPTIONS_KEY}):
            raise ValueError(f"the rolewise provider has no {unknown[0]!r} in extra_body; there is {OPTIONS_KEY!r}")
        options: dict[str, Any] = (config.extra_body or {}).get(OPTIONS_KEY, {})
        if unknown := sorted(options.keys() - {"settled_by"}):
            raise ValueError(f"unknown option {unknown[0]!r} in extra_body[{OPTIONS_KEY!r}]; there is settled_by")
        return Request(
            input_ids=encoding.input_ids,
            segment_ids=self.probe(encoding.segment_ids),
            max_new_tokens=config.max_tokens or self._max_new_tokens,
            temperature=config.temperature or 0.0,
            top_p=1.0 if config.top_p is None else config.top_p,
            top_k=config.top_k or 0,
            frequency_penalty=config.frequency_penalty or 0.0,
            presence_penalty=config.presence_penalty or 0.0,
            seed=config.seed,
            stop=tuple(config.stop_seqs or ()),
            settled=partial(settled, witness=options["settled_by"]) if options.get("settled_by") is not None else None,
            logprobs=(config.top_logprobs or 0) if config.logprobs else None,
        )

    def _work(self, kind: str, jobs: Sequence[Job]) -> None:
        if kind == "generate":
            for index, answer in self.engine.answers([job.what for job in jobs]):
                jobs[index].future.set_result(answer)
        else:
            for index, value in self.engine.logprobs([job.what for job in jobs]):
                jobs[index].future.set_result(value)

    def _wrote(self, tokens: int) -> None:
        self._worker.keep_on()
        tell_wrote(tokens)

    def _too_long(self, error: PromptTooLongError) -> ModelOutput:
        output = ModelOutput.from_content(self.model_name, str(error), stop_reason="model_length", error=str(error))
        output.metadata = {TOO_LONG_KEY: {"tokens": error.tokens, "positions": error.positions}}
        return output

    def _conversation(
        self, input: Sequence[ChatMessage], tools: Sequence[ToolInfo]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """Messages and tools as `render` takes them."""
        messages = to_rolewise(input)
        if tools or any("tool_calls" in message for message in messages):
            return self._tools().prompt(messages, to_schemas(tools))
        return messages, None

    def _tools(self) -> ToolFormat:
        # Found out when it is first needed: most evaluations have no tools.
        if self._tool_format is None:
            self._tool_format = tool_format(self.tokenizer, self._tool_choice)
        return self._tool_format

    def _said(self, answer: Answer, request: Request, schemas: Sequence[Mapping[str, Any]]) -> Said:
        output = self.model.role_scheme.row(Role.OUTPUT)
        at = len(request.segment_ids)
        while at and request.segment_ids[at - 1] == output:
            at -= 1
        opening = str(self.tokenizer.decode(list(request.input_ids[at:])))
        if not schemas:
            # What may settle a row early is judged by all that was written, so that stopping early changes no score.
            split = None if request.settled is not None else split_thoughts(answer.text, opening)
            return Said(answer.text) if split is None else Said(split[1], split[0])
        written = str(self.tokenizer.decode(answer.token_ids))
        for stop in request.stop:
            written = written.partition(stop)[0]
        said = self._tools().read(written, opening, schemas)
        return replace(said, text=self._without_special(said.text), thoughts=self._without_special(said.thoughts))

    def _without_special(self, text: str) -> str:
        for token in self.tokenizer.all_special_tokens:
            text = text.replace(token, "")
        return text

    def _choice(
        self, answer: Answer, request: Request, schemas: Sequence[Mapping[str, Any]], called: int
    ) -> ChatCompletionChoice:
        """An answer as inspect_ai has it; `called` calls were made in the conversation before."""
        said = self._said(answer, request, schemas)
        # Counted, so that the same conversation is rendered alike each time; nine letters and digits, as Mistral wants.
        calls = [
            ToolCall(f"call{number:05d}", call.function, call.arguments, parse_error=call.error)
            for number, call in enumerate(said.calls, start=called)
        ]
        reason: StopReason = "stop" if answer.ending in ("stop", "settled") else answer.ending
        metadata: dict[str, Any] = {"rolewise_ending": answer.ending}
        if calls and reason == "stop":
            reason = "tool_calls"
        if any(call.error for call in said.calls):
            metadata["rolewise_written"] = answer.text
        content: str | list[Content] = said.text
        if said.thoughts:
            content = [ContentReasoning(reasoning=said.thoughts), ContentText(text=said.text)]
        message = ChatMessageAssistant(
            content=content, tool_calls=calls or None, model=self.model_name, source="generate", metadata=metadata
        )
        return ChatCompletionChoice(message=message, stop_reason=reason, logprobs=self._logprobs(answer))

    def _logprobs(self, answer: Answer) -> Logprobs | None:
        if answer.logprobs is None:
            return None

        def text(token: int) -> str:
            return str(self.tokenizer.decode([token]))

        return Logprobs(
            content=[
                Logprob(
                    token=text(token),
                    logprob=value,
                    top_logprobs=[TopLogprob(token=text(other), logprob=chance) for other, chance in likeliest] or None,
                )
                for token, value, likeliest in answer.logprobs
            ]
        )

    async def count_text_tokens(self, text: str) -> int:
        """How many tokens of the model's a text has; inspect_ai's own estimate needs a download."""
        return len(await self.tokenize(text))

    async def tokenize(self, text: str) -> list[int]:
        """The model's tokens of a text, control tokens as text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    def max_tokens(self) -> int | None:
        """The most tokens of an answer for which a task sets no limit."""
        return self._max_new_tokens

    def max_connections(self) -> int:
        """How many requests inspect_ai should keep going: several batches' worth."""
        return self.batch_size * _WINDOW_BATCHES

    def collapse_system_messages(self) -> bool:
        """Templates know one system message; those that follow one another are joined."""
        return True

    def collapse_user_messages(self) -> bool:
        """Never: what a message's metadata says is data would become the user's, or the other way round."""
        return False

    def tool_result_images(self) -> bool:
        """They stay in the tool's result, where they are refused; inspect_ai would make them the user's."""
        return True

    def tool_result_documents(self) -> bool:
        """As images."""
        return True

    def connection_key(self) -> str:
        """Each model has connections of its own."""
        return self.model_name

    def close(self) -> None:
        """End the model's thread, and let the weights go."""
        self._worker.close()
        del self.engine, self.model


async def _result(future: Future[Any]) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # inspect_ai on trio
        while not future.done():
            await anyio.sleep(0.02)
        return future.result()
    return await asyncio.wrap_future(future)
