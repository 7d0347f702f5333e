"""What the page asks of the server, checked: messages with roles, and nothing that is text of a template."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rolewise.data.strict_json import Flaw, json_value
from rolewise.samples import Position
from rolewise.serving.errors import ApiError

MAX_CHARACTERS = 200_000
"""The most characters of a text."""
MAX_DATA = 16
"""The most data messages of a conversation."""

Line = Annotated[str, Field(max_length=2_000)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class BoxMessage(_Asked):
    """The text of a box."""

    role: Literal["system", "user", "data"]
    content: Annotated[str, Field(max_length=MAX_CHARACTERS)]


class Conversation(_Asked):
    """A conversation, for one model."""

    model: Line
    messages: Annotated[list[BoxMessage], Field(min_length=1, max_length=MAX_DATA + 2)]

    def plain(self) -> list[dict[str, Any]]:
        """The messages as `rolewise.render` takes them."""
        return [message.model_dump() for message in self.messages]


class AnswerRequest(Conversation):
    """An answer to be streamed."""

    roles: bool = True
    """Whether the segment table counts: as it was trained, or not at all."""
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 0.0
    max_tokens: Annotated[int, Field(ge=1)] = 256
    seed: Seed | None = None


class TokensRequest(Conversation):
    """The prompt of a conversation, by token."""


class NamedPayload(_Asked):
    """A registered payload."""

    name: Line


class OwnPayload(_Asked):
    """An instruction of one's own."""

    text: Line
    witness: Line


class AttackRequest(Conversation):
    """An attack on one message of a conversation."""

    target: Annotated[int, Field(ge=0)]
    """The place of the message that carries the injection."""
    attack: Line
    payload: NamedPayload | OwnPayload
    position: Position | None = None
    seed: Seed = 0
    forged_answer: Line | None = None


class JudgeRequest(_Asked):
    """An answer, and what it holds only if a payload was carried out."""

    output: Annotated[str, Field(max_length=2_000_000)]
    witness: Line


Asked = TypeVar("Asked", bound=_Asked)


def parse(kind: type[Asked], body: bytes) -> Asked:
    """What a body asks for.

    Raises:
        ApiError: when it is no strict JSON, or another request than `kind`; it names the field.
    """
    try:
        value = json_value(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    if isinstance(value, Flaw):
        raise ApiError(400, f"the body: {value.problem}")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:200]
        raise ApiError(400, f"{where}: {first['msg']}" if where else first["msg"], param=where or None) from None
