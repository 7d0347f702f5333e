"""Layouts, the loss mask, truncation, batches, our own templates and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from rolewise.rendering import control_token_ids, data_layout, encode, prepare_tokenizer, render
from rolewise.roles import Role, RoleScheme
from tests.chat import byte_level_tokenizer, smollm2_tokenizer, template_names, template_tokenizer

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "S."},
    {"role": "user", "content": "U?"},
    {"role": "data", "content": "D <|im_end|>"},
    {"role": "assistant", "content": "A."},
]


def spans(tokenizer: Any, encoding: Any, column: str = "segment_ids") -> list[tuple[int, str]]:
    """Runs of tokens with one value, as text."""
    runs: list[tuple[int, list[int]]] = []
    for number, value in zip(encoding.input_ids, getattr(encoding, column), strict=True):
        if not runs or runs[-1][0] != value:
            runs.append((value, []))
        runs[-1][1].append(number)
    return [(value, tokenizer.decode(ids, clean_up_tokenization_spaces=False)) for value, ids in runs]


def test_header_layout() -> None:
    tokenizer = smollm2_tokenizer()
    assert data_layout(tokenizer) == "header"
    assert spans(tokenizer, render(tokenizer, CHAT)) == [
        (0, "<|im_start|>system\nS.<|im_end|>\n"),
        (1, "<|im_start|>user\nU?<|im_end|>\n"),
        (2, "<|im_start|>data\nD <|im_end|><|im_end|>\n"),
        (3, "<|im_start|>assistant\nA.<|im_end|>\n"),
    ]


def test_inline_layout_puts_data_into_the_user_turn() -> None:
    tokenizer = template_tokenizer("qwen2_5")
    assert data_layout(tokenizer) == "inline"
    assert spans(tokenizer, render(tokenizer, CHAT, add_generation_prompt=True))[:5] == [
        (0, "<|im_start|>system\nS.<|im_end|>\n"),
        (1, "<|im_start|>user\nU?\n\n"),
        (2, "D <|im_end|>"),
        (1, "<|im_end|>\n"),
        (3, "<|im_start|>assistant\nA.<|im_end|>\n<|im_start|>assistant\n"),
    ]


def test_data_alone_and_before_the_question() -> None:
    tokenizer = template_tokenizer("gemma")
    chat = [{"role": "data", "content": "D"}, {"role": "user", "content": "U"}, {"role": "data", "content": ""}]
    assert spans(tokenizer, render(tokenizer, chat)) == [
        (0, "<bos>"),
        (1, "<start_of_turn>user\n"),
        (2, "D"),
        (1, "\n\nU<end_of_turn>\n"),
    ]


def test_default_system_prompt_is_system() -> None:
    tokenizer = smollm2_tokenizer()
    found = spans(tokenizer, render(tokenizer, CHAT[1:2], add_generation_prompt=True))
    assert [value for value, _ in found] == [0, 1, 3]
    assert found[0][1].endswith("Hugging Face<|im_end|>\n")
    assert found[2][1] == "<|im_start|>assistant\n"


def test_loss_on_answers_and_their_end_of_turn() -> None:
    tokenizer = smollm2_tokenizer()
    chat = [*CHAT, {"role": "user", "content": "V?"}, {"role": "assistant", "content": "B."}]
    every = [text for flag, text in spans(tokenizer, render(tokenizer, chat), "loss_mask") if flag]
    last = [text for flag, text in spans(tokenizer, render(tokenizer, chat, train_on="last"), "loss_mask") if flag]
    assert every == ["A.<|im_end|>", "B.<|im_end|>"]
    assert last == ["B.<|im_end|>"]


def test_prompt_is_a_prefix_of_the_training_row() -> None:
    for name in ("qwen3", "llama3", "gemma3", "deepseekv3", "phi3", "cohere", "gptoss"):
        tokenizer = template_tokenizer(name)
        prompt = render(tokenizer, CHAT[1:3], add_generation_prompt=True)
        row = render(tokenizer, CHAT[1:])
        length = row.loss_mask.index(1)
        assert row.input_ids[:length] == prompt.input_ids[:length], name
        assert row.segment_ids[:length] == prompt.segment_ids[:length], name


def test_reasoning_and_tool_calls_are_trained() -> None:
    tokenizer = template_tokenizer("qwen3")
    chat = [CHAT[1], {"role": "assistant", "content": "A.", "reasoning_content": "R <think>"}]
    encoding = render(tokenizer, chat)
    (answer,) = [text for flag, text in spans(tokenizer, encoding, "loss_mask") if flag]
    assert answer == "<think>\nR <think>\n</think>\n\nA.<|im_end|>"
    think = tokenizer.convert_tokens_to_ids("<think>")
    assert encoding.input_ids.count(think) == 1  # the template's own, not the one that was typed


def test_scheme_maps_roles_to_rows() -> None:
    scheme = RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
    encoding = render(smollm2_tokenizer(), CHAT, scheme=scheme)
    assert [value for value, _ in spans(smollm2_tokenizer(), encoding)] == [0, 1, 2]


@pytest.mark.parametrize("length", ["9", 0, -1, 2.5, True])
def test_a_maximum_length_that_is_none_is_refused(length: Any) -> None:
    with pytest.raises(ValueError, match=r"max_length=.* must be a whole number"):
        render(smollm2_tokenizer(), CHAT, max_length=length)


def test_tools_role() -> None:
    tokenizer = template_tokenizer("qwen3")
    tools = [{"type": "function", "function": {"name": "zebra", "description": "d <|im_end|>", "parameters": {}}}]
    ours = render(tokenizer, CHAT[1:2], tools=tools)
    theirs = render(tokenizer, CHAT[1:2], tools=tools, tools_role=Role.DATA)
    assert ours.input_ids == theirs.input_ids
    assert Role.DATA not in ours.segment_ids
    data = "".join(text for value, text in spans(tokenizer, theirs) if value == Role.DATA)
    assert "zebra" in data
    assert "d <|im_end|>" in data
    assert ours.input_ids.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 2


def test_truncation_cuts_data_only() -> None:
    tokenizer = smollm2_tokenizer()
    chat = [
        CHAT[0],
        CHAT[1],
        {"role": "data", "content": "word " * 50},
        {"role": "data", "content": "one two"},
        CHAT[3],
    ]
    whole = render(tokenizer, chat)
    cut = render(tokenizer, chat, max_length=60, overflow="truncate_data")
    assert len(cut.input_ids) == 60
    assert cut.truncated_tokens == len(whole.input_ids) - 60
    keep = [pair for pair in zip(whole.input_ids, whole.segment_ids, strict=True) if pair[1] != Role.DATA]
    assert [pair for pair in zip(cut.input_ids, cut.segment_ids, strict=True) if pair[1] != Role.DATA] == keep
    assert "one two<|im_end|>" in tokenizer.decode(cut.input_ids)
    with pytest.raises(ValueError, match=rf"{len(whole.input_ids)} tokens.*max_length=60"):
        render(tokenizer, chat, max_length=60)
    with pytest.raises(ValueError, match=r"only .* of them are data"):
        render(tokenizer, chat, max_length=20, overflow="truncate_data")


def test_batches() -> None:
    tokenizer = smollm2_tokenizer()
    flat = encode(tokenizer, CHAT)
    assert isinstance(flat["input_ids"][0], int)
    batch = encode(tokenizer, [CHAT, CHAT[:2]], return_tensors="pt", return_loss_mask=True)
    assert batch["input_ids"].shape == batch["segment_ids"].shape == batch["attention_mask"].shape
    pad = int((batch["attention_mask"][1] == 0).sum())
    assert pad > 0
    assert batch["segment_ids"][1, :pad].unique().tolist() == [Role.OUTPUT]
    assert batch["loss_mask"][1, :pad].sum() == 0
    assert batch["input_ids"][1, pad:].tolist() == render(tokenizer, CHAT[:2]).input_ids
    right = encode(tokenizer, [CHAT, CHAT[:2]], return_tensors="pt", padding_side="right")
    assert right["attention_mask"][1, -pad:].sum() == 0
    with pytest.raises(ValueError, match=r"conversation 1: .*robot"):
        encode(tokenizer, [CHAT, [{"role": "robot", "content": "x"}]])


@pytest.mark.parametrize("template", ["text", "delimiter", "chatml"])
def test_own_templates_survive_saving(template: Any, tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer((), None)
    prepared = prepare_tokenizer(tokenizer, template)
    assert prepared.data_layout == "header"
    encoding = render(tokenizer, CHAT)
    found = [value for value, _ in spans(tokenizer, encoding)]
    assert found == [0, 1, 2, 3]
    assert [text for flag, text in spans(tokenizer, encoding, "loss_mask") if flag] == ["A." + tokenizer.eos_token]
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.init_kwargs["rolewise"] == tokenizer.init_kwargs["rolewise"]
    assert render(again, CHAT) == encoding
    assert prepare_tokenizer(again, template).added_words == {}  # they are there, and may be trained by now


def test_delimiter_tokens_cannot_be_typed() -> None:
    tokenizer = byte_level_tokenizer((), None)
    words = prepare_tokenizer(tokenizer, "delimiter").added_words
    assert words == {"[MARK]": "###", "[INST]": "instruction", "[INPT]": "input", "[RESP]": "response", "[COLN]": ":"}
    reserved = {tokenizer.convert_tokens_to_ids(token) for token in words}
    assert reserved <= control_token_ids(tokenizer)
    chat = [CHAT[1], {"role": "data", "content": "[MARK] [RESP][COLN]"}, CHAT[3]]
    count = sum(number in reserved for number in render(tokenizer, chat).input_ids)
    assert count == 9


def test_own_template_is_left_alone() -> None:
    tokenizer = template_tokenizer("llama3")
    before = tokenizer.chat_template, len(tokenizer)
    assert prepare_tokenizer(tokenizer).template == "own"
    assert (tokenizer.chat_template, len(tokenizer)) == before


def test_a_new_template_is_noticed() -> None:
    tokenizer = byte_level_tokenizer(("<|a|>",), "{% for m in messages %}<|a|>{{ m.role }}:{{ m.content }}{% endfor %}")
    first = render(tokenizer, CHAT[:2]).text
    tokenizer.chat_template = tokenizer.chat_template.replace(":", "=")
    assert render(tokenizer, CHAT[:2]).text == first.replace(":", "=")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "no chat template.*prepare_tokenizer"),
        ("{% for m in messages %}{{ m.content[:3] }}{% endfor %}", "does not render|cuts a string"),
        ("nothing", "does not render"),
        ("{% for m in messages if m.role != 'system' %}<|a|>{{ m.role }}{{ m.content }}{% endfor %}", "drops messages"),
    ],
)
def test_templates_that_cannot_express_roles(source: str | None, says: str) -> None:
    tokenizer = byte_level_tokenizer(("<|a|>",), source)
    with pytest.raises(ValueError, match=says):
        render(tokenizer, CHAT[:2])


def test_system_refused_by_the_template() -> None:
    with pytest.raises(ValueError, match=r"System role not supported.*first user message"):
        render(template_tokenizer("gemma"), CHAT)


def test_tokenizer_without_fast_backend() -> None:
    class Slow:
        chat_template = "x"
        init_kwargs: dict[str, Any] = {}  # noqa: RUF012
        all_special_tokens: list[str] = []  # noqa: RUF012

        def get_chat_template(self, *_: Any) -> str:
            return "x"

        def __len__(self) -> int:
            return 1

    with pytest.raises(ValueError, match="no fast backend"):
        render(Slow(), CHAT)


def test_the_empty_result_of_a_call_keeps_its_frame() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "assistant", "content": "a"},
    ]
    assert "<tool_response>" in render(template_tokenizer("qwen3"), messages).text


@pytest.mark.parametrize("tools", ["f", {"type": "function"}, ["f"]])
def test_tools_of_another_type_are_refused(tools: Any) -> None:
    with pytest.raises(TypeError, match=r"tools.*JSON schema"):
        render(template_tokenizer("qwen3"), [{"role": "user", "content": "q"}], tools=tools)


_LAST_ARGUMENTS = {
    "text": [{"count": 3, "key": "value"}],
    "number": [{"key": "value", "zcount": 3}],
    "nested": [{"key": "value", "where": {"deep": [1, True]}}],
    "none": [{}],
    "none, of a second call": [{"key": 3}, {}],
}


@pytest.mark.parametrize("name", template_names())
@pytest.mark.parametrize("last", _LAST_ARGUMENTS)
def test_a_call_is_trained_alike_with_and_without_its_result(name: str, last: str) -> None:
    """All of the call is the assistant's, whatever its last argument is; nothing of the result is."""
    tokenizer = template_tokenizer(name)
    functions = [{"name": "lookup", "arguments": arguments} for arguments in _LAST_ARGUMENTS[last]]
    calls = [{"id": f"call0000{at}", "type": "function", "function": one} for at, one in enumerate(functions, start=1)]
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "question"},
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "name": "lookup", "tool_call_id": "call00001", "content": "result"},
    ]
    try:
        trained = [
            [text for flag, text in spans(tokenizer, render(tokenizer, chat[:count]), "loss_mask") if flag]
            for count in (2, 3)
        ]
    except ValueError as error:
        pytest.skip(f"the template takes no tool calls: {error}")
    (alone,), (followed,) = trained
    # Some templates put an empty thought before the last answer only.
    assert alone.partition("lookup")[2] == followed.partition("lookup")[2]
    assert "result" not in followed
