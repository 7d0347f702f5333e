"""Inspections on disk: Markdown, CSV, JSON and figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from rolewise.attacks import attack_names
from rolewise.inspection.figures import drawings
from rolewise.inspection.results import ACCURACY, OFFSET, Inspection
from rolewise.inspection.tables import Shown, attention_rows, csv_text, probe_rows
from rolewise.reporting.figures import Drawing
from rolewise.reporting.tables import escape_markdown
from rolewise.reporting.write import put_file

MADE_BY = "rolewise inspect-attention"
JSON_NAME = "inspection.json"


def check_directory(directory: str | Path) -> Path:
    """The directory to write to, refused when it holds something else than an earlier inspection.

    Raises:
        ValueError: when none is named.
        NotADirectoryError: when it is a file.
        FileExistsError: when it has files, and no inspection.json of ours.
    """
    if not str(directory).strip():
        raise ValueError("no directory is named; give one with -o, such as -o inspection")
    target = Path(directory).expanduser()
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{directory} is a file; name a directory with -o")
    found = {one.name for one in target.iterdir()} if target.is_dir() else set[str]()
    # The marker is written first, so a write that was killed before it has left no more than the marker's beginning.
    if found - {f".{JSON_NAME}.tmp"} and not _is_ours(target / JSON_NAME):
        raise FileExistsError(
            f"{directory} is not empty, and holds no inspection of ours; nothing was written. Name another directory, "
            "or a new one, with -o"
        )
    return target


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return MADE_BY in file.read(200)  # it stands first


def write_inspection(inspections: Sequence[Inspection], directory: str | Path) -> list[Path]:
    """Write inspection.md, attention.csv, probe.csv, figures (PNG and SVG) and inspection.json.

    The first model is the reference that the others are compared with. Files appear whole, inspection.json first: by it
    a directory is known as ours, so that a write that was killed can be done again. Figures of an earlier inspection
    that this one does not have are removed.

    Args:
        inspections: one of each model, on the same samples.
        directory: where to; it is made.

    Returns:
        The files.

    Raises:
        ImportError: when matplotlib is not installed.
        ValueError: when there is nothing to write, or two models have one label.
        NotADirectoryError, FileExistsError: as for `check_directory`.
    """
    labels = [one.label for one in inspections]
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"labels={labels} must be one or more, each for one model")
    target = check_directory(directory)
    if find_spec("matplotlib") is None:
        raise ImportError("figures need matplotlib; in your clone of Rolewise: pip install -e '.[eval]'")
    drawn = drawings(inspections)
    stored = {"made_by": MADE_BY, "models": [one.to_dict() for one in inspections]}
    texts = {
        JSON_NAME: json.dumps(stored) + "\n",
        "attention.csv": csv_text(inspections, "attention"),
        "probe.csv": csv_text(inspections, "probe"),
        "inspection.md": markdown(inspections, drawn),
    }
    contents = {name: text.encode() for name, text in texts.items()}
    contents |= {f"{one.name}.png": one.png for one in drawn} | {f"{one.name}.svg": one.svg for one in drawn}
    target.mkdir(parents=True, exist_ok=True)
    written = [put_file(target / JSON_NAME, contents.pop(JSON_NAME))]
    for stale in _figure_files() - set(contents):
        (target / stale).unlink(missing_ok=True)
    return written + [put_file(target / name, body) for name, body in contents.items()]


def _figure_files() -> set[str]:
    """The names of all figures that an inspection may have."""
    names = [f"attention-{condition}" for condition in ("clean", *attack_names())]
    names += [f"probe-{measure}" for measure in (ACCURACY, OFFSET)]
    return {f"{name}.{kind}" for name in names for kind in ("png", "svg")}


def markdown(inspections: Sequence[Inspection], drawn: Sequence[Drawing]) -> str:
    """The tables, the figures, and what they were made of."""
    settings = inspections[0].settings
    names = ", ".join(f"{name} {number}" for name, number in inspections[0].versions.items())
    attacks = ", ".join(settings["attacks"]) or "no attack"
    answers = "the reference answer" if settings["answers"] == "reference" else "each model's own greedy answer"
    read = (
        f"; clean and under {escape_markdown(attacks)}, with {answers} of up to {settings['answer_tokens']} tokens"
        if any(one.kind == "attention" for one in inspections[0].measurements)
        else ""
    )
    lines = [
        "# Roles inside",
        "",
        f"{escape_markdown(inspections[0].counted())}{read}. Seed {settings['seed']}. Intervals are at 95 %, over "
        "samples or over pairs. Every layer's figures, and differences to the first model paired by sample, are in "
        "attention.csv and probe.csv. Attention weights show where a model looks, not why it answers as it does.",
        "",
        "| model | architecture | layers | table's scale | its ratio to the embeddings |",
        "|---|---|---|---|---|",
    ]
    for one in inspections:
        ratio = "—" if one.model["table_ratio"] is None else f"{one.model['table_ratio']:.3f}"
        cells = (
            escape_markdown(one.label),
            one.model["architecture"],
            one.model["layers"],
            one.model["segment_scale"],
            ratio,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        *(f"- {escape_markdown(one.label)}: {escape_markdown(said)}" for one in inspections for said in one.remarks),
    ]
    for title, rows, prefix in (
        ("Attention", attention_rows(inspections, by_depth=True), "attention"),
        ("Probe", probe_rows(inspections, every_layer=True), "probe"),
    ):
        table = list(_table(rows, [one.label for one in inspections]))
        if table:
            lines += ["", f"## {title}", ""]
            for one in drawn:
                if one.name.startswith(prefix):
                    lines += [f"![{escape_markdown(one.title)}]({one.name}.svg)", ""]
            lines += table
    return "\n".join([*lines, "", names, ""])


def _table(rows: Iterable[Shown], labels: Sequence[str]) -> Iterable[str]:
    previous = ""
    for heading, label, cells in rows:
        if heading != previous:
            yield from (
                ("", f"### {escape_markdown(heading)}", "") if previous else (f"### {escape_markdown(heading)}", "")
            )
            yield f"| | {' | '.join(map(escape_markdown, labels))} |"
            yield "|---|" + "---|" * len(labels)
        previous = heading
        yield f"| {escape_markdown(label)} | {' | '.join(cells)} |"
