"""What a chat request may hold. Every field of OpenAI's is named: the ones that we lack only as `null`.

The models check, and describe the request in the OpenAPI document; what goes on are the plain values.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

UNKNOWN_FIELD = "unknown_field"
"""The kind of pydantic's error for it."""


class Strict(BaseModel):
    """Nothing is converted, and nothing unknown is let through."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        """Refuse the first unknown field, before pydantic would name each of them."""
        if isinstance(value, dict):
            for name in cast("dict[str, Any]", value):
                if name not in cls.model_fields:
                    raise PydanticCustomError(
                        UNKNOWN_FIELD, "unknown field", {"field": name, "known": list(cls.model_fields)}
                    )
        return value


class TextPart(Strict):
    """Text of the message's own role."""

    type: Literal["text"]
    text: str


class DataPart(Strict):
    """Text that its sender did not write, and that may give no orders."""

    type: Literal["data"]
    text: str


def _kind_of_content(value: Any) -> str:
    return "text" if isinstance(value, str) else "parts"


_PARTS = Annotated[
    list[Annotated[TextPart | DataPart, Field(discriminator="type")]],
    Field(fail_fast=True),
    Tag("parts"),
    Field(description="Parts; a `data` part is DATA, and stands in system, user and data messages only."),
]
_TEXT_PARTS = Annotated[list[TextPart], Field(fail_fast=True), Tag("parts")]
_TEXT = Annotated[str, Tag("text")]
Content = Annotated[_TEXT | _PARTS, Discriminator(_kind_of_content)]
TextContent = Annotated[_TEXT | _TEXT_PARTS, Discriminator(_kind_of_content)]


class SystemMessage(Strict):
    """The operator's; SYSTEM."""

    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(Strict):
    """The user's; USER, its `data` parts DATA."""

    role: Literal["user"]
    content: Content
    name: str | None = None


class DataMessage(Strict):
    """Documents, pages, files: what nobody in this conversation wrote; DATA."""

    role: Literal["data"]
    content: Content
    name: str | None = None


class ToolMessage(Strict):
    """A tool's result; DATA."""

    role: Literal["tool", "function"]
    content: TextContent
    tool_call_id: str | None = None
    name: str | None = None


class CalledFunction(Strict):
    """What was called, and with what."""

    name: str = Field(min_length=1)
    arguments: str = Field(description="A JSON object, as text.")


class ToolCall(Strict):
    """A call that the model made."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class AssistantMessage(Strict):
    """What the model said before; OUTPUT."""

    role: Literal["assistant"]
    content: Annotated[_TEXT | _TEXT_PARTS | Annotated[None, Tag("none")], Discriminator(
        lambda value: "none" if value is None else _kind_of_content(value)
    )] = None  # fmt: skip
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    # As OpenAI's client hands a message back that it got.
    refusal: None = Field(None, description="Must be null.")
    audio: None = Field(None, description="Must be null.")
    function_call: None = Field(None, description="Must be null; use tool_calls.")
    annotations: Annotated[list[Any], Field(max_length=0)] | None = Field(None, description="Must be empty.")


Message = Annotated[
    SystemMessage | UserMessage | DataMessage | ToolMessage | AssistantMessage, Field(discriminator="role")
]


class Function(Strict):
    """A tool, as the model is told of it."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="A JSON schema of the arguments.")
    strict: Literal[False] | None = Field(None, description="Answers cannot be forced into a schema.")


class Tool(Strict):
    """A tool that the model may call."""

    type: Literal["function"]
    function: Function


class StreamOptions(Strict):
    """What a stream has besides."""

    include_usage: bool | None = Field(None, description="Whether a last chunk has the numbers of tokens.")
    include_obfuscation: Literal[False] | None = None


class PlainText(Strict):
    """The only form of an answer."""

    type: Literal["text"]


class TemplateOptions(Strict):
    """What may be handed to the chat template."""

    enable_thinking: bool | None = None


def _unsupported(why: str = "this server has no such thing") -> Any:
    return Field(None, description=f"Not supported: {why}. Leave it out, or send null.")


_Stop = Annotated[str, Field(min_length=1, max_length=256)]
_SomeStops = Annotated[list[_Stop], Field(fail_fast=True, max_length=4), Tag("parts")]
_Stops = Annotated[Annotated[_Stop, Tag("text")] | _SomeStops, Discriminator(_kind_of_content)]


class ChatRequest(Strict):
    """A chat completion that is asked for."""

    model: str
    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, description="How many answers.")
    stop: _Stops | None = Field(
        None, description="One to four strings, any of which ends an answer, and is no part of it."
    )
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1, description="Answer i of n is drawn with seed + i.")
    temperature: float | None = Field(
        None, ge=0, le=2, description="1 when it is left out; 0 (or under 0.0001) takes the likeliest token each time."
    )
    top_p: float | None = Field(None, gt=0, le=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1, description="The older name of max_completion_tokens.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20, description="Needs logprobs to be true.")
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    tools: Annotated[list[Tool], Field(fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto"] | None = Field(None, description="A call cannot be forced.")
    parallel_tool_calls: Literal[True] | None = Field(None, description="A model cannot be kept to one call.")
    chat_template_kwargs: TemplateOptions | None = Field(None, description="An extension of many servers.")
    response_format: PlainText | None = Field(None, description="Answers cannot be forced into a schema.")
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = Field(
        None, description="There is text only."
    )
    # Taken, and without effect here.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: Annotated[dict[str, str], Field(fail_fast=True, max_length=16)] | None = None
    store: Literal[False] | None = Field(None, description="Nothing is stored.")
    service_tier: Literal["auto", "default"] | None = None
    # OpenAI's, and not ours.
    audio: None = _unsupported("there is text only")
    function_call: None = _unsupported("use tool_choice")
    functions: None = _unsupported("use tools")
    logit_bias: None = _unsupported("it names token ids, which clients of this server cannot")
    moderation: None = _unsupported()
    prediction: None = _unsupported()
    prompt_cache_options: None = _unsupported()
    prompt_cache_retention: None = _unsupported()
    reasoning_effort: None = _unsupported("chat_template_kwargs may have enable_thinking")
    verbosity: None = _unsupported()
    web_search_options: None = _unsupported()

    @model_validator(mode="after")
    def _agree(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens differ; send one of them")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream to be true")
        return self
