"""Arguments of a subcommand: a frozen dataclass in, its values out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import tyro

_Config = TypeVar("_Config")


def parse(
    config: type[_Config], arguments: Sequence[str], *, command: str, teach: str, default: _Config | None = None
) -> _Config:
    """Read `arguments` into `config`; exits as argparse does, with 0 after `--help` and 2 after a wrong argument.

    Args:
        config: a dataclass whose attribute docstrings are the options' help.
        arguments: what stands after the command's name.
        command: the command's name.
        teach: what `--help` says first: what the command is for, with an example.
        default: values to start from.
    """
    options: dict[str, Any] = {} if default is None else {"default": default}
    return tyro.cli(config, prog=f"rolewise {command}", description=teach, args=list(arguments), **options)
