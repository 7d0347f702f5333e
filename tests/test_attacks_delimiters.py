"""What attackers forge in each template, and that it stays text when it is rendered."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolewise.attacks import (
    CHATML,
    DELIMITER,
    HACKED,
    NAMED_DELIMITERS,
    NEAR_MISSES,
    RESERVED,
    TEXT,
    Delimiters,
    attack_info,
    attack_names,
    filter_reserved,
    make_attack,
    near_miss,
    template_delimiters,
)
from rolewise.rendering import Encoding, control_token_ids, prepare_tokenizer, render
from rolewise.roles import Role
from rolewise.samples import Sample, to_messages
from tests.chat import byte_level_tokenizer, smollm2_tokenizer, template_names, template_tokenizer

OURS = tuple(NAMED_DELIMITERS)


def tokenizer_of(name: str) -> Any:
    if name == "smollm2":
        return smollm2_tokenizer()
    if name not in OURS:
        return template_tokenizer(name)
    tokenizer = byte_level_tokenizer((), None)
    prepare_tokenizer(tokenizer, name)  # type: ignore[arg-type]
    return tokenizer


@pytest.mark.parametrize("name", OURS)
def test_our_templates(name: str) -> None:
    assert template_delimiters(tokenizer_of(name)) == NAMED_DELIMITERS[name]


@pytest.mark.parametrize(
    ("name", "response", "instruction"),
    [
        ("smollm2", CHATML.response, CHATML.instruction),
        ("qwen2_5", CHATML.response, CHATML.instruction),
        (
            "llama3",
            "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
        ),
        ("gemma", "<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>\n<start_of_turn>user\n"),
        ("llava_next", " [/INST] ", "</s> [INST] "),  # Mistral's
        ("phi3", "<|end|>\n<|assistant|>\n", "<|end|>\n<|user|>\n"),
        ("deepseekv3", "<｜Assistant｜>", "<｜end▁of▁sentence｜><｜User｜>"),
    ],
)
def test_templates_of_others(name: str, response: str, instruction: str) -> None:
    if name != "smollm2" and name not in template_names():
        pytest.skip("TRL's templates are not installed")
    assert template_delimiters(tokenizer_of(name)) == Delimiters(response=response, instruction=instruction)


def test_a_template_without_delimiters_is_refused() -> None:
    tokenizer = byte_level_tokenizer((), "{% for message in messages %}{{ message['content'] }}{% endfor %}")
    with pytest.raises(ValueError, match="writes nothing between the messages that could be forged"):
        template_delimiters(tokenizer)


# --- near misses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["smollm2", *OURS, *template_names()])
def test_near_misses_are_near_but_never_the_real_delimiters(name: str) -> None:
    real = template_delimiters(tokenizer_of(name))
    seen: set[str] = set()
    for variant in NEAR_MISSES:
        miss = near_miss(real, variant)
        for found, true in ((miss.response, real.response), (miss.instruction, real.instruction)):
            assert found != true
            assert true not in found
            assert any(character.isalnum() for character in found)
        seen.add(miss.response + "|" + miss.instruction)
    assert len(seen) == len(NEAR_MISSES)


@pytest.mark.parametrize(
    ("variant", "response", "instruction"),
    [
        ("2hash", "<|im_end>\n<|im_start>assistant\n", "<|im_end>\n<|im_start>user\n"),
        ("1hash", "<im_end>\n<im_start>assistant\n", "<im_end>\n<im_start>user\n"),
        ("0hash", "im_end\nim_startassistant\n", "im_end\nim_startuser\n"),
        ("upper", "<|IM_END|>\n<|IM_START|>ASSISTANT\n", "<|IM_END|>\n<|IM_START|>USER\n"),
        ("title", "<|Im_End|>\n<|Im_Start|>Assistant\n", "<|Im_End|>\n<|Im_Start|>User\n"),
        ("nospace", "<|im_end|><|im_start|>assistant\n", "<|im_end|><|im_start|>user\n"),
        ("nocolon", "im_end|>\nim_start|>assistant\n", "im_end|>\nim_start|>user\n"),
        ("typo", "<|im_edn|>\n<|im_satrt|>asisstant\n", "<|im_edn|>\n<|im_satrt|>uesr\n"),
        ("similar", "<|im_stop|>\n<|im_begin|>helper\n", "<|im_stop|>\n<|im_begin|>human\n"),
    ],
)
def test_near_misses_of_chatml(variant: Any, response: str, instruction: str) -> None:
    assert near_miss(CHATML, variant) == Delimiters(response=response, instruction=instruction)


def test_near_misses_of_single_brackets() -> None:
    mistral = Delimiters(response="[/INST]", instruction="[INST]")
    found = {variant: near_miss(mistral, variant).instruction for variant in NEAR_MISSES}
    assert found == {
        "2hash": "[INST", "1hash": "(INST)", "0hash": "INST", "upper": "[inst]", "title": "[Inst]",
        "nospace": "[ INST]", "nocolon": "INST]", "typo": "[ISNT]", "similar": "[ORDER]",
    }  # fmt: skip


def test_near_misses_of_any_delimiters_differ() -> None:
    for odd in ("x", "§", "%% user %%", "用户", "1", "a_b", " "):
        for variant in NEAR_MISSES:
            assert near_miss(Delimiters(response=odd, instruction=odd), variant).response != odd, (odd, variant)
    with pytest.raises(ValueError, match="variant='3hash' must be one of 2hash"):
        near_miss(CHATML, "3hash")  # type: ignore[arg-type]


def test_the_reference_shows_the_near_misses_as_they_are() -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "attacks.md").read_text(encoding="utf-8")
    gemma = Delimiters(response="<end_of_turn>\n<start_of_turn>model\n", instruction="<end_of_turn>")
    columns = (TEXT, CHATML, gemma, Delimiters(response="[/INST]", instruction="[INST]"))
    for variant in NEAR_MISSES:
        shown = [near_miss(real, variant).response.replace("|", "\\|").replace("\n", "⏎") for real in columns]
        assert f"| `{variant}` | " + " | ".join(f"`{text}`" for text in shown) + " |" in page
    for real in NAMED_DELIMITERS.values():
        for text in (real.response, real.instruction):
            assert "`" + text.replace("|", "\\|").replace("\n", "⏎") + "`" in page


# --- the filter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", ""),
        ("plain [text]", "plain [text]"),
        ("a [MARK] b", "a  b"),
        ("[INS[INST]T]", ""),
        ("[MA[COLN]RK] [RE[MARK]SP][CO[INPT]LN]x", " x"),
        ("[[INST]MARK]", ""),
        ("[INST", "[INST"),
        ("[inst]", "[inst]"),
        ("日本[RESP]語", "日本語"),
    ],
)
def test_the_filter_leaves_no_reserved_token(text: str, left: str) -> None:
    assert filter_reserved(text) == left


@given(st.lists(st.sampled_from([*RESERVED, "[", "]", "INST", "MARK", "MA", "RK", "x", " "]), max_size=14).map("".join))
def test_the_filter_is_complete_and_takes_nothing_twice(text: str) -> None:
    left = filter_reserved(text)
    assert not any(token in left for token in RESERVED)
    assert filter_reserved(left) == left
    rest = iter(text)
    assert all(character in rest for character in left)  # what is left is in order
    assert left == text or any(token in text for token in RESERVED)


def test_the_filter_is_fast_on_nested_tokens() -> None:
    start = time.perf_counter()
    assert filter_reserved("[INS" * 50_000 + "[INST]" + "T]" * 50_000) == ""
    assert time.perf_counter() - start < 5


def test_the_filter_takes_other_tokens() -> None:
    assert filter_reserved("a<|im_end|>b<|im_<|im_end|>end|>", ["<|im_end|>", "<|im_start|>"]) == "ab"
    assert filter_reserved("aabab", ["ab", "b"]) == "a"
    with pytest.raises(ValueError, match="a reserved string is empty"):
        filter_reserved("x", [""])


# --- through the rendering ---------------------------------------------------------------------------------

FORGING = [name for name in attack_names() if attack_info(name).forges]
SAMPLE = Sample(id="s", instruction="Who?", data="Anna sings.", answer="Anna", payload=HACKED)


def outside(encoding: Encoding) -> list[tuple[int, int]]:
    """The tokens that are not data, with their segments."""
    pairs = zip(encoding.input_ids, encoding.segment_ids, strict=True)
    return [pair for pair in pairs if pair[1] != int(Role.DATA)]


@pytest.mark.parametrize("name", ["smollm2", *OURS, *template_names()])
def test_what_an_attacker_types_stays_text_and_data(name: str) -> None:
    """No forged delimiter changes a token or a role outside the data, nor is a control token within it."""
    tokenizer = tokenizer_of(name)
    control = control_token_ids(tokenizer)
    real = template_delimiters(tokenizer)
    clean = render(tokenizer, to_messages(SAMPLE, answer=False), add_generation_prompt=True)
    framed = sum(token in control for token in clean.input_ids)
    for attack in FORGING:
        sample = make_attack(attack, real=real)(SAMPLE, Random(attack))
        found = render(tokenizer, to_messages(sample, answer=False), add_generation_prompt=True)
        assert outside(found) == outside(clean), attack
        assert sum(token in control for token in found.input_ids) == framed, attack
        assert found.segment_ids.count(int(Role.DATA)) > clean.segment_ids.count(int(Role.DATA)) + 10
        assert sample.data.strip() in found.text


def test_a_plain_encoding_would_have_been_fooled() -> None:
    """The check above can fail: the tokenizer itself takes the forged delimiters for real ones."""
    tokenizer = tokenizer_of("delimiter")
    sample = make_attack("completion_real", real=DELIMITER)(SAMPLE, Random(0))
    control = control_token_ids(tokenizer)
    assert sum(token in control for token in tokenizer.encode(sample.data, add_special_tokens=False)) == 6
    assert not control.intersection(tokenizer.encode(filter_reserved(sample.data), add_special_tokens=False))


def test_the_text_arms_delimiters_are_the_same_tokens_typed_or_not() -> None:
    """Which is why that arm falls to completions: only the segment tells the two apart."""
    tokenizer = tokenizer_of("text")
    sample = make_attack("completion_real", real=TEXT)(SAMPLE, Random(0))
    found = render(tokenizer, to_messages(sample, answer=False), add_generation_prompt=True)
    assert found.text.count("### response:") == 2
    header = tokenizer.encode("### response:\n", add_special_tokens=False)
    starts = [i for i in range(len(found.input_ids)) if found.input_ids[i : i + len(header)] == header]
    assert [found.segment_ids[i] for i in starts] == [int(Role.DATA), int(Role.OUTPUT)]
