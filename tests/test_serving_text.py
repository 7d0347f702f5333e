"""An answer's text: never split within a character, cut at stop strings, parted into thoughts and calls, in whatever
deltas it comes."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from rolewise.engine.decoding import Ending
from rolewise.engine.detokenizing import Detokenizer
from rolewise.serving.backend import Delta
from rolewise.serving.cutting import CallCutter, StopCutter, ThoughtSplitter, held_back
from rolewise.serving.reading import AnswerReader, Piece, TokenTexts
from rolewise.tools.calls import Call
from rolewise.tools.format import ToolFormat, tool_format

from .chat import byte_level_tokenizer, smollm2_tokenizer
from .training_model import tiny_tokenizer


@cache
def tiny() -> Any:
    return tiny_tokenizer()


@cache
def sentencepiece_like(strip: bool = True) -> Any:
    """A vocabulary as Llama 2's: marks for spaces, bytes for what it lacks."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "▁", "cat", "é", "▁▁", "."]
    vocabulary = {word: at for at, word in enumerate(words)}
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@cache
def word_pieces() -> Any:
    """A decoder that is none of those whose bytes are known."""
    words = ["[UNK]", "the", "cat", "##s", "a", ".", "##.", "sat"]
    backend = Tokenizer(models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece(cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


def decoded(tokenizer: Any, ids: list[int], detokenizer: Detokenizer | None = None) -> tuple[str, list[str]]:
    decoder = (detokenizer or Detokenizer(tokenizer)).start()
    pieces = [decoder.push(one) for one in ids]
    pieces.append(decoder.finish())
    return "".join(pieces), pieces


def whole(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def ids_of(tokenizer: Any) -> st.SearchStrategy[list[int]]:
    texts = st.text(max_size=20).map(lambda text: tokenizer.encode(text, add_special_tokens=False))
    return st.lists(st.one_of(texts, st.lists(st.integers(0, len(tokenizer) - 1), max_size=8)), max_size=4).map(
        lambda parts: [one for part in parts for one in part]
    )


# --- tokens to text ---------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(ids=ids_of(tiny()))
def test_text_token_by_token_is_the_tokenizers_own(ids: list[int]) -> None:
    text, pieces = decoded(tiny(), ids)
    assert text == whole(tiny(), ids)
    for at in range(len(pieces)):
        # U+FFFD is handed over only where no later token can make a character of it.
        assert whole(tiny(), ids).startswith("".join(pieces[:at]))


@settings(deadline=None)
@example(ids=[tiny().convert_tokens_to_ids("í"), tiny().convert_tokens_to_ids("ł")])
@given(ids=ids_of(tiny()))
def test_text_is_handed_over_as_soon_as_it_is_certain(ids: list[int]) -> None:
    decoder = Detokenizer(tiny()).start()
    text = ""
    for at, one in enumerate(ids, start=1):
        text += decoder.push(one)
        held = whole(tiny(), ids[:at])[len(text) :]
        # Two of ED A0, half a surrogate: no later byte makes a character of it, but Python waits for the third.
        assert held in ("", "\ufffd", "\ufffd\ufffd")


@pytest.mark.parametrize("text", ["naïve 日本語", "👩‍👩‍👧 family", "a\u0301\u200d", "\ufffd real", "\n\n  "])
def test_characters_of_many_bytes_come_whole(text: str) -> None:
    ids = tiny().encode(text, add_special_tokens=False)
    _, pieces = decoded(tiny(), ids)
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece or "\ufffd" in text for piece in pieces)


@pytest.mark.parametrize("strip", [True, False])
@settings(deadline=None)
@given(data=st.data())
def test_byte_fallback(strip: bool, data: st.DataObject) -> None:
    tokenizer = sentencepiece_like(strip)
    texts = st.text(max_size=6).map(lambda text: [3 + byte for byte in text.encode()])
    words = st.lists(st.integers(259, len(tokenizer) - 1), max_size=4)
    ids = [one for part in data.draw(st.lists(texts | words, max_size=5)) for one in part]
    assert decoded(tokenizer, ids)[0] == whole(tokenizer, ids)


def test_specials_are_left_out_unless_kept() -> None:
    tokenizer = sentencepiece_like()
    assert decoded(tokenizer, [1, 259, 2, 261])[0] == "thecat"
    kept = Detokenizer(tokenizer, {"</s>"})
    assert decoded(tokenizer, [1, 259, 2, 261], kept)[0] == "the</s>cat"
    assert kept.bytes_of(1) == b""
    assert kept.surface(1) == b"<s>"
    assert kept.bytes_of(10**6) == b""
    assert kept.bytes_of(-1) == b""


@settings(deadline=None)
@given(ids=st.lists(st.integers(1, 7), max_size=30))
def test_other_decoders_decode_a_window(ids: list[int]) -> None:
    assert decoded(word_pieces(), ids)[0] == whole(word_pieces(), ids)


@pytest.mark.smollm2
@settings(max_examples=30, deadline=None)
@given(text=st.text(max_size=60))
def test_smollm2(text: str) -> None:
    tokenizer = smollm2_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert decoded(tokenizer, ids)[0] == whole(tokenizer, ids)


# --- stop strings -----------------------------------------------------------------------------------------------

FEW = st.text(alphabet="ab<", max_size=24)
STOPS = st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), min_size=1, max_size=4)


def chunks(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(edges)]


def first_stop(text: str, stops: list[str]) -> int | None:
    """By brute force: the first place at which one is complete."""
    for end in range(1, len(text) + 1):
        if ending := [stop for stop in stops if text[:end].endswith(stop)]:
            return end - max(map(len, ending))
    return None


@settings(deadline=None)
@given(text=FEW, stops=STOPS, cuts=st.lists(st.integers(0, 99), max_size=8))
@example(text="aab", stops=["ab", "aab"], cuts=[1, 2])
@example(text="abab<", stops=["abab<", "bab"], cuts=[1, 2, 3, 4])
def test_stops_are_found_across_any_borders(text: str, stops: list[str], cuts: list[int]) -> None:
    cutter = StopCutter(stops)
    given_over = ""
    for chunk in chunks(text, cuts):
        given_over += cutter.push(chunk)
        at = first_stop(text, stops)
        assert at is None or len(given_over) <= at
    stopped = cutter.stopped
    given_over += cutter.finish()
    at = first_stop(text, stops)
    assert stopped == (at is not None)
    assert given_over == (text if at is None else text[:at])


@settings(deadline=None)
@given(text=FEW, stops=STOPS)
def test_no_more_is_held_back_than_a_stop_needs(text: str, stops: list[str]) -> None:
    held = held_back(text, stops)
    possible = [n for stop in stops for n in range(1, min(len(stop), len(text) + 1)) if text.endswith(stop[:n])]
    assert held == max(possible, default=0)


# --- thoughts and calls -----------------------------------------------------------------------------------------

BITS = st.sampled_from(["<think>", "</think>", " ", "\n", "a", "<", "<th", "</th", "ink>", "<tool_call>", "b "])
TAGGED = st.lists(BITS, max_size=10).map("".join)


@settings(deadline=None)
@given(text=TAGGED, cuts=st.lists(st.integers(0, 99), max_size=10), opening=st.sampled_from(["", "<think>\n"]))
def test_thoughts_are_parted_alike_however_they_come(text: str, cuts: list[int], opening: str) -> None:
    def parted(some: list[str]) -> tuple[str, str]:
        splitter = ThoughtSplitter(opening)
        found = [splitter.push(one) for one in some] + [splitter.finish()]
        return "".join(a for a, _ in found), "".join(b for _, b in found)

    assert parted(chunks(text, cuts)) == parted([text])
    thought, said = parted([text])
    if opening or text.lstrip().startswith("<think>"):
        body = text.lstrip().removeprefix("<think>")
        before, _, after = body.partition("</think>")
        assert (thought, said) == (before.strip(), after.lstrip())
    else:
        assert (thought, said) == ("", text)


@settings(deadline=None)
@given(text=TAGGED, cuts=st.lists(st.integers(0, 99), max_size=10), alone=st.booleans())
def test_calls_are_held_back_alike_however_they_come(text: str, cuts: list[int], alone: bool) -> None:
    def cut(some: list[str]) -> tuple[str, str, bool]:
        cutter = CallCutter(["<tool_call>"], alone=alone)
        said = "".join(cutter.push(one) for one in some)
        return said, cutter.held, cutter.found

    said, held, found = cut(chunks(text, cuts))
    assert said + held == text
    assert found == (text.lstrip().startswith("<tool_call>") if alone else "<tool_call>" in text)
    if found:
        assert (said, held, found) == cut([text])
        assert held.lstrip().startswith("<tool_call>")


def test_text_that_is_no_call_is_not_held_back() -> None:
    cutter = CallCutter(["<tool_call>"])
    assert cutter.push("See the <table> tag") == "See the <table> tag"
    assert cutter.push(" and <too") == " and"
    assert cutter.push("ls>") == " <tools>"


# --- whole answers ----------------------------------------------------------------------------------------------


def read(
    tokenizer: Any, ids: list[int], sizes: list[int], ending: Ending = "stop", *, tools: ToolFormat | None = None,
    **options: Any,
) -> list[Piece]:  # fmt: skip
    reader = AnswerReader(TokenTexts(tokenizer, tools), tools=tools, **options)
    pieces: list[Piece] = []
    at, turn = 0, 0
    while not reader.ended:
        size = sizes[turn % len(sizes)] if sizes else max(len(ids), 1)
        some = ids[at : at + size]
        at, turn = at + size, turn + 1
        logprobs = [(one, -float(one), []) for one in some]
        delta = Delta(token_ids=some, logprobs=logprobs, ending=ending if at >= len(ids) else None)
        if (piece := reader.take(delta)) is not None:
            assert (piece.ending is None) == (not reader.ended)
            pieces.append(piece)
    return pieces


def joined(pieces: list[Piece]) -> tuple[str, str, tuple[Call, ...], Ending | None, list[int]]:
    last = pieces[-1]
    tokens = [token.id for piece in pieces for token in piece.tokens]
    return (
        "".join(one.text for one in pieces), "".join(one.reasoning for one in pieces), last.calls, last.ending, tokens
    )  # fmt: skip


@settings(deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 5), max_size=4), tools=st.booleans())
def test_a_streamed_answer_is_the_answer_not_streamed(data: st.DataObject, sizes: list[int], tools: bool) -> None:
    ids = data.draw(ids_of(tiny()))
    text = whole(tiny(), ids)
    spans = st.tuples(st.integers(0, len(text)), st.integers(1, 4)).map(lambda at: text[at[0] : at[0] + at[1]])
    stops = tuple(stop for stop in data.draw(st.lists(spans | st.text(max_size=3), max_size=4)) if stop)
    options: dict[str, Any] = {"stop": stops, "tools": tool_format(tiny(), "plain") if tools else None}
    streamed = joined(read(tiny(), ids, sizes, **options))
    assert streamed == joined(read(tiny(), ids, [], **options))
    if not tools and not text.lstrip().startswith("<think>"):
        at = first_stop(text, list(stops))
        assert streamed[0] == (text if at is None else text[:at])
        assert streamed[3] == "stop"
        if at is None:
            assert streamed[4] == ids


CALL = '<tool_call>{"name": "lookup", "arguments": {"key": "</tool_call>", "n": 3}}</tool_call>'


@pytest.mark.parametrize("sizes", [[1], [2, 3], []])
@pytest.mark.parametrize(
    ("text", "said", "thought", "calls"),
    [
        (f"Let me look.\n{CALL}", "Let me look.", "", 1),
        (f"{CALL}\n{CALL}", "", "", 2),
        (f"<think>\nhm {CALL}\n</think>\n\nSo: {CALL}", "So:", f"hm {CALL}", 1),
        (f"{CALL}\nDone.", "\nDone.", "", 1),
        ("<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>", "", 0),
        ("no call <tool_", "no call <tool_", "", 0),
        ("<think>cut", "", "cut", 0),
    ],
)
def test_tool_calls(text: str, said: str, thought: str, calls: int, sizes: list[int]) -> None:
    ids = tiny().encode(text, add_special_tokens=False)
    pieces = read(tiny(), ids, sizes, tools=tool_format(tiny(), "plain"))
    found = joined(pieces)
    assert (found[0], found[1], len(found[2])) == (said, thought, calls)
    assert all(call.function == "lookup" and call.arguments == {"key": "</tool_call>", "n": 3} for call in found[2])
    assert found[4] == ids


def test_bare_json_is_a_call_only_when_it_is_all_of_the_answer() -> None:
    from rolewise.tools.calls import read_json
    from rolewise.tools.format import _with_thoughts

    bare = ToolFormat("json", _with_thoughts(read_json))
    call = json.dumps({"name": "lookup", "parameters": {"key": "a"}})
    for text, said, calls in [(call, "", 1), (f" {call}", "", 1), (f"{{}} {call}", f"{{}} {call}", 0),
                              (f"So {call}", f"So {call}", 0)]:  # fmt: skip
        ids = tiny().encode(text, add_special_tokens=False)
        found = joined(read(tiny(), ids, [1], tools=bare))
        assert (found[0], len(found[2])) == (said, calls)
    pieces = read(tiny(), tiny().encode(f"So {call}", add_special_tokens=False), [1], tools=bare)
    assert len([piece for piece in pieces if piece.text]) > 5, "text that is no call is streamed"


def test_special_tokens_of_which_calls_are_made_are_kept() -> None:
    from rolewise.tools.calls import read_mistral
    from rolewise.tools.format import _with_thoughts

    tokenizer = byte_level_tokenizer(("[TOOL_CALLS]", "<|eot|>"), None)
    mistral = ToolFormat("mistral", _with_thoughts(read_mistral))
    special = tokenizer.convert_tokens_to_ids("[TOOL_CALLS]")
    ids = [*tokenizer.encode("Hm.", add_special_tokens=False), special,
           *tokenizer.encode('[{"name": "lookup", "arguments": {}}]', add_special_tokens=False)]  # fmt: skip
    found = joined(read(tokenizer, ids, [1], tools=mistral))
    assert found[0] == "Hm."
    assert found[2] == (Call("lookup", {}),)
    assert joined(read(tokenizer, ids, [1]))[0].startswith("Hm.[{"), "without tools it is no text"


def test_tokens_come_with_their_text_and_end_before_a_stop() -> None:
    ids = tiny().encode("the cat. the dog. tree", add_special_tokens=False)
    pieces = read(tiny(), ids, [1], stop=(" dog",))
    text = ""
    for piece in pieces:
        text += piece.text
        assert "".join(token.text for token in piece.tokens) in (piece.text, "") or piece.ending
    tokens = [token for piece in pieces for token in piece.tokens]
    assert text == "the cat. the"
    assert "".join(token.text for token in tokens) == text
    assert [token.logprob for token in tokens] == [-float(token.id) for token in tokens]
    assert b"".join(token.bytes for token in tokens) == text.encode()
    # The stop's own tokens were written, and count, but are not shown.
    assert pieces[-1].written == len(tiny().encode("the cat. the dog", add_special_tokens=False)) > len(tokens)


def test_a_character_that_never_ends_comes_at_the_end() -> None:
    ids = tiny().encode("a日", add_special_tokens=False)[:-1]
    pieces = read(tiny(), ids, [1], "max_tokens")
    assert joined(pieces)[0] == "a\ufffd"
    assert pieces[-1].ending == "max_tokens"
    assert joined(pieces)[4] == ids
