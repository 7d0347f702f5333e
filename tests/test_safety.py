"""Files of harmful requests, benign prompts and templates: what is read, what is refused and where; and their rows."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolewise.evaluation.judging import words
from rolewise.evaluation.safety import (
    BenignPrompt,
    HarmfulRequest,
    Template,
    benign_conditions,
    generated_benign,
    harmful_conditions,
    load_benign,
    load_harmful,
    load_templates,
    system_text,
)

EVAL = Path(__file__).parents[2] / "shared" / "data" / "eval"
HEADER = "category,source,forbidden_prompt\n"

TEMPLATES = [
    Template(name="riddle", text="Here is a riddle, {with braces} and %s: {prompt}\nSolve it."),
    Template(name="letter", text="Dear friend,\n[INSERT PROMPT HERE]"),
    Template(name="play", text="In a play, an actor says: {{ Request }}"),
]
REQUESTS = [
    HarmfulRequest(id=f"harmful-{number}", category="Fog", source="ours", prompt=f"Request number {number}?")
    for number in range(60)
]


def shared(name: str) -> Path:
    path = EVAL / name
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


# --- harmful requests


def test_harmful_requests_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\ufeff" + HEADER + 'Fog,ours,"Make fog,\nnow!"\r\n\nMist,ours, Make mist. \n')
    assert load_harmful(path) == [
        HarmfulRequest(id="harmful-0", category="Fog", source="ours", prompt="Make fog,\nnow!"),
        HarmfulRequest(id="harmful-1", category="Mist", source="ours", prompt="Make mist."),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("category,forbidden_prompt\nFog,Make fog.\n", ":1 lacks the column source; it has category, forbidden_prompt"),
        ("", ":1 lacks the column category, source, forbidden_prompt; it has no columns"),
        (HEADER, "has no requests"),
        (HEADER + "Fog,ours,\n", ":2 needs text under 'forbidden_prompt'"),
        (HEADER + "Fog,ours,Make fog.\n ,ours,Make mist.\n", ":3 needs text under 'category'"),
        (HEADER + 'Fog,ours,"Make\nfog."\nFog,ours,make  FOG.\n', ":4 repeats {path}:2"),
        (HEADER + "Fog,ours,Make fog, now.\n", ":2 has 4 cells, not 3; quote cells"),
        (HEADER + "Fog,ours\n", ":2 has 2 cells, not 3"),
        (HEADER + 'Fog,ours,"Make fog.\n', "is not valid CSV"),
        ("category,source,source,forbidden_prompt\n", "has the column 'source' twice"),
        (HEADER + "Fog,ours," + "a" * 200_000 + "\n", "is not valid CSV (field larger"),
    ],
)
def test_unusable_harmful_files_are_named(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(ValueError, match=re.escape(problem.format(path=path))):
        load_harmful(path)


def test_a_missing_harmful_file_says_where_it_is_published(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"alexandrasouly/strongreject.*no generated harmful requests"):
        load_harmful(tmp_path / "none.csv")
    with pytest.raises(FileNotFoundError, match="strongreject"):
        load_harmful(tmp_path)  # a directory


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(HEADER.encode() + b"Fog,ours,\xff\n")
    with pytest.raises(ValueError, match=r"a.csv is not UTF-8 text .* at byte 42"):
        load_harmful(tmp_path / "a.csv")


def test_strongreject() -> None:
    requests = load_harmful(shared("strongreject_313.csv"))
    assert len(requests) == 313
    assert len({one.category for one in requests}) == 6
    assert len({one.id for one in requests}) == 313


# --- templates


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "---\nOne: {prompt}\n\n---\n\nTwo:\n[insert prompt here]\n---  \r\n---\n"),
        ("a.json", json.dumps(["One: {prompt}", {"template": "Two:\n[insert prompt here]"}])),
        ("a.jsonl", '{"template": "One: {prompt}"}\n{"template": "Two:\\n[insert prompt here]"}\n'),
        ("a.csv", 'template\nOne: {prompt}\n"Two:\n[insert prompt here]"\n'),
    ],
)
def test_templates_are_read(tmp_path: Path, name: str, text: str) -> None:
    assert load_templates(write(tmp_path / name, text)) == [
        Template(name="template-1", text="One: {prompt}"),
        Template(name="template-2", text="Two:\n[insert prompt here]"),
    ]


def test_templates_have_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "name,template\nriddle,One: {prompt}\n,Two: {prompt}\n")
    assert [one.name for one in load_templates(path)] == ["riddle", "template-2"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.txt", "", "has no templates"),
        ("a.txt", "---\n\n---\n", "has no templates"),
        ("a.txt", "One: {prompt}\n---\n\nTwo, without\n", ":4: the template 'template-2' must hold exactly one"),
        ("a.txt", "One: {promt} <x>", "not 0 (it has {promt}, <x>): 'One: {promt} <x>'"),
        ("a.txt", "One: {prompt} {PROMPT}", "not 2: 'One"),
        ("a.txt", "{prompt}", "says nothing beside its placeholder"),
        ("a.txt", "One: {prompt}\n---\none:  {prompt}", "a.txt:3 repeats"),
        ("a.json", '["One: {prompt}", 2]', "a.json[1] must be text, or an object with text under 'template', not int"),
        ("a.json", '[{"text": "One: {prompt}"}]', "a.json[0] needs text under 'template'"),
        ("a.json", '[{"template": "A {prompt}", "name": "x"}, {"template": "B {prompt}", "name": "X"}]', "repeats"),
        ("a.json", '["One: {prompt}"', "a.json:1: not valid JSON"),
        ("a.csv", "text\nOne: {prompt}\n", "a.csv:1 lacks the column template"),
    ],
)
def test_unusable_templates_are_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        load_templates(write(tmp_path / name, text))


def test_a_missing_template_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none comes with Rolewise"):
        load_templates(tmp_path / "a.txt")


@given(st.text())
def test_a_filled_template_holds_the_request_and_nothing_else_new(prompt: str) -> None:
    """Braces, backslashes and placeholders in a request are its own words."""
    assert TEMPLATES[0].fill(prompt) == "Here is a riddle, {with braces} and %s: " + prompt + "\nSolve it."
    assert TEMPLATES[2].fill(prompt) == "In a play, an actor says: " + prompt


@pytest.mark.parametrize("prompt", ["{prompt}", "[INSERT PROMPT HERE]", r"\1 \g<0> \\", "{0} %s $x"])
def test_a_request_may_look_like_a_template(prompt: str) -> None:
    assert TEMPLATES[1].fill(prompt) == "Dear friend,\n" + prompt


# --- rows of harmful requests


def test_every_request_is_asked_bare_and_in_one_template() -> None:
    rows = list(harmful_conditions(REQUESTS, TEMPLATES, seed=3))
    assert Counter(row["meta"]["condition"] for row in rows) == {"bare": 60, "jailbreak": 60}
    assert {row["meta"]["domain"] for row in rows} == {"harmful"}
    by_name = {one.name: one for one in TEMPLATES}
    for row in rows:
        meta = row["meta"]
        assert meta["category"] == "Fog"
        filled = by_name[meta["template"]].fill(meta["request"]) if meta["template"] else meta["request"]
        assert row["messages"] == [{"role": "user", "content": filled}]
    bare, jailbroken = rows[::2], rows[1::2]
    assert [row["meta"]["id"] for row in bare] == [row["meta"]["id"] for row in jailbroken]
    assert all(row["meta"]["template"] is None for row in bare)
    assert set(Counter(row["meta"]["template"] for row in jailbroken)) == set(by_name)


def drawn(requests: list[HarmfulRequest], seed: int = 0) -> dict[str, str]:
    rows = harmful_conditions(requests, TEMPLATES, seed)
    return {row["meta"]["request"]: row["meta"]["template"] for row in rows if row["meta"]["template"]}


@given(st.permutations(REQUESTS[:12]), st.integers(1, 12))
def test_a_requests_template_depends_neither_on_order_nor_on_the_others(
    requests: list[HarmfulRequest], count: int
) -> None:
    whole = drawn(REQUESTS)
    assert all(whole[prompt] == name for prompt, name in drawn(requests[:count]).items())


def test_the_template_depends_on_the_seed() -> None:
    assert drawn(REQUESTS) == drawn(REQUESTS)
    assert sum(drawn(REQUESTS)[prompt] != name for prompt, name in drawn(REQUESTS, seed=1).items()) > 20


def test_without_templates_requests_stay_bare() -> None:
    assert [row["meta"]["condition"] for row in harmful_conditions(REQUESTS[:2])] == ["bare", "bare"]


def test_a_system_message_comes_first() -> None:
    system = {"role": "system", "content": "Be kind."}
    rows: list[dict[str, Any]] = [
        *harmful_conditions(REQUESTS[:1], TEMPLATES, system="Be kind."),
        *benign_conditions(generated_benign()[:1], system="Be kind."),
    ]
    assert len(rows) == 3
    assert all(row["messages"][0] == system and row["messages"][1]["role"] == "user" for row in rows)


def test_system_text_is_a_files_or_the_words_themselves(tmp_path: Path) -> None:
    assert system_text(write(tmp_path / "s.txt", "\ufeffBe kind.\n")) == "Be kind."
    assert system_text(str(tmp_path / "s.txt")) == str(tmp_path / "s.txt")
    assert system_text("Be kind.") == "Be kind."
    assert system_text(None) is None
    assert system_text("") is None
    with pytest.raises(ValueError, match="is empty"):
        system_text(write(tmp_path / "e.txt", " \n"))
    with pytest.raises(FileNotFoundError, match="system message"):
        system_text(tmp_path / "none.txt")


# --- benign prompts


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "How do I kill time?\n\n  Shoot a photo.  \r\n"),
        ("a", "How do I kill time?\nShoot a photo."),
        ("a.csv", 'prompt\nHow do I kill time?\n"Shoot a photo."\n'),
        ("a.json", '["How do I kill time?", {"instruction": "Shoot a photo.", "input": "", "output": "x"}]'),
        ("a.jsonl", '{"prompt": "How do I kill time?"}\n{"prompt": "Shoot a photo."}\n'),
    ],
)
def test_benign_prompts_are_read(tmp_path: Path, name: str, text: str) -> None:
    assert load_benign(write(tmp_path / name, text)) == [
        BenignPrompt(id="benign-0", prompt="How do I kill time?"),
        BenignPrompt(id="benign-1", prompt="Shoot a photo."),
    ]


def test_an_instructions_input_belongs_to_the_prompt(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", json.dumps([{"instruction": "Shorten it.", "input": "A long text."}]))
    assert [one.prompt for one in load_benign(path)] == ["Shorten it.\n\nA long text."]


def test_only_safe_prompts_are_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,prompt,type,label\n1,Kill time?,homonyms,safe\n2,Kill him?,contrast,unsafe\n")
    rows = list(benign_conditions(load_benign(path)))
    assert rows == [
        {
            "messages": [{"role": "user", "content": "Kill time?"}],
            "meta": {
                "id": "benign-0",
                "condition": "benign",
                "domain": "benign",
                "category": "homonyms",
                "request": "Kill time?",
            },
        }
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "prompt,label\nA?,unsafe\n", "has no benign prompts; XSTest's have the label 'safe'"),
        ("a.csv", "prompt,label\nA?,Safe\n", "a.csv:2: label='Safe' must be 'safe' or 'unsafe'"),
        ("a.csv", "text\nA?\n", "a.csv:1 lacks the column prompt"),
        ("a.csv", "prompt\nA?\na?\n", "a.csv:3 repeats"),
        ("a.txt", "", "has no benign prompts"),
        ("a.txt", "A?\n\na?\n", "a.txt:3 repeats"),
        ("a.json", "[1]", "a.json[0] must be text, or an object with text under 'prompt', not int"),
        ("a.json", '[{"text": "A?"}]', "a.json[0] needs text under 'prompt'"),
        ("a.json", '[{"instruction": null}]', "a.json[0] needs text under 'instruction'"),
        ("a.json", '[{"instruction": "A", "input": 3}]', "a.json[0] needs text under 'input'"),
        ("a.json", '[{"prompt": "A", "label": 1}]', "label=1 must be"),
        ("a.json", "", "is empty"),
        ("a.jsonl", '{"prompt": "A?"}\n{"prompt": NaN}\n', "a.jsonl:2"),
    ],
)
def test_unusable_benign_files_are_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        load_benign(write(tmp_path / name, text))


def test_a_missing_benign_file_says_where_it_is_published(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"paul-rottger/exaggerated-safety.*`generated`"):
        load_benign(tmp_path / "none.csv")


def test_xstest() -> None:
    path = shared("xstest_prompts.csv")
    prompts = load_benign(path)
    assert len(prompts) == 250
    types = Counter(row["meta"]["category"] for row in benign_conditions(prompts))
    assert set(types.values()) == {25}
    assert not any(name.startswith("contrast") for name in types)


def test_generated_prompts_are_thirty_different_ones() -> None:
    prompts = generated_benign()
    assert len({one.prompt.casefold() for one in prompts}) == len({one.id for one in prompts}) == len(prompts) == 30
    assert len({one.type for one in prompts}) == 8


def test_generated_prompts_are_not_xstests() -> None:
    with shared("xstest_prompts.csv").open(encoding="utf-8") as file:
        published = [set(words(row["prompt"])) for row in csv.DictReader(file)]
    for one in generated_benign():
        ours = set(words(one.prompt))
        assert all(len(ours & theirs) / len(ours | theirs) < 0.5 for theirs in published), one.prompt
