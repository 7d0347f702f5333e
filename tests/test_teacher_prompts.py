"""Prompts for the teacher: no text gets out of its place, and a changed file has another version."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rolewise.data.teacher import Prompt, load_prompt, prompt, prompt_names
from rolewise.data.teacher.checking import sent_schema, violation

PINNED = {
    "ask": (1, "18cdfac6aeaf"),
    "conflict": (1, "b50ad42f3afb"),
    "decompose": (1, "a37693f914fc"),
    "extract": (1, "d8cc6efe2df8"),
    "override": (1, "3d2c316b46ea"),
    "regenerate": (1, "733ed47f4e24"),
}
"""Rows name the version that they were made with. Whoever changes a file raises its version, and pins it here."""

FRAGMENTS = ["{system}", "{user}", "{data}", "{nothing}", "{", "}", "{{system}}", "</system-", "<user-0123ab>", "\\1",
             "\\g<0>", "# system\n", "---\n", "\n", "\r\n", "```", "語", "x"]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(st.characters(exclude_categories=["Cs"])), max_size=6).map(
    "".join
)


def test_a_changed_prompt_has_another_version() -> None:
    found = {}
    for name in prompt_names():
        content = (prompt.FOLDER / f"{name}.md").read_text(encoding="utf-8")
        found[name] = (load_prompt(name).version, hashlib.sha256(content.encode()).hexdigest()[:12])
    assert found == PINNED


@settings(deadline=None)
@given(system=TEXTS, user=TEXTS, data=TEXTS)
@example(system="{user}", user="{data}", data="{system}")
def test_each_text_stands_once_in_its_place_and_cannot_leave_it(system: str, user: str, data: str) -> None:
    values = {"system": system, "user": user, "data": data}
    ours = load_prompt("regenerate")
    request = ours.request(values)
    assert request == ours.request(values)
    content = request.messages[1]["content"]
    marks = set(re.findall(r"\A.*?<system-([0-9a-f]+)>", content, re.DOTALL))
    (mark,) = marks
    assert mark not in system + user + data
    for name, value in values.items():
        assert content.count(f"<{name}-{mark}>") == content.count(f"</{name}-{mark}>") == 1
        assert f"<{name}-{mark}>\n{value}\n</{name}-{mark}>" in content
    for name, value in values.items():
        content = content.replace(f"<{name}-{mark}>\n{value}\n</{name}-{mark}>", f"{{{name}}}")
    assert content == ours.turns[1][1]  # nothing else has changed
    assert request.messages[0]["content"] == ours.turns[0][1]


def test_a_text_that_has_the_mark_in_it_gets_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant:
        def __init__(self, _: bytes) -> None: ...

        def hexdigest(self) -> str:
            return "abcdef0123456789"

    monkeypatch.setattr(prompt.hashlib, "sha256", Constant)
    request = load_prompt("decompose").request({"prompt": "</prompt-abcdef>\n</prompt-ABCDEF0>"})
    assert (
        "<prompt-abcdef01>\n</prompt-abcdef>\n</prompt-ABCDEF0>\n</prompt-abcdef01>" in request.messages[1]["content"]
    )


def test_a_missing_or_unknown_placeholder_is_refused() -> None:
    ours = load_prompt("extract")
    assert ours.placeholders == ("system", "manner")
    with pytest.raises(ValueError, match="'extract' lacks a text for manner"):
        ours.request({"system": "x"})
    with pytest.raises(ValueError, match=r"has no \{topic\}; it has \{system\}, \{manner\}"):
        ours.request({"system": "x", "manner": "y", "topic": "z"})
    with pytest.raises(ValueError, match="cannot be sent"):
        ours.request({"system": "\ud800", "manner": "y"})


@pytest.mark.parametrize("name", ["ask", "conflict", "decompose", "extract", "override", "regenerate"])
def test_our_prompts_say_what_the_schema_wants_and_check_it(name: str) -> None:
    ours = load_prompt(name)
    assert ours.name == name
    assert [role for role, _ in ours.turns] == ["system", "user"]
    request = ours.request(dict.fromkeys(ours.placeholders, "text"), meta={"id": 1})
    assert (request.prompt, request.version, request.meta) == (name, ours.version, {"id": 1})
    if name == "regenerate":
        assert ours.schema is None
        return
    assert ours.schema is not None
    fields = list(ours.schema["properties"])
    assert all(f'- "{field}":' in ours.turns[0][1] for field in fields)
    good = dict.fromkeys(fields, "a text")
    assert not violation(good, ours.schema)
    for field in fields:
        assert violation({key: value for key, value in good.items() if key != field}, ours.schema)
        assert bool(violation({**good, field: " \n"}, ours.schema)) is (field != "data")
        assert violation({**good, field: 3}, ours.schema)
    assert violation({**good, "more": "x"}, ours.schema)
    assert violation([good], ours.schema)
    # What strict endpoints demand: every property required, no further ones, no patterns.
    sent = sent_schema(ours.schema)
    assert sent["required"] == fields == list(sent["properties"])
    assert sent["additionalProperties"] is False
    assert "pattern" not in str(sent)


GOOD = "---\nname: mine\nversion: 3\n---\n# system\nBe kind.\n# user\nLook:\n{text}\n"


def test_a_prompt_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.md"
    file.write_bytes(GOOD.replace("\n", "\r\n").encode())
    mine = load_prompt(file)
    assert mine == Prompt(
        name="mine", version=3, schema=None, turns=(("system", "Be kind."), ("user", "Look:\n{text}"))
    )
    assert load_prompt(str(file)) == mine


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("---\nname", "name"), "must begin with YAML"),
        (("name: mine", "name: [mine"), "invalid YAML"),
        (("version: 3", "version: 3.5"), "whole number"),
        (("version: 3", "version: 3\nmodel: x"), "at most schema and choices"),
        (("version: 3", "version: 3\nschema: 7"), "must be a JSON Schema"),
        (("version: 3", "version: 3\nschema: {type: strange}"), "not a JSON Schema"),
        (("version: 3", "version: 3\nchoices: {text: []}"), "list of texts"),
        (("version: 3", "version: 3\nchoices: {other: [a]}"), "no such placeholder"),
        (("# user\nLook:\n{text}\n", "# user\n"), "text below it"),
        (("# system\nBe kind.\n# user\n", ""), "# user"),
        (("Look:\n{text}", "Look at {text}"), "line of its own"),
        (("Look:\n{text}", "Look:\n{text} here"), "line of its own"),
    ],
)
def test_a_prompt_file_that_is_wrong_is_refused_by_name(change: tuple[str, str], problem: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.md"
    file.write_text(GOOD.replace(*change))
    with pytest.raises(ValueError, match=problem):
        load_prompt(file)


def test_an_unknown_prompt_names_those_that_there_are(tmp_path: Path) -> None:
    wrong: Any
    for wrong in ("decomposed", tmp_path / "none.md", ""):
        with pytest.raises(ValueError, match="ask, conflict, decompose"):
            load_prompt(wrong)
