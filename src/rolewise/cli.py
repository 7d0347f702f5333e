"""The `rolewise` command: finds the subcommand, and turns errors into one line and an exit status."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

import rolewise
from rolewise.unknown import did_you_mean

COMMANDS = {
    "quickstart": "fine-tune SmolLM2-135M with and without roles, attack both, compare (10 minutes, 2 cores)",
    "show": "print conversations as the model gets them: tokens, coloured by role",
    "train": "fine-tune a model from a YAML recipe",
    "generate": "answer a JSONL file of conversations, in batches; a killed run goes on where it was",
    "data": "make training rows: Structured Query, conflicts between roles, the Instruction Hierarchy",
    "attacks": "list the prompt injections, each with an example",
    "attack": "inject a payload into each conversation of a file",
    "eval": "attack models and compare them in one table, suite by suite; a killed run goes on",
    "report": "make tables, figures and an HTML page from evaluation logs",
    "reproduce": "the paper's Instruction Hierarchy benchmark whole: every suite, Figure 5, Tables 4 to 8",
    "serve": "models behind OpenAI's chat API, where no client can forge a role; a page to try them",
    "export": "a trained model for others: whole in one directory, or folded for stock engines; with a model card",
    "chat": "talk to a model in the terminal, and hand it files as data",
    "inspect-attention": "where answers attend, and how well each layer tells user from data",
    "lab": "a small model of our own, trained from nothing in minutes: the four arms side by side",
}
"""Each is a module of `rolewise.commands` (`-` is `_`) with `main(arguments) -> int`; only the chosen is imported."""

USAGE = "usage: rolewise [--version] [--debug] COMMAND ..."
_USER_ERRORS = (ValueError, TypeError, OSError, ImportError, NotImplementedError, MemoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `rolewise` with the given arguments (the process's own by default). Returns the exit status.

    0 is success, 2 an error that the user can mend, 1 an error of ours, 130 Ctrl-C, 141 a closed pipe.
    `--debug`, or ROLEWISE_DEBUG=1, shows the traceback of an error.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or os.environ.get("ROLEWISE_DEBUG", "0") not in ("", "0")
    given = [argument for argument in given if argument != "--debug"]
    try:
        status = _dispatch(given)
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # how tyro ends, after --help and after an argument that it does not know
        return _flushed(stop.code)
    except KeyboardInterrupt:
        if debug:
            raise
        _complain("interrupted")
        return 130
    except BrokenPipeError:
        _silence_stdout()
        return 141
    except Exception as error:
        if debug:
            raise
        if isinstance(error, _USER_ERRORS) or type(error).__name__ == "OutOfMemoryError":
            _complain(f"error: {error_line(error)}")
            return 2
        _complain(f"unexpected {type(error).__name__}: {error_line(error)} (rolewise --debug ... shows where)")
        return 1


def error_line(error: BaseException) -> str:
    """What an error says, in one line that a terminal can show."""
    from rolewise.display import safe_text

    text = str(error)
    if isinstance(error, OSError) and error.strerror and text.startswith("[Errno"):
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    return safe_text(" ".join(text.split()) or type(error).__name__)


def _dispatch(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if given[0] in ("-V", "--version"):
        print(f"rolewise {rolewise.__version__}")
        return 0
    name = given[0]
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS, cutoff=0.4) or f"the commands are {', '.join(COMMANDS)}"
        kind = "option" if name.startswith("-") else "command"
        raise ValueError(f"unknown {kind} {name!r}; {hint} (rolewise --help lists them)")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    return int(importlib.import_module(f"rolewise.commands.{name.replace('-', '_')}").main(given[1:]))


def _help() -> str:
    lines = [f"  {name:<17} {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            USAGE,
            "",
            "Language models that know who is speaking: every token is of the system, the user, data or the model.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  --version   print the version",
            "  --debug     show the traceback of an error",
            "",
            "start here:",
            "  rolewise quickstart",
            '  echo \'[{"role": "user", "content": "Translate."}, {"role": "data", "content": "Hola"}]\' > chat.json',
            "  rolewise show chat.json",
            "  rolewise COMMAND --help",
        ]
    )


def _flushed(code: object) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return 141
    if code is None or isinstance(code, int):
        return code or 0
    _complain(str(code))
    return 2


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"rolewise: {text}", file=sys.stderr)


def _silence_stdout() -> None:
    """Nobody reads any more: let the interpreter's last flush go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    raise SystemExit(main())
