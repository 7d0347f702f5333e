"""From runs to the files of a report."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from rolewise.reporting.csv_export import csv_files
from rolewise.reporting.drawings import accompanying, drawings
from rolewise.reporting.figures import Drawing
from rolewise.reporting.page import page
from rolewise.reporting.sections import Section
from rolewise.reporting.tables import escape_markdown, markdown, tables
from rolewise.reporting.wording import counted, shown

FIGURES = "figures"


def write_report(
    sections: Sequence[Section], directory: str | Path, *, text: bool = True, title: str = "Robustness report"
) -> list[Path]:
    """Write report.md, CSV files, figures (PNG and SVG) and index.html; the same runs give the same bytes.

    What is missing, or mixed, is said in the report. Files appear whole, index.html last; until then a page that says
    so stands in its place, by which a report that was killed is known and can be made again. Figures of an earlier
    report that this one does not have are removed.

    Args:
        sections: from `build_sections`; none at all gives a report that says so.
        directory: where to; it is made.
        text: whether conversations and answers stand in index.html. Leave them out of what you publish, unless the
            corpus may be passed on.
        title: the heading.

    Returns:
        The files, index.html last.

    Raises:
        ImportError: when matplotlib or jinja2 is not installed; it names the extra.
        NotADirectoryError: when `directory` is a file.
        FileExistsError: when it holds something other than an earlier report.
    """
    from tqdm import tqdm

    target = Path(directory)
    check_target(directory)
    _need("matplotlib", "jinja2")
    drawn = {section.suite: drawings(section) for section in tqdm(sections, "drawing", leave=False, disable=None)}
    title, lead, footer = shown(title), _lead(sections), _footer()
    gaps = [] if sections else ["there are no runs, so there is nothing to report."]
    contents: dict[str, bytes] = {}
    for found in drawn.values():
        for one in found:
            contents[f"{FIGURES}/{one.name}.png"] = one.png
            contents[f"{FIGURES}/{one.name}.svg"] = one.svg
    contents |= {name: body.encode() for name, body in csv_files(sections).items()}
    contents["report.md"] = _markdown(title, lead, footer, gaps, sections, drawn).encode()
    contents["index.html"] = page(
        title=title, lead=lead, footer=footer, gaps=gaps, sections=sections, drawings=drawn, text=text
    ).encode()
    (target / FIGURES).mkdir(parents=True, exist_ok=True)
    if not (target / "index.html").exists():
        put_file(target / "index.html", _UNFINISHED.encode())
    for stale in (target / FIGURES).iterdir():
        if f"{FIGURES}/{stale.name}" not in contents and _OURS.fullmatch(stale.name):
            stale.unlink()
    return [put_file(target / name, body) for name, body in contents.items()]


def check_target(directory: str | Path) -> None:
    """Refuse a directory whose files a report would replace and that are not a report's.

    A report is known by the index.html that says that it made it.

    Raises:
        ValueError: when no directory is named.
        NotADirectoryError: when it is a file.
        FileExistsError: when it has files, and no report among them.
    """
    if not str(directory).strip():
        raise ValueError("no directory is named; give one with -o, such as -o report")
    target = Path(directory)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{directory} is a file; name a directory with -o")
    index = target / "index.html"
    mine = index.is_file() and MARK in index.read_text(encoding="utf-8", errors="replace")[:4096]
    if target.is_dir() and not mine:
        theirs = next((one.name for one in sorted(target.iterdir()) if one.name in _WRITTEN), None)
        if theirs is not None:
            raise FileExistsError(
                f"{directory} has another {theirs}, not of a report of ours; nothing was written. Name another "
                "directory, or a new one, with -o"
            )


MARK = '<meta name="generator" content="rolewise report">'
"""In a report's index.html (page.html.j2): what may be replaced by the next report."""
_UNFINISHED = f"""<!doctype html>
<meta charset="utf-8">
{MARK}
<title>Unfinished report</title>
<p>This report is not finished. If nothing is writing it any more, make it again: rolewise report.</p>
"""
_WRITTEN = ("index.html", "report.md", "runs.csv", "attacks.csv", "figures.csv", "differences.csv", "data_length.csv",
            "kinds.csv", "spans.csv", "curves.csv")  # fmt: skip


def _need(*modules: str) -> None:
    for name in modules:
        if find_spec(name) is None:
            raise ImportError(f"a report needs {name}; in your clone of Rolewise: pip install -e '.[eval]'")


_OURS = re.compile(r"[\w-]+-(attacks|budget|overall|radar|separation|length|kinds)\.(png|svg)|\.[\w-]+\.(png|svg)\.tmp")


def put_file(path: Path, body: bytes) -> Path:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_bytes(body)
    os.replace(unfinished, path)
    return path


def _lead(sections: Sequence[Section]) -> str:
    if not sections:
        return "No runs."
    runs = sum(len(section.arms) for section in sections)
    rules = dict.fromkeys(f"{section.rule} ({section.criterion})." for section in sections)
    if len(rules) == 1:
        said = next(iter(rules))
    else:
        said = " ".join(
            f"{section.title}: {section.rule[0].lower()}{section.rule[1:]} ({section.criterion})."
            for section in sections
        )
    return f"{counted(runs, 'run')}. {said} Intervals are at {100 * sections[0].confidence:g} % confidence."


def _footer() -> str:
    import rolewise

    return f"Made by rolewise report, version {rolewise.__version__}."


def _markdown(
    title: str,
    lead: str,
    footer: str,
    gaps: Sequence[str],
    sections: Sequence[Section],
    drawn: Mapping[str, Sequence[Drawing]],
) -> str:
    lines = [f"# {escape_markdown(title)}", "", escape_markdown(lead), ""]
    lines += [f"**Missing:** {escape_markdown(line)}\n" for line in gaps]
    for section in sections:
        lines += [f"## {escape_markdown(section.title)}", "", escape_markdown(section.provenance()), ""]
        if section.gaps:
            lines += ["**What is missing or mixed**", "", *(f"- {escape_markdown(line)}" for line in section.gaps), ""]
        for table in tables(section):
            lines += [f"### {table.title}", "", markdown(table)]
            for one in accompanying(table.key, drawn[section.suite]):
                lines += [f"![{escape_markdown(one.title)}]({FIGURES}/{one.name}.svg)", ""]
    return "\n".join([*lines, escape_markdown(footer), ""])
