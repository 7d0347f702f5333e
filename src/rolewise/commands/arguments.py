"""Arguments of a subcommand: a frozen dataclass in, its values out."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

_Config = TypeVar("_Config")

_RULE = re.compile("[─╭╮╰╯]{3}|-{4}")
_CHOICES = re.compile(
    r"(?P<start>invalid choice '(?P<given>.*)' for argument .*?\.\s+Expected\s+one\s+of\s+)(?P<all>\(.*\))"
)
_EDGE = re.compile("^(│ |  )")  # the second, and the second rule, where the terminal knows ASCII only


def parse(
    config: type[_Config], arguments: Sequence[str], *, command: str, teach: str, default: _Config | None = None
) -> _Config:
    """Read `arguments` into `config`; exits with 0 after `--help`.

    Args:
        config: a dataclass whose attribute docstrings are the options' help.
        arguments: what stands after the command's name.
        command: the command's name.
        teach: what `--help` says first: what the command is for, with an example.
        default: values to start from.

    Raises:
        ValueError: in one line, when an option is unknown, lacks a value, or has one of another kind, or no text.
    """
    _require_text(arguments)
    options: dict[str, Any] = {} if default is None else {"default": default}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                config,
                prog=f"rolewise {command}",
                description=_flowing(teach),
                args=list(arguments),
                config=(tyro.conf.DisallowNone,),  # an option that was not given is None; help need not offer it
                registry=_in_our_words(),
                **options,
            )
    except SystemExit as stop:
        if stop.code != 2 or not (problem := _in_one_line(said.getvalue())):
            sys.stderr.write(said.getvalue())
            raise
        problem = as_options(problem.removeprefix(f"Error parsing {config.__name__}: "), config)
        raise ValueError(f"{problem} (rolewise {command} --help lists the options)") from None


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse bytes that are not UTF-8, which no log or row could hold, unless they are the name of a file."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            if not os.path.exists(argument):
                raise ValueError(
                    f"the argument {argument!r} is not UTF-8 text (character {error.start}); write it in UTF-8"
                ) from None


def _in_our_words() -> ConstructorRegistry:
    """Tyro's own rules, but help says neither `(default: None)` nor `(default: )`, and breaks lines at its own width.

    The former cannot be typed, and what it means that an option is absent, the option's text says. Tyro keeps the
    line breaks of docstrings whose further lines are indented, as they are in a class.
    """
    registry = ConstructorRegistry()
    inside = False

    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        nonlocal inside
        if inside or not dataclasses.is_dataclass(info.type):
            return None
        inside = True
        try:
            spec = ConstructorRegistry.get_struct_spec(info)  # what the rule after this one makes of it
        finally:
            inside = False
        if not isinstance(spec, StructConstructorSpec):
            return None
        hint: Any = tyro.conf.arg(help_behavior_hint=_told_default)
        fields = [
            dataclasses.replace(field, type=Annotated[field.type, hint])
            if field.default in (None, ()) or tyro.conf.Positional in getattr(field.type, "__metadata__", ())
            else field  # booleans and repeatable options have hints of their own
            for field in spec.fields
        ]
        fields = [dataclasses.replace(field, helptext=_flowing_help(field.helptext)) for field in fields]
        return StructConstructorSpec(instantiate=spec.instantiate, fields=tuple(fields))

    registry.struct_rule(rule)
    return registry


def _flowing_help(text: str | Callable[[], str | None] | None) -> Callable[[], str | None]:
    def told() -> str | None:
        found = text() if callable(text) else text
        return None if found is None else _flowing(inspect.cleandoc(found))

    return told


def _flowing(text: str) -> str:
    """`text` with each paragraph in one line; lines that are indented, as examples are, and items of lists stay."""
    return re.sub(r"(?<=\S)\n(?=\S)(?![-*] )", " ", text)


def _told_default(label: str) -> str:
    return "" if label in ("", "None") else f"(default: {label})"


@contextlib.contextmanager
def named_as_options(config: type[Any]) -> Generator[None]:
    """Within, a ValueError about a setting of `config` names it as one types it (see `as_options`)."""
    try:
        yield
    except ValueError as error:
        raise type(error)(*(as_options(str(one), config) for one in error.args)) from error


def as_options(problem: str, config: type[Any]) -> str:
    """`problem` with settings as one types them: `--max-rows 0` for `max_rows=0`, `--twins` for `twins=True`."""
    names = sorted((field.name for field in dataclasses.fields(config)), key=len, reverse=True)
    setting = re.compile(rf"(?<![\w.-])({'|'.join(names)})=(?:(True\b)|'([\w-]+)'|(?=[^\s=]))")

    def typed(found: re.Match[str]) -> str:
        option = f"--{found[1].replace('_', '-')}"
        return option if found[2] else f"{option} {found[3] or ''}"

    return setting.sub(typed, problem)


def _in_one_line(box: str) -> str:
    """What tyro says of a wrong argument in a box with the options' help: what is wrong, and which options it means.

    The first part of the box has the problem; a later one may have near matches. Help is indented more deeply.
    """
    parts: list[list[str]] = [[]]
    for line in box.splitlines():
        if _RULE.search(line):
            parts.append([])
        else:
            parts[-1].append(_EDGE.sub("", line.rstrip("│ "), count=1))
    if "╭" not in box:  # there the title stands in a line of its own
        del parts[0]
    parts = [part for part in parts if part]
    if not parts:
        return ""
    problem = " ".join(line.strip() for line in parts[0] if not line.startswith(" " * 5)).rstrip(".")
    problem = _CHOICES.sub(_choices, problem)
    hints = [line for part in parts[1:] if part[0].startswith("Perhaps") for line in part if line.startswith("    --")]
    near = list(dict.fromkeys(line.split()[0] for line in hints))
    return problem + (f"; did you mean {' or '.join(near)}?" if near else "")


def _choices(found: re.Match[str]) -> str:
    """Tyro's text of a wrong choice with the choices in a fixed order, and a near match.

    Tyro takes them from a set, and counts None among them, which is what an option that is not given has.
    """
    try:
        named: tuple[str, ...] = ast.literal_eval(found["all"])
    except (ValueError, SyntaxError):  # a choice that was broken over lines
        return found[0]
    names = sorted(set(named) - {"None"})
    near = difflib.get_close_matches(found["given"], names, n=1)
    return f"{found['start']}{', '.join(map(repr, names))}" + (f"; did you mean {near[0]}?" if near else "")
