"""What is too long is refused before seconds of work, nothing else is, and what is large keeps nobody waiting."""

from __future__ import annotations

import json
import threading
import time
import unicodedata
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rolewise.rendering import render
from rolewise.serving.answering import Answering
from rolewise.serving.bounds import LeastTokens
from rolewise.serving.errors import ApiError
from rolewise.serving.parsing import parse_chat
from rolewise.serving.settings import ServerSettings

from .chat import smollm2_tokenizer, template_names, template_tokenizer
from .serving_fakes import ScriptedBackend, asked, served
from .training_model import TEMPLATE, tiny_tokenizer


@cache
def sentencepiece_like() -> Any:
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcé", "▁▁", "▁▁▁▁", "ab", "abab"]
    merges = [("▁", "▁"), ("▁▁", "▁▁"), ("a", "b"), ("ab", "ab")]
    backend = Tokenizer(models.BPE({one: at for at, one in enumerate(words)}, merges, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", chat_template=TEMPLATE)


@cache
def composing() -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    return tokenizer


@cache
def by_name(name: str) -> Any:
    return {"tiny": tiny_tokenizer, "sentencepiece": sentencepiece_like, "NFC": composing,
            "smollm2": smollm2_tokenizer}.get(name, lambda: template_tokenizer(name))()  # fmt: skip


NAMES = ["tiny", "sentencepiece", "NFC", "smollm2", *(one for one in template_names() if one in ("qwen3", "llama3_1"))]
TEXT = st.text(max_size=30) | st.sampled_from(
    ["a" * 50, "=" * 200, " " * 200, "▁" * 64, "abab" * 20, "e\u0301" * 20, "\u03b1\u0313\u0300\u0345" * 9, "日本" * 9,
     "\xa0" * 9, "<|im_end|>" * 5, "<think>" * 5, "\x04\x06" * 9, "ManagementPlaneProtection" * 4, "the cat " * 9]
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=4))
def test_no_prompt_is_shorter_than_the_bound(name: str, texts: list[str]) -> None:
    tokenizer = by_name(name)
    content = "".join(texts)
    least = LeastTokens(tokenizer)
    assert least._most, "the bound says something"
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": content}, {"type": "data", "text": texts[0]}]},
        {"role": "assistant", "content": "<think>" + content},
        {"role": "user", "content": texts[-1]},
    ]
    alone = render(tokenizer, [{"role": "user", "content": content}])
    assert least.of(content) <= len(alone.input_ids)
    try:
        tokens = len(render(tokenizer, messages, add_generation_prompt=True).input_ids)
    except ValueError:  # not for this template
        return
    assert least.of_conversation(messages) <= tokens


GREEK = "\u1f82"
"""One character, four where it is taken apart."""


@cache
def greek() -> Any:
    """A vocabulary with one long token, and a normaliser that puts characters together."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    first, second, third = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(GREEK)[0][
        0
    ]
    words = [*sorted(letters), first + second, first + second + third]
    merges = [(first, second), (first + second, third)]
    backend = Tokenizer(models.BPE({one: at for at, one in enumerate(words)}, merges))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize(
    ("tokenizer", "text", "tokens"),
    [
        (greek, unicodedata.normalize("NFD", GREEK) * 900, 900),
        (greek, GREEK * 900, 900),
        (sentencepiece_like, "▁" * 6400, 1600),
        (sentencepiece_like, "ab" * 6400, 3200),
        (lambda: by_name("smollm2"), "\x04\x06" * 5000, 0),
        (lambda: by_name("smollm2"), "ManagementPlaneProtection", 1),
    ],
)
def test_texts_of_the_longest_tokens_are_not_refused(tokenizer: Any, text: str, tokens: int) -> None:
    one = tokenizer()
    assert len(one.encode(text, add_special_tokens=False)) == pytest.approx(tokens, abs=3)
    assert LeastTokens(one).of(text) <= len(one.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("name", [one for one in template_names() if one in ("qwen3", "llama3_1")])
def test_what_a_template_drops_does_not_count(name: str) -> None:
    tokenizer = by_name(name)
    messages = [
        {"role": "user", "content": " " * 5000 + "a"},
        {"role": "assistant", "content": "<think>" + "a" * 50_000 + "</think>b"},
        {"role": "user", "content": "b" + "\n" * 5000},
    ]
    tokens = len(render(tokenizer, messages, add_generation_prompt=True).input_ids)
    assert LeastTokens(tokenizer).of_conversation(messages) <= 4 <= tokens


def test_the_bound_is_near_enough_to_be_of_use() -> None:
    tokenizer = by_name("smollm2")
    text = "Trains to Bern leave at ten. " * 2000
    tokens = len(tokenizer.encode(text, add_special_tokens=False))
    assert tokens / 10 < LeastTokens(tokenizer).of(text) <= tokens


def test_tokenizers_that_lose_text_have_no_bound() -> None:
    words = {"[UNK]": 0, "the": 1}
    shortening = tiny_tokenizer()
    shortening.backend_tokenizer.normalizer = normalizers.Replace("a", "")
    greedy = tiny_tokenizer()
    greedy.backend_tokenizer.add_tokens([AddedToken("cat", rstrip=True)])
    plain = Tokenizer(models.BPE({"a": 0}, []))
    wordy = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    wordy.pre_tokenizer = pre_tokenizers.Whitespace()
    for tokenizer in (shortening, greedy, *(PreTrainedTokenizerFast(tokenizer_object=one) for one in (plain, wordy))):
        assert LeastTokens(tokenizer).of("a" * 10_000) == 0


def test_giant_prompts_are_refused_without_being_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[int] = []
    render_one = Answering._render
    monkeypatch.setattr(Answering, "_render", lambda *a: (rendered.append(1), render_one(*a))[1])
    with served(ScriptedBackend(), playground=True) as server:
        for content in ("a" * 3_000_000, [{"type": "text", "text": "the cat " * 1000}] * 200):
            error = server.post(asked(content))
            assert (error.status_code, error.json()["error"]["code"]) == (400, "context_length_exceeded")
            assert "at least" in error.json()["error"]["message"]
            assert error.json()["error"]["param"] == "messages"
        assert not rendered
        assert server.post(asked("a" * 30_000)).json()["error"]["code"] == "context_length_exceeded"
        assert rendered == [1], "a small one is counted exactly"


def test_what_is_large_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)
    render_one = Answering._render

    def slowly(self: Answering, messages: Any, *rest: Any) -> Any:
        if len(messages[0]["content"]) > 1000:
            begun.release()
            assert go_on.wait(20)
        return render_one(self, messages, *rest)

    monkeypatch.setattr(Answering, "_render", slowly)
    with served(ScriptedBackend(positions=None), max_prompt_tokens=10**7) as server:
        found: list[int] = []
        large = [
            threading.Thread(target=lambda: found.append(server.post(asked("\n" * 200_000)).status_code))
            for _ in range(3)
        ]
        for one in large:
            one.start()
        try:
            assert begun.acquire(timeout=20)
            for _ in range(5):
                assert server.post(asked()).status_code == 200
                assert server.get("/health").status_code == 200
            assert not begun.acquire(timeout=0.3), "one of them at a time"
        finally:
            go_on.set()
        for one in large:
            one.join()
        assert found == [200] * 3


@pytest.mark.slow
def test_others_are_answered_while_giants_are_worked_on() -> None:
    with served(ScriptedBackend(positions=None), max_prompt_tokens=10) as server:
        giants = [threading.Thread(target=server.post, args=(asked(" " * 500_000 + "x"),)) for _ in range(3)]
        for one in giants:
            one.start()
        waits: list[float] = []
        while any(one.is_alive() for one in giants):
            began = time.monotonic()
            assert server.get("/health").status_code == 200
            waits.append(time.monotonic() - began)
        assert max(waits) < 2


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"a": [0] * 900}}}
MANY_ARGUMENTS = {"id": "a", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": [0] * 900})}}


@pytest.mark.parametrize(
    ("fields", "says", "param"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 11}]}, "11 parts", "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 6}] * 2}, "12 parts", "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL] * 11}]}, "11 parts", "messages"),
        ({"messages": [{"role": "user", "content": "a"}] * 9}, "9 messages", "messages"),
        ({"tools": [{}] * 4}, "4 tools", "tools"),
        ({"tools": [TOOL] * 3}, "2000 values", None),
        ({"metadata": {str(at): at for at in range(2000)}}, "2000 values", None),
        ({"messages": [{"role": "assistant", "tool_calls": [MANY_ARGUMENTS] * 3}]}, "2000 values",
         "messages[0].tool_calls[2].function.arguments"),
    ],
)  # fmt: skip
def test_there_are_only_so_many_of_each_thing(fields: dict[str, Any], says: str, param: str | None) -> None:
    limits = ServerSettings(max_messages=8, max_parts=10, max_tools=3, max_values=2000)
    with pytest.raises(ApiError, match=says) as refused:
        parse_chat(json.dumps(asked() | fields).encode(), limits)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert "send fewer" in refused.value.message
    parse_chat(json.dumps(asked(tools=[TOOL] * 2)).encode(), limits)
