"""What happens to each line of a terminal chat: messages, slash commands, answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rolewise.cli import error_line
from rolewise.display import safe_text
from rolewise.engine.streaming import TextStream
from rolewise.generation import left_padded, stop_token_ids
from rolewise.rendering import Encoding, render
from rolewise.unknown import did_you_mean

if TYPE_CHECKING:
    from rolewise.commands.chat import ChatConfig
    from rolewise.modeling import SegmentedCausalLM

_ADD_DATA = "/data"
HELP = {
    "/data FILE": "attach a file to your next line, with the data role",
    "/data": "attach the next line, with the data role",
    "/system TEXT": "set the system prompt (without TEXT: show it; with a dash: remove it)",
    "/roles": "show the last prompt as the model got it, coloured by role",
    "/scale X": "multiply the segment table by X: 1 is as trained, 0 the bare model",
    "/reset": "forget the conversation; the system prompt stays",
    "/help": "this list",
    "/quit": "end (or Ctrl-D)",
    "//text": "say a line that begins with a slash",
}


class ChatSession:
    """A conversation with a model.

    Data that was attached follows the user's line in the conversation, as in training: first what is asked, then what
    it is about.
    """

    def __init__(
        self, model: SegmentedCausalLM, tokenizer: Any, config: ChatConfig, *, write: Callable[[str], None]
    ) -> None:
        self.ended = False
        self.messages: list[dict[str, str]] = []
        """What was said so far, without the system prompt."""
        self.system = config.system
        self._model = model
        self._tokenizer = tokenizer
        self._config = config
        self._write = write
        self._attached: list[str] = []
        self._next_line_is_data = False
        self._last_prompt: Encoding | None = None
        self._stops = stop_token_ids(model, tokenizer)
        if config.seed is not None:
            torch.manual_seed(config.seed)
        self._commands: dict[str, Callable[[str], None]] = {
            _ADD_DATA: self._data,
            "/system": self._set_system,
            "/roles": self._roles,
            "/scale": self._scale,
            "/reset": self._reset,
            "/help": self._help,
            "/quit": self._quit,
            "/exit": self._quit,
        }

    @property
    def prompt(self) -> str:
        """What to show before the next line."""
        if self._next_line_is_data:
            return "data> "
        return f"you [+{len(self._attached)} data]> " if self._attached else "you> "

    def take(self, line: str) -> None:
        """Do what a line says. Errors that the user can mend are written, not raised."""
        try:
            self._take(line)
        except KeyboardInterrupt:  # the answer's own Ctrl-C is handled where it is written
            self._note("stopped")
        except (ValueError, TypeError, OSError, NotImplementedError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            self._note(f"error: {error_line(error)}")

    def forget_half_done(self) -> None:
        """Ctrl-C at the prompt: the line that was to be data is not any more."""
        self._next_line_is_data = False

    def _take(self, line: str) -> None:
        if self._next_line_is_data:
            self._next_line_is_data = False
            self._attach(line, "the line")
        elif not line.strip():
            return
        elif line.startswith("/") and not line.startswith("//"):
            self._command(line)
        else:
            self._say(line[1:] if line.startswith("//") else line)

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name not in self._commands:
            hint = did_you_mean(name, self._commands, cutoff=0.5) or "/help lists them."
            raise ValueError(f"no command {name}; {hint} To say a line that begins with a slash, begin it with //")
        self._commands[name](rest.strip())

    # --- answering ---------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        turn = [{"role": "user", "content": text}, *({"role": "data", "content": data} for data in self._attached)]
        encoding = self._render([*self.messages, *turn])
        self._last_prompt = encoding
        self._attached = []
        answer = self._answer(encoding)
        if answer:
            self.messages += [*turn, {"role": "assistant", "content": answer}]
        else:
            self._note("no answer; your line is not kept")

    def _render(self, messages: list[dict[str, str]]) -> Encoding:
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        room: int | None = getattr(self._model.config, "max_position_embeddings", None)
        encoding = render(
            self._tokenizer, [*system, *messages], add_generation_prompt=True, scheme=self._model.role_scheme
        )
        if room is not None and len(encoding.input_ids) >= room:
            raise ValueError(
                f"the conversation has {len(encoding.input_ids)} tokens and the model takes {room}; "
                "/reset forgets it, or attach less data"
            )
        return encoding

    def _answer(self, encoding: Encoding) -> str:
        pad = self._tokenizer.pad_token_id
        pad = pad if pad is not None else (self._stops or [0])[0]
        room = getattr(self._model.config, "max_position_embeddings", None) or math.inf
        options: dict[str, Any] = {
            "max_new_tokens": int(min(self._config.max_new_tokens, room - len(encoding.input_ids))),
            "pad_token_id": pad,
            "do_sample": self._config.temperature > 0,
        }
        if self._stops:
            options["eos_token_id"] = self._stops
        if self._config.temperature > 0:
            options |= {"temperature": self._config.temperature, "top_p": self._config.top_p, "top_k": 0}
        batch = left_padded([encoding], pad, self._model.role_scheme.output)
        batch = {key: tensor.to(self._model.device) for key, tensor in batch.items()}
        stream = TextStream(self._tokenizer, self._stops, lambda text: self._write(safe_text(text)))
        try:
            with torch.inference_mode():
                self._model.generate(**batch, **options, streamer=stream)
        except KeyboardInterrupt:
            stream.end()
            self._write(" [stopped]")
        self._write("\n")
        return stream.text

    # --- commands ----------------------------------------------------------------------------------------------

    def _data(self, name: str) -> None:
        if not name:
            self._next_line_is_data = True
            return
        path = Path(name).expanduser()
        if path.is_dir():
            raise IsADirectoryError(f"{name} is a directory; name a file in it")
        if not path.is_file():
            raise FileNotFoundError(
                f"no file {name!r}; to enter text as data, type /data alone, and the text on the next line"
            )
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not UTF-8 text ({error.reason} at byte {error.start})") from error
        self._attach(text, name)

    def _attach(self, text: str, what: str) -> None:
        if not text.strip():
            raise ValueError(f"{what} is empty, so nothing was attached")
        self._attached.append(text)
        self._note(f"{what} ({len(text):,} characters) is data for your next line")

    def _set_system(self, text: str) -> None:
        if text:
            self.system = None if text == "-" else text
        self._note("no system prompt" if self.system is None else f"system prompt: {self.system}")

    def _roles(self, _: str) -> None:
        from rich.console import Console

        from rolewise.display import print_tokens, shown_tokens

        if self._last_prompt is None:
            raise ValueError("nothing was asked yet; say something first")
        scheme = self._model.role_scheme
        console = Console(highlight=False)
        with console.capture() as capture:
            tokens = shown_tokens(self._tokenizer, self._last_prompt, scheme)
            print_tokens(tokens, console=console, scheme=scheme)
        self._write(capture.get())

    def _scale(self, text: str) -> None:
        if text:
            try:
                scale = float(text)
            except ValueError:
                scale = math.nan
            if not math.isfinite(scale):
                raise ValueError(f"/scale {text}: give a number, such as 1 (as trained) or 0 (the bare model)")
            self._model.segment_scale = scale
        scale = self._model.segment_scale
        self._note(f"the segment table is multiplied by {scale:g}" + (": the bare model" if scale == 0 else ""))

    def _reset(self, _: str) -> None:
        self.messages, self._attached, self._last_prompt = [], [], None
        self._note("forgotten")

    def _help(self, _: str) -> None:
        width = max(map(len, HELP))
        self._write("".join(f"  {name:<{width}}  {what}\n" for name, what in HELP.items()))

    def _quit(self, _: str) -> None:
        self.ended = True

    def _note(self, text: str) -> None:
        """A line of ours, told from an answer by its bracket."""
        self._write(f"[{safe_text(text)}]\n")
