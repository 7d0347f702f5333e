"""Errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rolewise.serving.backend import OverloadedError, UnavailableError
from rolewise.serving.tracing import named

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """What a client is told when it gets no answer.

    Args:
        status: the HTTP status.
        message: what is wrong, and what to do about it.
        param: the field that is at fault.
        code: a word for programs.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    @property
    def type(self) -> str:
        """OpenAI's word for this kind of error."""
        return _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def body(self) -> dict[str, Any]:
        """What is sent."""
        # A message may quote what a client sent, lone surrogates included.
        message = self.message.encode("utf-8", "backslashreplace").decode()[:2000]
        return {"error": {"message": message, "type": self.type, "param": self.param, "code": self.code}}

    def encoded(self) -> bytes:
        """`body` as JSON."""
        return json.dumps(self.body(), ensure_ascii=False).encode()


def api_error(error: Exception) -> ApiError:
    """Any error as one that a client may see; what is ours says no more than that."""
    match error:
        case ApiError():
            return error
        case OverloadedError():
            wait = str(max(1, math.ceil(error.retry_after)))
            return ApiError(429, str(error), code="overloaded", headers={"Retry-After": wait})
        case UnavailableError():
            return ApiError(503, named(error.told), code="unavailable", headers={"Retry-After": "5"})
        case NotImplementedError():
            return ApiError(400, str(error), code="unsupported")
        case TimeoutError():
            return ApiError(504, "the answer took longer than this server allows; ask for fewer tokens", code="timeout")
        case _:
            why = "something went wrong in the server; its log says what"
            return ApiError(500, named(why), code="internal_error")
