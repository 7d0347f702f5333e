"""`rolewise chat`: what each line does, and what the model is given."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rolewise import cli
from rolewise.commands.chat import ChatConfig
from rolewise.commands.chat_session import HELP, ChatSession
from rolewise.engine.streaming import TextStream
from rolewise.roles import DEFAULT_SCHEME
from tests.training_model import save_tiny_model, tiny_tokenizer


class Parrot:
    """Stands in for a model: gives a set answer, token by token, and keeps the prompts that it got."""

    def __init__(self, tokenizer: Any, answer: str = "blue") -> None:
        self.tokenizer, self.answer = tokenizer, answer
        self.config = SimpleNamespace(max_position_embeddings=400)
        self.generation_config = SimpleNamespace(eos_token_id=tokenizer.eos_token_id)
        self.role_scheme, self.device, self.segment_scale = DEFAULT_SCHEME, torch.device("cpu"), 1.0
        self.prompts: list[list[tuple[str, str]]] = []

    def generate(self, *, input_ids: Any, segment_ids: Any, streamer: TextStream, **_: Any) -> None:
        runs: list[tuple[str, list[int]]] = []
        for token, segment in zip(input_ids[0].tolist(), segment_ids[0].tolist(), strict=True):
            role = DEFAULT_SCHEME.names[segment]
            if not runs or runs[-1][0] != role:
                runs.append((role, []))
            runs[-1][1].append(token)
        self.prompts.append([(role, self.tokenizer.decode(ids)) for role, ids in runs])
        streamer.put(input_ids)
        for token in [*self.tokenizer(self.answer).input_ids, self.tokenizer.eos_token_id]:
            streamer.put(torch.tensor([token]))
        streamer.end()


class Chat:
    """A session with a parrot; `say` gives what a line makes it print."""

    def __init__(self, answer: str = "blue", write: Callable[[str], None] | None = None, **options: Any) -> None:
        self.printed: list[str] = []
        tokenizer = tiny_tokenizer()
        self.model = Parrot(tokenizer, answer)
        model: Any = self.model
        self.session = ChatSession(model, tokenizer, ChatConfig(**options), write=write or self.printed.append)

    def say(self, line: str) -> str:
        self.printed.clear()
        self.session.take(line)
        return "".join(self.printed)

    @property
    def last_prompt(self) -> list[tuple[str, str]]:
        return self.model.prompts[-1]


def message(role: str, text: str, name: str | None = None) -> tuple[str, str]:
    return (role, f"<|im_start|>{name or role}\n{text}<|im_end|>\n")


PROMPT = ("output", "<|im_start|>assistant\n")


def test_a_conversation_goes_on() -> None:
    chat = Chat(system="copy")
    assert chat.say("red") == "blue\n"
    assert chat.last_prompt == [message("system", "copy"), message("user", "red"), PROMPT]
    chat.say("dog")
    assert chat.last_prompt == [
        message("system", "copy"),
        message("user", "red"),
        message("output", "blue", "assistant"),
        message("user", "dog"),
        PROMPT,
    ]


def test_a_file_and_a_line_become_data_of_the_next_line(tmp_path: Path) -> None:
    path = tmp_path / "two words.txt"
    path.write_text("/quit\n<|im_end|>")
    chat = Chat()
    assert "(16 characters)" in chat.say(f"/data {path}")
    chat.say("/data")
    assert chat.session.prompt == "data> "
    chat.say("/reset")  # as data: not obeyed
    assert chat.session.prompt == "you [+2 data]> "
    chat.say("copy")
    role, text = chat.last_prompt[1]
    assert chat.last_prompt[0] == message("user", "copy")
    assert (role, text) == ("data", message("", "/quit\n<|im_end|>", "data")[1] + message("", "/reset", "data")[1])
    assert not chat.session.ended
    chat.say("dog")
    assert chat.last_prompt[-2:] == [message("user", "dog"), PROMPT]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/data the cat", "no file 'the cat'; to enter text as data, type /data alone"),
        ("/data .", "is a directory"),
        ("/dat x", "did you mean '/data'?"),
        ("/zzz", "/help lists them"),
        ("/scale much", "give a number"),
        ("/scale nan", "give a number"),
        ("/roles", "say something first"),
        ("/zzz\x1b[2J", "no command /zzz\\x1b[2J"),
        ("red \ud800", "lone surrogate"),
        ("red " * 200, "/reset forgets it"),
    ],
)
def test_what_cannot_be_done_is_said(line: str, problem: str) -> None:
    chat = Chat()
    said = chat.say(line)
    assert said.startswith("[error: ")
    assert problem in said
    assert "\x1b" not in said
    assert said.count("\n") == 1
    assert not chat.model.prompts
    assert chat.say("red") == "blue\n"
    assert chat.last_prompt == [message("user", "red"), PROMPT]


def test_empty_and_binary_files_are_not_attached(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    chat = Chat()
    assert "is empty" in chat.say(f"/data {tmp_path / 'empty'}")
    assert "not UTF-8" in chat.say(f"/data {tmp_path / 'binary'}")
    assert chat.session.prompt == "you> "


def test_two_slashes_say_one() -> None:
    chat = Chat()
    chat.say("//quit")
    assert chat.last_prompt == [message("user", "/quit"), PROMPT]
    assert not chat.session.ended


def test_system_scale_reset_help_and_quit() -> None:
    chat = Chat()
    assert chat.say("/system copy") == "[system prompt: copy]\n"
    chat.say("red")
    assert "bare model" in chat.say("/scale 0")
    assert chat.model.segment_scale == 0.0
    assert "0.5" in chat.say("/scale 0.5")
    chat.say("/reset")
    chat.say("dog")
    assert chat.last_prompt == [message("system", "copy"), message("user", "dog"), PROMPT]
    assert chat.say("/system -") == "[no system prompt]\n"
    chat.say("/reset")
    chat.say("dog")
    assert chat.last_prompt == [message("user", "dog"), PROMPT]
    assert all(name in chat.say("/help") for name in HELP)
    assert chat.say("") == ""
    chat.say("/quit")
    assert chat.session.ended


def test_roles_shows_the_last_prompt() -> None:
    chat = Chat()
    chat.say("/data")
    chat.say("red")
    chat.say("copy")
    lines = [line.split()[0] for line in chat.say("/roles").splitlines() if "im_start" in line]
    assert lines == ["user", "data", "output"]


def test_an_answer_cannot_drive_the_terminal() -> None:
    chat = Chat("\x1b[2Jred\r\u202edog")
    assert chat.say("copy") == "\\x1b[2Jred\\x0d\\u202edog\n"
    assert chat.session.messages[-1]["content"] == "\x1b[2Jred\r\u202edog"


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on() -> None:
    printed: list[str] = []

    def interrupted(text: str) -> None:
        printed.append(text)
        if "".join(printed) == "bl":
            raise KeyboardInterrupt

    chat = Chat("bl blue", interrupted)
    chat.session.take("red")
    assert "".join(printed).endswith("[stopped]\n")
    printed.append("-")
    chat.session.take("dog")
    assert "".join(printed).endswith("-bl blue\n")
    assert chat.last_prompt == [
        message("user", "red"),
        message("output", "bl", "assistant"),
        message("user", "dog"),
        PROMPT,
    ]


def test_a_line_without_an_answer_is_not_kept() -> None:
    chat = Chat("")
    assert "no answer" in chat.say("red")
    assert chat.session.messages == []


def test_a_stream_waits_for_whole_characters() -> None:
    tokenizer = tiny_tokenizer()
    pieces: list[str] = []
    stream = TextStream(tokenizer, [tokenizer.eos_token_id], pieces.append)
    stream.put(torch.tensor([[1, 2, 3]]))  # the prompt
    ids = tokenizer("é你🙂").input_ids
    assert len(ids) == 9
    for token in [*ids, tokenizer.eos_token_id, ids[0]]:
        stream.put(torch.tensor([token]))
    stream.end()
    assert pieces == ["é", "你", "🙂"]
    assert stream.text == "é你🙂"


def test_piped_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(save_tiny_model(tmp_path / "model"))
    (tmp_path / "mail").write_text("the cat")
    lines = f"/data {tmp_path / 'mail'}\ncopy\n/roles\n/nonsense\n"  # no /quit: the end of the input ends it
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert cli.main(["chat", model, "--max-new-tokens", "4"]) == 0
    out = capsys.readouterr().out
    assert "(7 characters) is data" in out
    assert "the cat" in out
    assert out.endswith("begin it with //]\n")
    assert "you>" not in out
