"""From what the server sent to a usable answer, or the reason why there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rolewise.data.strict_json import Flaw, json_value
from rolewise.data.teacher.requests import (
    Accepted,
    Answer,
    Reason,
    Rejected,
    Request,
    Result,
    estimated_prompt,
    estimated_tokens,
)
from rolewise.display import safe_text

INSTALL = "asking a teacher needs openai and jsonschema; in your clone of Rolewise: pip install -e '.[teacher]'"

ASK_AGAIN = (Reason.BROKEN_JSON, Reason.SCHEMA, Reason.EMPTY)
"""What may come out better another time. A refusal will not, and what was too long costs the most of all."""

_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)


def judged(request: Request, answer: Answer, attempt: int = 0) -> Result:
    """An answer checked against what its request wants."""
    text = answer.text or ""

    def rejected(reason: Reason, detail: str) -> Rejected:
        raw = answer.refusal or text
        return Rejected(request=request, reason=reason, detail=safe_text(detail), raw=raw, usage=answer)

    if answer.finish == "content_filter":
        return rejected(Reason.CONTENT_FILTER, "the server's filter held the answer back")
    if answer.refusal:
        return rejected(Reason.REFUSAL, "the teacher refused")
    if answer.finish == "length":
        return rejected(Reason.TRUNCATED, f"cut short after {answer.completion_tokens:,} tokens; raise max_tokens")
    if not text.strip():
        return rejected(Reason.EMPTY, f"no text (the answer ended with {answer.finish!r})")
    if request.schema is None:
        problem = _unwritable(text)
        if problem:
            return rejected(Reason.BROKEN_JSON, problem)
        return Accepted(request=request, text=text, value=None, usage=answer, attempt=attempt)
    fenced = _FENCED.fullmatch(text)  # teachers love to put JSON into a block of Markdown
    value = json_value(fenced[1] if fenced else text)
    if isinstance(value, Flaw):
        return rejected(Reason.BROKEN_JSON, value.problem)
    if problem := violation(value, request.schema):
        return rejected(Reason.SCHEMA, problem)
    return Accepted(request=request, text=text, value=value, usage=answer, attempt=attempt)


def _unwritable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"the lone surrogate {text[error.start]!a}, which no file can hold"
    return ""


def violation(value: Any, schema: Mapping[str, Any]) -> str:
    """Where and how a value departs from a JSON Schema (draft 2020-12); empty when it does not.

    Raises:
        ImportError: when jsonschema is not installed; it names the extra.
        ValueError: when the schema is none.
    """
    try:
        from jsonschema.exceptions import best_match
    except ImportError as error:
        raise ImportError(INSTALL) from error
    error: Any = best_match(_validator(json.dumps(schema, sort_keys=True)).iter_errors(value))
    return f"{error.json_path}: {error.message[:200]}" if error is not None else ""


def check_schema(schema: Mapping[str, Any] | None) -> None:
    """Refuse, before anything is paid for, a schema that no answer could be checked against; see `violation`."""
    if schema is not None:
        violation(None, schema)


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry

    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        raise ValueError(f"not a JSON Schema: {error.json_path}: {error.message[:200]}") from None
    return Draft202012Validator(json.loads(schema), registry=Registry())  # which fetches nothing from the net


_NOT_SENT = ("pattern", "minLength", "maxLength")
"""Some endpoints refuse these, and others take a pattern for the whole string. We check them in any case."""


def sent_schema(schema: Any, *, names: bool = False) -> Any:
    """The schema as the server gets it: without what servers refuse, or read in another way.

    Args:
        schema: a schema, or what stands in one.
        names: whether the keys of `schema` are names of properties, not words of the schema language.
    """
    if isinstance(schema, Mapping):
        return {
            key: sent_schema(item, names=not names and key in ("properties", "$defs"))
            for key, item in schema.items()
            if names or key not in _NOT_SENT
        }
    return [sent_schema(item) for item in schema] if isinstance(schema, list) else schema


def read_answer(content: bytes, request: Request) -> Answer | None:
    """The answer in a chat completion's body, or None when it is none: a proxy's page, or cut off."""
    try:
        body = json.loads(content)
        choice = body["choices"][0]
        message = choice["message"]
        text, refusal, finish = message.get("content"), message.get("refusal"), choice.get("finish_reason")
        usage, model = body.get("usage") or {}, body.get("model")
        counts: list[Any] = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if not all(item is None or isinstance(item, str) for item in (text, refusal, finish, model)):
        return None
    counted = all(type(count) is int and count >= 0 for count in counts)
    if not counted:
        counts = [estimated_prompt(request), estimated_tokens(text or "", refusal or "")]
    return Answer(
        text=text,
        refusal=refusal,
        finish=finish,
        prompt_tokens=counts[0],
        completion_tokens=counts[1],
        estimated=not counted,
        model=model,
    )
