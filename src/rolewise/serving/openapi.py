"""The OpenAPI description: what `protocol` says of requests, and what answers look like."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from rolewise.serving.protocol import ChatRequest, ToolCall
from rolewise.serving.settings import ServerSettings


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetail(_Sent):
    """What is wrong, and with which field."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(_Sent):
    """OpenAI's form of an error."""

    error: ErrorDetail


class Health(_Sent):
    """Whether requests can be answered, by model."""

    status: Literal["ok", "stopping", "unavailable"]
    models: dict[str, bool]


class Model(_Sent):
    """A model that can be asked for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(_Sent):
    """All of them."""

    object: Literal["list"]
    data: list[Model]


class TopLogprob(_Sent):
    """One of the likeliest tokens at a place."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """The token that was taken."""

    top_logprobs: list[TopLogprob]


class Logprobs(_Sent):
    """Of all tokens written, thoughts and calls included."""

    content: list[TokenLogprob]
    refusal: None


class AnswerMessage(_Sent):
    """What the model said."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(_Sent):
    """One answer."""

    index: int
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class PromptDetails(_Sent):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class Usage(_Sent):
    """Numbers of tokens, over all answers; the prompt counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class ChatCompletion(_Sent):
    """Answers to a chat request."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


_SAID = {
    400: "The request cannot be answered; the message names the field.",
    401: "No API key, or a wrong one.",
    403: "The Host header names another server.",
    404: "No such model, or no such path.",
    405: "The path does not take this method.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not declared to be JSON.",
    429: "Too many requests; Retry-After says when to send it again.",
    500: "An error of the server's.",
    503: "The engine or the server is stopping, or has stopped.",
    504: "The answer took too long.",
}

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": text} for status, text in _SAID.items()
}


def chat_responses() -> dict[int | str, dict[str, Any]]:
    """The responses of a chat request."""
    # An event, not the whole body: tools that read the description check each one by itself.
    event = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    streamed = {"schema": event | {"description": "Chunks as OpenAI streams them, then [DONE]."}}
    answer = {"model": ChatCompletion, "description": "The answers.", "content": {"text/event-stream": streamed}}
    return {200: answer, **ERRORS}


def describe(app: FastAPI, settings: ServerSettings) -> None:
    """Give the app its OpenAPI document; FastAPI does not know the request's body, since it does not read it."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            schema = ChatRequest.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas |= schema.pop("$defs")
            schemas["ChatRequest"] = schema
            body = {"required": True, "content": {"application/json": {"schema": _ref("ChatRequest")}}}
            document["paths"]["/v1/chat/completions"]["post"]["requestBody"] = body
            if settings.api_keys:
                document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                document["security"] = [{"key": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
