"""Guides against a server: their code runs as it stands, with the server's address for that of the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rolewise.engine.decoding import Request
from tests.serving_fakes import ScriptedBackend
from tests.test_docs import DOCS, blocks

ADDRESS = "http://localhost:8000"
MODEL = "smollm2-135m"


TITLED = re.compile(r'^```[\w-]+ title="(?P<name>[^"]+)"\n(?P<body>.*?)^```$', re.MULTILINE | re.DOTALL)


def write_files(name: str, url: str) -> None:
    """Write the files of a guide, which are its blocks with a title, into the working directory."""
    for found in TITLED.finditer((DOCS / "how-to" / name).read_text(encoding="utf-8")):
        path = Path(found["name"])
        path.parent.mkdir(exist_ok=True)
        path.write_text(found["body"].replace(ADDRESS, url), encoding="utf-8")


def run_guide(name: str, url: str, *, left_out: str = "") -> dict[str, Any]:
    """Run the Python of a guide in the working directory, and give what it has defined.

    Its files are written first. A block that holds `left_out` is not run.
    """
    write_files(name, url)
    files = {found["body"] for found in TITLED.finditer((DOCS / "how-to" / name).read_text(encoding="utf-8"))}
    namespace: dict[str, Any] = {"__name__": "__guide__"}
    for body, _ in blocks(DOCS / "how-to" / name, "python"):
        if body not in files and not (left_out and left_out in body):
            exec(compile(body.replace(ADDRESS, url), name, "exec"), namespace)
    return namespace


def commands(name: str, program: str, url: str) -> list[tuple[dict[str, str], list[str]]]:
    """The command lines of a guide that call a program: the variables before it, and the words after it."""
    found: list[tuple[dict[str, str], list[str]]] = []
    for body, _ in blocks(DOCS / "how-to" / name, "sh"):
        for line in body.replace("\\\n", " ").replace(ADDRESS, url).splitlines():
            words = shlex.split(line)
            variables: dict[str, str] = {}
            while words and re.match(r"[A-Z_]+=", words[0]):
                variable, _, value = words.pop(0).partition("=")
                variables[variable] = value
            if words and words[0] == program:
                found.append((variables, words[1:]))
    return found


def spans(backend: ScriptedBackend, request: Request) -> list[tuple[str, str]]:
    """What reached the engine: runs of one role, with their text."""
    pairs = zip(request.input_ids, request.segment_ids, strict=True)
    return [
        (backend.scheme.names[row], str(backend.tokenizer.decode([token for token, _ in run])))
        for row, run in groupby(pairs, key=lambda pair: pair[1])
    ]


def said_by(role: str, some: Sequence[tuple[str, str]]) -> str:
    """All text of a role."""
    return "".join(text for name, text in some if name == role)
