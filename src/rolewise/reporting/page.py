"""The report as one self-contained HTML page.

Everything that comes from logs is hostile: conversations are attacks, and answers are what attacks made of a model.
Names and figures go through Jinja's autoescape. Conversations and answers stand in a block of JSON, in which no
character can end the block, and the script of the page puts them on the screen as text, never as markup. The content
security policy allows that one script and that one style sheet by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

from rolewise.evaluation.outcomes import CLEAN, Outcome
from rolewise.evaluation.suite_info import SuiteInfo
from rolewise.reporting.cells import Table
from rolewise.reporting.drawings import ACCOMPANIES, accompanying
from rolewise.reporting.figures import GRID, INK, Drawing
from rolewise.reporting.sections import Section, condition_order
from rolewise.reporting.tables import tables
from rolewise.reporting.wording import row_label, shown

_ROLES = {"developer": "system", "tool": "data", "function": "data", "assistant": "output"}


@dataclass(frozen=True, kw_only=True)
class PageSection:
    """What the template needs of a section."""

    key: str
    title: str
    note: str
    gaps: list[str]
    tables: list[Table]
    figures: dict[str, list[Any]]
    """By the key of the table that they stand below."""


def page(*, title: str, lead: str, footer: str, gaps: Sequence[str], sections: Sequence[Section],
         drawings: Mapping[str, Sequence[Drawing]], text: bool = True) -> str:  # fmt: skip
    """The whole page.

    Args:
        title: heading and title.
        lead: a sentence on what this is.
        footer: how it was made.
        gaps: what is missing as a whole.
        sections: one for each suite.
        drawings: for each suite its figures.
        text: whether conversations and answers are in it.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    source = {name: (files("rolewise.reporting") / name).read_text(encoding="utf-8")
              for name in ("page.html.j2", "page.css", "page.js")}  # fmt: skip
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False)
    shown_sections = [
        PageSection(
            key=f"section-{place}",
            title=section.title,
            note=section.provenance(),
            gaps=section.gaps,
            tables=tables(section),
            figures={
                table: [
                    {"title": one.title, "svg": Markup(inline_svg(one, f"{table}-{place}-{at}-"))}
                    for at, one in enumerate(accompanying(table, drawings.get(section.suite, ())))
                ]
                for table in ACCOMPANIES
            },
        )
        for place, section in enumerate(sections, 1)
    ]
    report = {"title": title, "lead": lead, "footer": footer, "gaps": list(gaps), "sections": shown_sections}
    return environment.from_string(source["page.html.j2"]).render(
        report=report,
        policy=_policy(source["page.css"], source["page.js"]),
        style=Markup(source["page.css"]),
        script=Markup(source["page.js"]),
        data=Markup(script_json(rows_data(sections, text=text))),
        has_rows=any(arm.run.outcomes for section in sections for arm in section.arms),
        text=text,
    )


def _policy(style: str, script: str) -> str:
    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {source(script)}; style-src {source(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def script_json(data: Any) -> str:
    """JSON that can stand in a script element: ASCII only, and nothing that HTML would read as markup."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def rows_data(sections: Sequence[Section], *, text: bool = True) -> dict[str, Any]:
    """What the page's script shows as rows; page.js says how it is laid out. Each text is there once."""
    strings: dict[str, int] = {}

    def place(string: str) -> int:
        return strings.setdefault(string, len(strings)) if text else -1

    found: list[Any] = []
    for number, section in enumerate(sections):
        rows: dict[tuple[str, str, int], list[tuple[int, Outcome]]] = {}
        for run, arm in enumerate(section.arms):
            for outcome in arm.run.outcomes:
                rows.setdefault((outcome.id, outcome.condition, outcome.epoch), []).append((run, outcome))
        for (id, _, epoch), outcomes in sorted(rows.items(), key=_row_order):
            first = outcomes[0][1]
            variants: dict[str, list[Any]] = {}
            for run, outcome in outcomes:
                turns = [[role, place(string)] for role, string in turns_of(outcome.messages)] if text else []
                injected = [place(string) for string in _injected(outcome)] if text else []
                rouge = None if outcome.rouge_l is None else round(outcome.rouge_l, 4)
                variant = variants.setdefault(json.dumps(turns), [turns, [], injected])
                verdicts = [_verdict(outcome, name) for name in section.info.criteria]
                variant[1].append([run, place(outcome.output), verdicts, rouge, _grades(section.info, outcome)])
            facts = [[name, place(string)] for name, string in _facts(first)] if text else []
            label = row_label(section.info, first)
            found.append([number, id, epoch, label, first.domain, list(variants.values()), facts])
    return {
        "text": text,
        "strings": list(strings),
        "sections": [
            {
                "title": section.title,
                "runs": [arm.label for arm in section.arms],
                "conditions": section.conditions,
                "criteria": list(section.info.criteria.values()),
                "criterion": list(section.info.criteria).index(section.criterion),
                "good": section.info.good,
                "bad": section.info.bad,
            }
            for section in sections
        ],
        "rows": found,
    }


def _verdict(outcome: Outcome, criterion: str) -> int | None:
    """1 and 0; None where nobody has judged."""
    return int(outcome.verdicts[criterion]) if criterion in outcome.verdicts else None


def _grades(info: SuiteInfo, outcome: Outcome) -> str:
    """What a grader gave or did not give, in a few words; nothing in suites without graders."""
    given = [f"{info.measures[name].title} {value:g}" for name, value in outcome.grades.items()]
    return ", ".join([*given, *(f"{name} ungraded" for name in outcome.ungraded)])


def _row_order(item: tuple[tuple[str, str, int], object]) -> tuple[object, ...]:
    """By sample (row-2 before row-10), then by condition."""
    (id, condition, epoch), _ = item
    digits = re.sub(r"\d+", lambda found: found.group().zfill(12), id)
    return digits, condition_order(condition), epoch


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(role, text) of each part of a conversation; a data part of a user message is data."""
    turns: list[tuple[str, str]] = []
    for message in messages:
        role = str(message.get("role", "unknown"))
        role = _ROLES.get(role, role)
        content = message.get("content")
        parts: list[Any] = content if isinstance(content, list) else [] if content is None else [content]
        for part in parts:
            if isinstance(part, str):
                turns.append((role, part))
            elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
                turns.append(("data" if part.get("type") == "data" else role, part["text"]))
            else:
                turns.append((role, json.dumps(part, ensure_ascii=False, default=str)))
        if message.get("tool_calls"):
            turns.append((role, json.dumps(message["tool_calls"], ensure_ascii=False, default=str)))
    return turns


def _injected(outcome: Outcome) -> list[str]:
    injections = outcome.meta.get("injections") or []
    return [str(one["text"]) for one in injections if isinstance(one, Mapping) and one.get("text")]


def _facts(outcome: Outcome) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    payload = outcome.meta.get("payload")
    if isinstance(payload, Mapping) and outcome.condition != CLEAN:
        facts += [(name, str(payload[name])) for name in ("text", "witness") if payload.get(name)]
    reference = outcome.meta.get("reference", outcome.meta.get("answer"))
    if outcome.condition == CLEAN and reference:
        facts.append(("reference", str(reference)))
    return [("payload" if name == "text" else name, string) for name, string in facts]


_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_CLASSES = {INK: "ink", GRID: "grid", "#ffffff": "page"}
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline_svg(drawing: Drawing, prefix: str) -> str:
    """A figure as an element of the page.

    Its ids get a prefix, as several figures share one page. Style attributes, which the policy forbids, become
    presentation attributes; text, lines and background become classes, so that they follow the page's colours.
    """
    root = ElementTree.fromstring(drawing.svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.removeprefix(_SVG) in ("style", "title", "desc", "metadata"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        _inline(element, prefix)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    title, description = ElementTree.Element("title"), ElementTree.Element("desc")
    title.text, description.text = shown(drawing.title), shown(drawing.description)
    title.set("id", f"{prefix}title")
    description.set("id", f"{prefix}desc")
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}title {prefix}desc")
    root[:0] = [title, description]
    return ElementTree.tostring(root, encoding="unicode")


def _inline(element: ElementTree.Element, prefix: str) -> None:
    if (target := element.attrib.pop(_XLINK, None)) is not None:
        element.set("href", f"#{prefix}{target.removeprefix('#')}")
    for declaration in element.attrib.pop("style", "").split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name:
            element.set(name, value)
    if "id" in element.attrib:
        element.set("id", prefix + element.attrib["id"])
    classes = [f"{_CLASSES[colour.lower()]}-{name}" for name in ("fill", "stroke")
               if (colour := element.attrib.get(name, "")).lower() in _CLASSES]  # fmt: skip
    for one in classes:
        element.attrib.pop(one.rpartition("-")[2])
    if classes:
        element.set("class", " ".join(classes))
    for name, value in element.attrib.items():
        element.set(name, _REFERENCE.sub(rf"url(#{prefix}\1)", value))
