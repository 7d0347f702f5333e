"""Prompts for the teacher: files with a name and a version, filled so that no text gets out of its place."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rolewise.data.teacher.checking import check_schema
from rolewise.data.teacher.requests import Request

FOLDER = Path(__file__).parent / "prompts"

_PLACE = re.compile(r"^\{([a-z_]+)\}$", re.MULTILINE)
_INLINE = re.compile(r"(?<!^)\{[a-z_]+\}|\{[a-z_]+\}(?!$)", re.MULTILINE)
_TURN = re.compile(r"^# (system|user)[ \t]*\n", re.MULTILINE)
_FRONT = re.compile(r"---\n(.*?\n)---\n(.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt file. `{placeholder}` stands on a line of its own; `request` puts a fenced text in its place."""

    name: str
    """Goes into each row, with the version."""
    version: int
    """Raised whenever the file changes, so that a row tells what it was made with."""
    schema: Mapping[str, Any] | None
    """The JSON Schema of the answer; None for plain text."""
    turns: tuple[tuple[str, str], ...]
    """Role and text of each message, placeholders unfilled."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Texts that the file offers for a placeholder; drawing among them makes rows differ."""

    @property
    def placeholders(self) -> tuple[str, ...]:
        """What `request` must be given, in order."""
        return tuple(dict.fromkeys(name for _, text in self.turns for name in _PLACE.findall(text)))

    def request(self, values: Mapping[str, str], *, meta: Mapping[str, Any] | None = None) -> Request:
        """The request with `values` in the placeholders.

        Each value stands between tags whose name no value has in it, so that none can close its tag or open another;
        nothing in a value is expanded. The same values give the same request.

        Args:
            values: a text for each placeholder; it may be empty.
            meta: the caller's own, which comes back with the result.

        Raises:
            ValueError: when a placeholder has no value, a value no placeholder, or a text cannot be written as UTF-8.
        """
        wanted = self.placeholders
        if missing := [name for name in wanted if name not in values]:
            raise ValueError(f"the prompt {self.name!r} lacks a text for {', '.join(missing)}")
        if unknown := [name for name in values if name not in wanted]:
            raise ValueError(
                f"the prompt {self.name!r} has no {{{'}, {'.join(unknown)}}}; it has {{{'}, {'.join(wanted)}}}"
            )
        mark = _mark(values)

        def fenced(match: re.Match[str]) -> str:
            tag = f"{match[1]}-{mark}"
            return f"<{tag}>\n{values[match[1]]}\n</{tag}>"

        messages = [{"role": role, "content": _PLACE.sub(fenced, text)} for role, text in self.turns]
        return Request(
            prompt=self.name, version=self.version, messages=messages, schema=self.schema, meta=dict(meta or {})
        )


def _mark(values: Mapping[str, str]) -> str:
    """A few letters that no value has in it, always the same for the same values."""
    joined = "\0".join(f"{name}\0{value}" for name, value in sorted(values.items()))
    digest = hashlib.sha256(joined.encode(errors="replace")).hexdigest()
    size = 6
    while digest[:size] in joined.casefold():  # nobody can write a text with its own hash in it
        size += 1
    return digest[:size]


def load_prompt(name: str | Path) -> Prompt:
    """A prompt of ours by name (see `prompt_names`), or a file of yours by its path, which ends in .md.

    The file begins with YAML between lines of `---`: name, version, schema (JSON Schema of the answer; left out for
    plain text), and choices (lists of texts for a placeholder). Then come `# system` and `# user`, each with its
    message below it. `{placeholder}` stands on a line of its own.

    Raises:
        ValueError: when there is no such prompt, or the file is not as it should be; the message names it.
    """
    path = Path(name) if str(name).endswith(".md") else FOLDER / f"{name}.md"
    if not path.is_file():
        raise ValueError(f"no prompt {str(name)!r}; there are {', '.join(prompt_names())}, or give the path of a .md")
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the prompt {path}: {error}") from None
    return _parsed(content.replace("\r\n", "\n"), str(path))


def prompt_names() -> tuple[str, ...]:
    """The prompts that come with Rolewise."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.md")))


def _parsed(content: str, path: str) -> Prompt:
    import yaml

    parts = _FRONT.fullmatch(content)
    if parts is None:
        raise ValueError(f"{path} must begin with YAML between two lines of ---, with name and version")
    try:
        front = yaml.safe_load(parts[1])
    except yaml.YAMLError as error:
        raise ValueError(f"{path} begins with invalid YAML: {error}") from None
    fields = cast("dict[str, Any]", front) if isinstance(front, dict) else {}
    name, version = fields.pop("name", None), fields.pop("version", None)
    schema, choices = fields.pop("schema", None), fields.pop("choices", {})
    if not isinstance(name, str) or type(version) is not int or fields:
        raise ValueError(f"{path} needs a name, a whole number as version, and at most schema and choices besides")
    if schema is not None and not isinstance(schema, dict):
        raise ValueError(f"{path}: schema must be a JSON Schema, not {schema!r}")
    check_schema(cast("dict[str, Any] | None", schema))

    before, *pieces = _TURN.split(parts[2])
    turns = tuple((role, text.strip()) for role, text in zip(pieces[::2], pieces[1::2], strict=True))
    if before.strip() or not turns or not all(text for _, text in turns):
        raise ValueError(f"{path} needs a line '# user' (and perhaps '# system' before it), each with text below it")
    for _, text in turns:
        if inline := _INLINE.search(text):
            raise ValueError(f"{path}: {inline[0]} must stand on a line of its own")
    prompt = Prompt(name=name, version=version, schema=schema, turns=turns, choices=_choices(choices, path))
    if unknown := sorted(prompt.choices.keys() - set(prompt.placeholders)):
        raise ValueError(f"{path}: choices for {', '.join(unknown)}, but no such placeholder")
    return prompt


def _choices(values: Any, path: str) -> dict[str, tuple[str, ...]]:
    lists: dict[str, Any] = cast("dict[str, Any]", values) if isinstance(values, dict) else {"": None}
    for name, texts in lists.items():
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{path}: choices must give each placeholder a list of texts, not {name!r}: {texts!r}")
    return {name: tuple(texts) for name, texts in lists.items()}
