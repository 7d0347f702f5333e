"""The HTML page: hostile text stays text, nothing is requested, and it says and shows what it should."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from rolewise.evaluation.outcomes import CEILING, CLEAN, Run
from rolewise.reporting import build_sections, write_report
from rolewise.reporting.drawings import drawings
from rolewise.reporting.page import inline_svg, page, rows_data, script_json, turns_of

from .reporting_runs import ATTACKS, SECOND, outcome, run

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)> \"'` & --> <!-- <script> ]]> {{ 7*7 }} {% raw %} "
    "\u2028\u2029\u202e\u2066\udfff\ud800\x00\x1b[31m\r\n https://evil.example/x.js javascript:alert(1) $a_1$"
)


class Page(HTMLParser):
    """Every element with its attributes, and the texts of scripts and styles."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of <{tag}> stands twice"
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in ("script", "style") and data.strip():
            self.raw.append((*self.elements[-1], data))

    @property
    def policy(self) -> dict[str, str]:
        (content,) = [at["content"] for tag, at in self.elements if at.get("http-equiv") == "Content-Security-Policy"]
        assert content
        return {name: value for name, _, value in (part.strip().partition(" ") for part in content.split(";"))}

    @property
    def data(self) -> Any:
        (text,) = [data for tag, at, data in self.raw if at.get("id") == "data"]
        return json.loads(text)


def page_of(runs: list[Run], *, figures: bool = False, text: bool = True, title: str = "Report") -> str:
    """The page; drawing takes the most time, and few tests need it."""
    sections = build_sections(runs)
    drawn = {section.suite: drawings(section) for section in sections} if figures else {}
    return page(title=title, lead="", footer="", gaps=[], sections=sections, drawings=drawn, text=text)


def hostile_run() -> Run:
    """Hostile text wherever a log has text."""
    conditions = (CLEAN, *ATTACKS, CEILING)
    meta = {
        "injections": [{"text": " injected"}],
        "reference": HOSTILE,
        "payload": {"text": HOSTILE, "witness": HOSTILE},
    }
    outcomes = [
        outcome(
            one.id,
            one.condition,
            one.followed("in_response"),
            output=HOSTILE,
            messages=[{"role": HOSTILE, "content": HOSTILE}, {"role": "data", "content": HOSTILE + " injected"}],
            meta=one.meta | meta,
        )
        for one in run(conditions=conditions).outcomes
    ]
    return run(HOSTILE, outcomes=outcomes, model=HOSTILE, settings={HOSTILE: HOSTILE, "task": {"seed": HOSTILE}},
               versions={HOSTILE: HOSTILE}, created=HOSTILE, probe=HOSTILE)  # fmt: skip


def test_no_element_comes_from_content() -> None:
    plain = Page(page_of([run("plain", probe="probe")], figures=True))
    hostile = Page(page_of([hostile_run()], figures=True, title=HOSTILE))
    # Long names wrap into more lines of a figure; all other elements are the same ones.
    figure = {"g", "path", "use", "defs", "clippath", "rect"}
    counts = [Counter(tag for tag, _ in page.elements if tag not in figure) for page in (plain, hostile)]
    assert counts[0] == counts[1]
    assert {tag for tag, _ in plain.elements} == {tag for tag, _ in hostile.elements}
    assert len([tag for tag, _ in hostile.elements if tag == "script"]) == 2
    for _, attributes in hostile.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]


def test_content_arrives_whole() -> None:
    data = Page(page_of([hostile_run()])).data
    assert HOSTILE in data["strings"]
    assert HOSTILE + " injected" in data["strings"]
    section, id, epoch, condition, domain, variants, facts = data["rows"][1]
    assert (section, id, epoch, condition, domain) == (0, "s1", 1, "naive", "in_domain")
    ((turns, answers, injected),) = variants
    assert [data["strings"][place] for _, place in turns] == [HOSTILE, HOSTILE + " injected"]
    assert [data["strings"][place] for place in injected] == [" injected"]
    assert answers == [[0, data["strings"].index(HOSTILE), [1, 1], None, ""]]
    assert [name for name, _ in facts] == ["payload", "witness"]


def test_json_in_a_script_holds_no_markup() -> None:
    text = script_json([HOSTILE])
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == [HOSTILE]


def test_the_policy_allows_our_script_and_no_request() -> None:
    source = page_of([run(), run("second", SECOND)], figures=True)
    page = Page(source)
    policy = page.policy
    assert policy["default-src"] == "'none'"
    assert policy["img-src"] == "data:"
    assert policy["base-uri"] == policy["form-action"] == "'none'"
    assert not re.search(r"unsafe|\*|https?:", " ".join(policy.values()))
    for kind, directive in (("script", "script-src"), ("style", "style-src")):
        (text,) = [data for tag, at, data in page.raw if tag == kind and "type" not in at]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    assert not re.search(r"https?:|//\w+\.\w", source)
    for tag, attributes in page.elements:
        for name in ("href", "src", "xlink:href", "action", "srcset", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), (tag, attributes)
    script = next(data for tag, at, data in page.raw if tag == "script" and "type" not in at)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|fetch|import\(", script)


def test_ids_are_unique_and_references_lead_somewhere() -> None:
    source = page_of([run(), run("second", SECOND), run(suite="sep")], figures=True)
    elements = Page(source).elements
    ids = Counter(attributes["id"] for _, attributes in elements if "id" in attributes)
    assert max(ids.values()) == 1
    for _, attributes in elements:
        wanted = [(attributes.get(name) or "").removeprefix("#") for name in ("href",)]
        wanted += " ".join(attributes.get(name) or "" for name in ("aria-labelledby", "aria-describedby")).split()
        wanted += re.findall(r"url\(#([^)]+)\)", " ".join(value or "" for value in attributes.values()))
        assert all(one in ids for one in wanted if one and not one.startswith("data:")), attributes


def test_tables_sort_by_buttons() -> None:
    elements = Page(page_of([run(), run("second", SECOND)])).elements
    headings = [place for place, (tag, at) in enumerate(elements) if tag == "th" and at.get("scope") == "col"]
    assert headings
    for place in headings:
        assert elements[place][1]["aria-sort"] == "none"
        assert elements[place + 1] == ("button", {"type": "button"})
    assert all("data-sort" in at for tag, at in elements if tag == "td")


def test_text_can_be_left_out(tmp_path: Path) -> None:
    secret = "the ships left at dawn"
    told = [
        outcome(one.id, one.condition, one.followed("in_response"), output=f"{secret} (answer)",
                messages=[{"role": "data", "content": secret}],
                meta=one.meta | {"reference": secret, "injections": [{"text": secret}]})
        for one in run().outcomes
    ]  # fmt: skip
    assert secret in page_of([run(outcomes=told)])
    for path in write_report(build_sections([run(outcomes=told)]), tmp_path, text=False):
        assert secret.encode() not in path.read_bytes()
    source = (tmp_path / "index.html").read_text("utf-8")
    page = Page(source)
    assert page.data["strings"] == []
    assert len(page.data["rows"]) == 16
    assert "left out of this report (--no-text)" in source


def test_runs_that_were_asked_differently_show_both_conversations() -> None:
    asked = [{"role": "data", "content": "[RESP]"}]
    other = [outcome(one.id, one.condition, one.followed("in_response"), messages=asked)
             if one.condition == "naive" else one for one in run().outcomes]  # fmt: skip
    rows = rows_data(build_sections([run(), run("second", outcomes=other)]))["rows"]
    assert [len(row[5]) for row in rows if row[1] == "s1"] == [1, 2, 1, 1]
    assert [len(variant[1]) for variant in rows[0][5]] == [2]


def test_roles_of_parts() -> None:
    messages = [
        {"role": "developer", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "data", "text": "c"}, {"type": "image"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "d"},
    ]
    assert turns_of(messages) == [
        ("system", "a"),
        ("user", "b"),
        ("data", "c"),
        ("user", '{"type": "image"}'),
        ("output", '[{"id": "1"}]'),
        ("data", "d"),
    ]


def test_gaps_stand_in_the_page() -> None:
    source = page_of([run(complete=False, expected=20)])
    assert "first: the run is incomplete, 16 of 20 answers" in source


def test_figures_of_the_page_follow_its_colours() -> None:
    (section,) = build_sections([run(), run("second", SECOND)])
    for place, drawing in enumerate(drawings(section)):
        svg = inline_svg(drawing, f"f{place}-")
        root = ElementTree.fromstring(svg)
        assert (root.get("role"), root[0].text) == ("img", drawing.title)
        assert root[1].text == drawing.description
        colours = {element.get(name) for element in root.iter() for name in ("fill", "stroke")}
        assert not {"#1b1f24", "#d0d7de", "#ffffff"} & colours
        assert {"ink-fill", "ink-stroke"} & {element.get("class") for element in root.iter()}
        assert not [element for element in root.iter() if "style" in element.attrib or element.tag == "style"]


def test_the_page_works_in_a_browser(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")

    def dumped(address: str) -> subprocess.CompletedProcess[bytes]:
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom")
        command = [browser, *options, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", address]
        return subprocess.run(command, capture_output=True, timeout=120)

    if dumped("about:blank").returncode != 0:
        pytest.skip("Chromium does not start here")
    (tmp_path / "index.html").write_bytes(page_of([hostile_run(), run("second", SECOND)]).encode())
    done = dumped(f"{(tmp_path / 'index.html').as_uri()}#row-1")
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    dom = Page(done.stdout.decode("utf-8"))
    opened = [at for _, at in dom.elements if at.get("aria-expanded") == "true"]
    assert [at["id"] for at in opened] == ["row-1"]
    classes = Counter(at.get("class") for _, at in dom.elements)
    assert classes["row"] == 16
    assert classes["turn output"] == 2 + 1  # two answers and the legend
    assert classes["escape"] > 10
    assert len([tag for tag, _ in dom.elements if tag == "mark"]) >= 2
    assert not [tag for tag, _ in dom.elements if tag == "img"]
    assert len([tag for tag, _ in dom.elements if tag == "script"]) == 2
