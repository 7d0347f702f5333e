"""No content changes a token or a role outside itself, nor yields a control token: on every template that TRL ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolewise.rendering import Encoding, control_token_ids, render
from rolewise.roles import Role
from tests.chat import byte_level_tokenizer, smollm2_tokenizer, template_names, template_tokenizer
from tests.training_model import TEMPLATE

NAMES = ["smollm2", *template_names()]
PROFILE = settings(
    max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
NASTY = [
    "<|im_end|>", "<|im_start|>system\n", "<|eot_id|>", "<end_of_turn>", "</s>", "<bos>", "<eos>", "[/INST]",
    "<think>", "</think>", "\n</think>\n\n", "<tool_response>", "</tool_response>", "<|channel|>final", "/no_think",
    "user\n", "assistant", "### response:", "{{ messages }}", "{% raise %}", "{#", "\\n", '"', "'", "</nothink>",
    "\ue000", "\ue000000001\ue001x\ue002", "\ue002", "\ue003", "\uf8ff",
    "\U000f0000", "日本語", "עברית", "👩‍👩‍👧", "e\u0301",
    "\x00", "\u200b", "\ufeff", "\u2028", "\u3000", " ", "  ", "\n", "\t", "\r\n", "＜|im_end|＞", "x", "hello world",
]  # fmt: skip
CONTENT = st.lists(st.sampled_from(NASTY) | st.text(max_size=5), min_size=1, max_size=5).map("".join)


def tokenizer_of(name: str) -> Any:
    return smollm2_tokenizer() if name == "smollm2" else template_tokenizer(name)


def chat(slot: str, content: str, system: bool) -> list[dict[str, Any]]:
    texts = {"system": "S.", "user": "U?", "data": "D.", "assistant": "A.", "again": "V?"} | {slot: content}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": texts["user"]},
        {"role": "data", "content": texts["data"]},
        {"role": "assistant", "content": texts["assistant"]},
        {"role": "user", "content": [{"type": "text", "text": texts["again"]}, {"type": "data", "text": "E"}]},
    ]
    return ([{"role": "system", "content": texts["system"]}] if system else []) + messages


def takes_system(name: str) -> bool:
    try:
        render(tokenizer_of(name), [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])
    except ValueError:
        return False
    return True


def surroundings(one: Encoding, two: Encoding) -> tuple[int, int]:
    """How many tokens before and after the differing content the two encodings share."""
    before = next(i for i, (a, b) in enumerate(zip(one.input_ids, two.input_ids, strict=False)) if a != b)
    after = next(i for i, (a, b) in enumerate(zip(one.input_ids[::-1], two.input_ids[::-1], strict=False)) if a != b)
    return before, after


def check_inside(tokenizer: Any, plain: Encoding, other: Encoding, found: Encoding, role: Role) -> None:
    """`found` differs from `plain` and `other` inside one content only, and there holds no control token."""
    before, after = surroundings(plain, other)
    end = len(found.input_ids) - after
    assert before <= end
    for field in ("input_ids", "segment_ids", "loss_mask"):
        got, want = getattr(found, field), getattr(plain, field)
        assert got[:before] == want[:before], field
        assert got[end:] == want[len(want) - after :], field
    assert set(found.segment_ids[before:end]) <= {int(role)}
    assert control_token_ids(tokenizer).isdisjoint(found.input_ids[before:end])


SLOTS = {"system": Role.SYSTEM, "user": Role.USER, "data": Role.DATA, "assistant": Role.OUTPUT, "again": Role.USER}


@pytest.mark.parametrize("name", NAMES)
def test_content_changes_nothing_outside_itself(name: str) -> None:
    tokenizer = tokenizer_of(name)
    system = takes_system(name)
    plain = {slot: render(tokenizer, chat(slot, "qqq", system)) for slot in SLOTS}
    other = {slot: render(tokenizer, chat(slot, "zz", system)) for slot in SLOTS}

    @PROFILE
    @given(slot=st.sampled_from([slot for slot in SLOTS if system or slot != "system"]), content=CONTENT)
    def check(slot: str, content: str) -> None:
        try:
            found = render(tokenizer, chat(slot, content, system))
        except ValueError as error:
            # A template may leave an empty message out; then it is refused by name.
            if content.strip() or "leaves no text in the rendering" not in str(error):
                raise
            return
        assert len(found.input_ids) == len(found.segment_ids) == len(found.loss_mask)
        alone = tokenizer.encode(content, add_special_tokens=False, split_special_tokens=True)
        if tokenizer.decode(alone, clean_up_tokenization_spaces=False) == content:  # SmolLM2 lacks some bytes
            assert tokenizer.decode(found.input_ids, clean_up_tokenization_spaces=False) == found.text
        if content.strip():
            check_inside(tokenizer, plain[slot], other[slot], found, SLOTS[slot])
            assert content.strip() in found.text
        else:
            # A template may leave an empty message out, but the others keep their roles.
            kept = {role for other_slot, role in SLOTS.items() if other_slot != slot} - {Role.SYSTEM}
            assert kept <= set(found.segment_ids)

    check()


TOOL_SLOTS = ("description", "name", "parameter", "parameter description", "argument", "key", "result", "id")


def tool_chat(slot: str, text: str) -> dict[str, Any]:
    texts = {"description": "Look.", "name": "look", "parameter": "city", "parameter description": "The city."}
    texts |= {"argument": "Rome", "key": "city", "result": "Fine.", "id": "call00001"}
    texts[slot] = text
    schema = {
        "type": "object",
        "properties": {texts["parameter"]: {"type": "string", "description": texts["parameter description"]}},
        "required": [texts["parameter"]],
    }
    call = {"name": texts["name"], "arguments": {texts["key"]: texts["argument"]}}
    function = {"name": texts["name"], "description": texts["description"], "parameters": schema}
    return {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "tool_calls": [{"id": texts["id"], "type": "function", "function": call}]},
            {"role": "tool", "name": texts["name"], "tool_call_id": texts["id"], "content": texts["result"]},
            {"role": "assistant", "content": "Good."},
        ],
        "tools": [{"type": "function", "function": function}],
    }


def parallel_chat(slot: str, text: str) -> dict[str, Any]:
    """Two calls in one message, and their results."""
    texts = {"first argument": "Rome", "second argument": "Oslo", "first result": "Fine.", "second result": "Cold."}
    texts[slot] = text
    functions = [{"name": "look", "arguments": {"city": texts[f"{which} argument"]}} for which in ("first", "second")]
    results = [(f"call0000{n}", texts[f"{which} result"]) for n, which in enumerate(("first", "second"))]
    return tool_chat("id", "call00001") | {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": f"call0000{n}", "type": "function", "function": function}
                    for n, function in enumerate(functions)
                ],
            },
            *({"role": "tool", "name": "look", "tool_call_id": call, "content": text} for call, text in results),
            {"role": "assistant", "content": "Good."},
        ]
    }


PARALLEL_SLOTS = ("first argument", "second argument", "first result", "second result")
WHITE_SPACE = st.text(" \n\t\r\u3000", min_size=1, max_size=4)


def skeleton(tokenizer: Any, encoding: Encoding) -> list[tuple[int, int, int]]:
    """The control tokens in a rendering, each with its segment and whether it is trained."""
    control = control_token_ids(tokenizer)
    columns = zip(encoding.input_ids, encoding.segment_ids, encoding.loss_mask, strict=True)
    return [column for column in columns if column[0] in control]


@pytest.mark.parametrize("build", [tool_chat, parallel_chat])
@pytest.mark.parametrize("name", NAMES)
def test_tools_change_no_role_and_yield_no_control_token(
    name: str, build: Callable[[str, str], dict[str, Any]]
) -> None:
    tokenizer = tokenizer_of(name)
    slots = TOOL_SLOTS if build is tool_chat else PARALLEL_SLOTS
    try:
        plain = render(tokenizer, **build(slots[-1], "call00001"))
    except ValueError as error:
        pytest.skip(f"no tools: {error}")
    want = skeleton(tokenizer, plain)

    @PROFILE
    @given(slot=st.sampled_from(slots), content=CONTENT | WHITE_SPACE)
    def check(slot: str, content: str) -> None:
        try:
            found = render(tokenizer, **build(slot, content))
        except ValueError as error:
            # A template may escape some of the white space at an edge; then nobody could tell whose it is.
            if "rewrites the white space" not in str(error) or content.strip() == content:
                raise
            return
        assert skeleton(tokenizer, found) == want
        assert tokenizer.decode(found.input_ids, clean_up_tokenization_spaces=False) == found.text

    check()


DOCUMENT_TEMPLATES = [  # no template that TRL ships renders documents: as Granite and as Command R do
    "{% for document in documents or [] %}<|im_start|>document {{ document['title'] }}\n{{ document['text'] }}"
    "<|im_end|>\n{% endfor %}",
    "{% if documents %}<|im_start|>system\n{% for document in documents %}{{ document | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}",
]


@pytest.mark.parametrize("source", DOCUMENT_TEMPLATES, ids=["frames", "json"])
def test_documents_are_data_and_change_nothing_outside_themselves(source: str) -> None:
    tokenizer = byte_level_tokenizer(("<|im_start|>", "<|im_end|>"), source + TEMPLATE)

    def encoded(number: int, key: str, text: str) -> Encoding:
        documents = [{"title": "T", "text": "One."}, {"title": "U", "text": "Two."}]
        documents[number][key] = text
        return render(tokenizer, [{"role": "user", "content": "Ask."}], documents=documents, add_generation_prompt=True)

    want = skeleton(tokenizer, encoded(0, "title", "T"))

    @PROFILE
    @given(number=st.integers(0, 1), key=st.sampled_from(["title", "text"]), content=CONTENT | WHITE_SPACE)
    def check(number: int, key: str, content: str) -> None:
        found = encoded(number, key, content)
        assert skeleton(tokenizer, found) == want
        assert tokenizer.decode(found.input_ids, clean_up_tokenization_spaces=False) == found.text
        data = [token for token, row in zip(found.input_ids, found.segment_ids, strict=True) if row == Role.DATA]
        said = tokenizer.decode(data, clean_up_tokenization_spaces=False)
        written = content if source == DOCUMENT_TEMPLATES[0] else json.dumps(content, ensure_ascii=False)[1:-1]
        assert written.strip() in said
        assert "Ask.<|im_end|>" not in said

    check()


def test_lone_surrogates_are_refused() -> None:
    tokenizer = template_tokenizer("qwen3")
    with pytest.raises(ValueError, match=r"messages\[0\].*lone surrogate.*character 2"):
        render(tokenizer, [{"role": "user", "content": "ab\ud800"}])
    with pytest.raises(ValueError, match=r"tools.*lone surrogate"):
        render(tokenizer, [{"role": "user", "content": "a"}], tools=[{"name": "x\udfff"}])
