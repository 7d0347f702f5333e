"""Several models in one table: figures with intervals, and each model's difference to the first, the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolewise.attacks import IN_DOMAIN_ATTACKS, OOD_ATTACKS, SECALIGN_ATTACKS
from rolewise.evaluation.kind_table import difference_text, kind_meanings, kind_rows, measured_text
from rolewise.evaluation.kinds import shared_criterion
from rolewise.evaluation.outcomes import CEILING, Run
from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.suite_info import Measure, SuiteInfo, suite_info
from rolewise.evaluation.summary import Difference, Summary, compare, summarise
from rolewise.evaluation.unaskable import LEFT_OUT, refusals_line

if TYPE_CHECKING:
    from rich.console import Group

_UTILITY = {
    "rouge_l": "utility: ROUGE-L",
    "correct": "utility: tasks done",
    "reference_logprob": "utility: reference (nats/token)",
    "win": "utility: win rate",
}
_DOMAINS = {"main": "main four", "in_domain": "in-domain", "ood": "OOD", "secalign": "SecAlign"}
_WHOLE = {"in_domain": IN_DOMAIN_ATTACKS, "ood": OOD_ATTACKS, "secalign": SECALIGN_ATTACKS}

DEAF = 0.3
"""A model with a ceiling below this share follows so little that its robustness says little."""
FEW_SAMPLES = 20
"""With fewer samples than this, the bootstrap's intervals are too narrow."""

MUCH_CUT = 0.2
"""From this share of cut answers on, the ceiling may be a matter of the tokens that an answer may have."""

_KEY_FIGURES = {False: ("separation", "score"), True: (": average",)}
"""By whether a suite goes by kind, how the labels end of the figures to look at first."""

Row = tuple[str, list[str], list[str], bool]
"""A label, each model's cell, each model's difference to the reference ("" for itself), and whether a rule follows."""


def figure_rows(runs: Sequence[Run], criterion: str | None = None) -> list[Row]:
    """The rows of the table, in text.

    Raises:
        ValueError: when there are no runs, or they are of different suites.
    """
    if not runs:
        raise ValueError("there are no runs to show; evaluate at least one model")
    criterion = shared_criterion(runs, criterion)
    summaries = [summarise(run, criterion) for run in runs]
    differences = [compare(one, summaries[0]) for one in summaries[1:]]
    sep = runs[0].suite == "sep"
    rows: list[Row] = [("samples", [_samples(one) for one in summaries], [""] * len(runs), True)]
    if suite_info(runs[0].suite).kind:
        return [*rows, *_rows_by_kind(summaries, differences)]

    def add(label: str, found: list[Estimate | None], key: str | None = None, *, always: bool = False) -> None:
        if all(one is None for one in found) and not always:
            return
        nats = key == "reference_logprob"
        cells = ["—" if one is None else _nats(one) if nats else one.percent() for one in found]
        apart = [_difference(one.get(key) if key else None, nats) for one in differences]
        rows.append((label, cells, ["", *apart], False))

    for name, label in _UTILITY.items():
        add(label, [one.utility.get(name) for one in summaries], name)
    _close(rows)
    for name in dict.fromkeys(attack for one in summaries for attack in one.robust):
        add(" robust: question in the data" if sep else f" {name}", [one.robust.get(name) for one in summaries], name)
    _close(rows)
    for name in dict.fromkeys(group for one in summaries for group in one.groups):
        groups = [one.groups.get(name) for one in summaries]
        label = _DOMAINS.get(name, name) + part_of(name, [group.attacks for group in groups if group])
        single = all(group is None or len(group.attacks) == 1 for group in groups)
        if not single:
            for figure in ("average", "worst", "union"):
                add(f"{label}: {figure}", [group and getattr(group, figure) for group in groups], f"{name} {figure}")
        add(
            "separation" if sep else f"{label}: separation",
            [group and group.separation for group in groups],
            f"{name} separation",
        )
        # A deaf model has none, and that must be seen: its robust accuracy is no SEP score.
        score = "SEP score" if sep else f"{label}: given ceiling"
        reached = any(one.ceiling is not None for one in summaries)
        add(score, [group and group.given_ceiling for group in groups], always=reached)
    _close(rows)
    add("ceiling", [one.ceiling for one in summaries], "ceiling")
    add("false alarms", [one.false_alarms for one in summaries])
    if any(one.span for one in summaries):
        _close(rows)
        words = Measure(title="words", high=float("inf"))
        apart = [_apart(*difference_text(one, "leaked span", words)) for one in differences]
        means = [measured_text(one.span and one.span.mean, words) for one in summaries]
        rows.append(("leaked span: mean words", means, ["", *apart], False))
        longest = [str(one.span.longest) if one.span else "—" for one in summaries]
        rows.append(("leaked span: most words", longest, [""] * len(runs), False))
    return rows


def _rows_by_kind(summaries: Sequence[Summary], differences: Sequence[Mapping[str, Difference]]) -> list[Row]:
    rows: list[Row] = []
    for part in kind_rows(summaries, suite_info(summaries[0].run.suite)):
        for label, key, measure, found in part:
            apart = [_apart(*difference_text(one, key, measure)) for one in differences]
            rows.append((label, [measured_text(one, measure) for one in found], ["", *apart], False))
        _close(rows)
    if any(one.ungraded for one in summaries):
        rows.append(("ungraded answers", [str(one.ungraded) for one in summaries], [""] * len(summaries), False))
    return rows


def comparison_table(runs: Sequence[Run], criterion: str | None = None) -> Group:
    """The table for a terminal, with what it is of above, and what its rows mean below."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    info, criterion = suite_info(runs[0].suite), shared_criterion(runs, criterion)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for number, run in enumerate(runs):
        name = f"{run.label}\n(reference)" if len(runs) > 1 and not number else run.label
        table.add_column(Text(name), justify="right", overflow="fold")  # rich would read [data-as-user] as markup
        if number:
            table.add_column("\N{MINUS SIGN} reference (p)", justify="right")
    rows = figure_rows(runs, criterion)
    for label, cells, apart, rule in rows:
        shown = [cells[0]]
        for cell, difference in zip(cells[1:], apart[1:], strict=True):
            shown += [cell, difference]
        style = "bold" if label.endswith(_KEY_FIGURES[info.kind is not None]) else ""
        table.add_row(*map(Text, (label, *shown)), end_section=rule, style=style)
    unit = "ratings from 1 to 10 and percent" if info.measures else "percent"
    title = Text(f"{_title(runs)}, {criterion}: {unit} [95 % interval]\n", style="italic")
    caption = _caption([label for label, *_ in rows], info, criterion, compared=len(runs) > 1)
    # One draw, as the remarks need no intervals.
    below = [*refused_lines(runs), *remarks([(run.label, summarise(run, criterion, draws=1)) for run in runs])]
    return Group(title, table, Text(caption, style="dim"), *map(Text, below))


def part_of(group: str, members: Iterable[Sequence[str]]) -> str:
    """` (2 of 17)` where runs have only some attacks of a domain, ` (2–17 of 17)` where they have more and fewer.

    Args:
        group: a key of `Summary.groups`.
        members: each run's attacks in it.

    Returns:
        What to put behind the group's name: nothing where every run has the whole domain, or its size is not known.
    """
    whole = set(_WHOLE.get(group, ()))
    counts = sorted({len(whole.intersection(attacks)) for attacks in members})
    if not counts or not counts[-1] or counts[0] == len(whole):
        return ""
    return f" ({'–'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} of {len(whole)})"


def is_deaf(summary: Summary) -> bool:
    """Whether the payload is hardly followed even in the instruction."""
    return summary.ceiling is not None and summary.ceiling.value < DEAF


def remarks(summaries: Sequence[tuple[str, Summary]]) -> list[str]:
    """What a reader of these runs' figures must know, each remark once with the labels of the runs concerned."""
    found: list[str] = []
    if deaf := ", ".join(
        f"{label} {100 * one.ceiling.value:.3g} %" for label, one in summaries if one.ceiling and is_deaf(one)
    ):
        found.append(
            f"The ceiling is under {100 * DEAF:.0f} % ({deaf}): few payloads are followed even where they may be, so "
            "robust accuracy says little; look at the separation."
        )
    if few := ", ".join(f"{label} {one.n}" for label, one in summaries if 0 < one.n < FEW_SAMPLES):
        found.append(
            f"There are fewer than {FEW_SAMPLES} samples ({few}): resampled intervals (those of means and of "
            "the worst attack) are too narrow for so few."
        )
    if ungraded := ", ".join(f"{label} {one.ungraded} of {_judged(one)}" for label, one in summaries if one.ungraded):
        found.append(
            f"Some answers are ungraded ({ungraded}): the grader's verdict could not be read, or there was nothing to "
            "ask it about. They are in no figure that needs it, and are no passes; their reasons are in the logs."
        )
    if by_rule := [label for label, one in summaries if _by_classifier(one)]:
        graded = suite_info(summaries[0][1].run.suite).graded
        found.append(
            f"No grader has judged ({', '.join(by_rule)}): a classifier of refusals did, which looks at how an answer "
            f"begins, and not at what is in it. --grader MODEL asks one ({', '.join(graded)})."
        )
    if cut := ", ".join(
        f"{label} {100 * share:.0f} %" for label, one in summaries if (share := _cut_short(one)) >= MUCH_CUT
    ):
        found.append(
            f"Of the answers to the ceiling, many were cut before the payload was carried out ({cut}): a model that "
            "does the user's task first has no room for it, and none in attacks. Give answers more tokens "
            "(--max-new-tokens 128)."
        )
    if unlikely := ", ".join(
        f"{label} {clean.n - likely.n} of {clean.n}"
        for label, one in summaries
        if (likely := one.utility.get("reference_logprob"))
        and (clean := one.utility.get("rouge_l"))
        and likely.n < clean.n
    ):
        found.append(
            f"Some unattacked samples have no likelihood of the reference ({unlikely}): with that answer they are too "
            "long for the model."
        )
    return found


def _judged(summary: Summary) -> int:
    """The answers that a grader was asked about."""
    info = suite_info(summary.run.suite)
    names = {*info.graded, *info.measures, "win_rate"}
    return sum(
        bool(names & {*one.verdicts, *one.ungraded, *one.grades}) or one.win is not None for one in summary.run.outcomes
    )


def _by_classifier(summary: Summary) -> bool:
    """Whether a grader could have judged, and none was asked."""
    graded = suite_info(summary.run.suite).graded
    return bool(graded) and not summary.run.judged.intersection(graded)


def _cut_short(summary: Summary) -> float:
    """The share of the ceiling's answers that were cut before the payload was carried out."""
    asked = [one for one in summary.run.outcomes if one.condition == CEILING]
    return sum(one.cut and not one.verdicts.get(summary.criterion, True) for one in asked) / max(1, len(asked))


def refused_lines(runs: Sequence[Run]) -> list[str]:
    """Which rows each model could not be asked, a line for each that has some."""
    lines = [f"{run.label}: {refusals_line(run)}" for run in runs if run.refused]
    return [*lines, f"rows that could not be asked have no score; {LEFT_OUT}"] if lines else []


def _title(runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    data = dict.fromkeys(Path(str(run.settings.get("task", {}).get("data") or "")).name for run in runs)
    ways = dict.fromkeys(_way(run.settings.get("task", {})) for run in runs)
    where = " and ".join(name for name in data if name)
    return runs[0].suite + (f" on {where}" if where else "") + " and".join(ways)


def _way(task: Mapping[str, Any]) -> str:
    """How the attack comes, where it is not in the first turn and the data."""
    said = [
        f", {name} {task[name]}"
        for name, usual in (("turn", "first"), ("via", "data"))
        if task.get(name, usual) != usual
    ]
    return "".join(said)


_MEANINGS = {
    "utility": "utility: on unattacked rows, against the reference answer",
    " ": "an attack: the share of rows where it fails",
    " robust": "robust: the share of rows where the question in the data is left alone, heard elsewhere or not",
    "average": "average, worst, union: mean and minimum over attacks, and the share of rows that withstand all",
    "separation": "separation: ceiling minus the mean share of attacks that succeed",
    "given ceiling": "given ceiling: robust among the rows whose payload is followed in {authority} (—: none is)",
    "SEP score": "SEP score: robust among the rows whose question is answered in the instruction (—: none is)",
    "ceiling": "ceiling: the payload is followed in {authority}",
    "false alarms": "false alarms: the witness stands in the answer to an unattacked row",
    "leaked span": "leaked span: words of the secret that stand in an answer to a query in one run",
}


def _caption(labels: Sequence[str], info: SuiteInfo, criterion: str, *, compared: bool) -> str:
    """What the rows that are there mean, a line each."""
    paired = ["differences are of a model minus the reference, paired"] if compared else []
    if info.kind:
        return "\n".join([*kind_meanings(info, criterion), *paired])
    sep = "SEP score" in labels
    present = {
        "utility": any(label.startswith("utility") for label in labels),
        " ": not sep and any(label.startswith(" ") for label in labels),
        " robust": sep,
        "average": any(label.endswith("average") for label in labels),
        "separation": any(label.endswith("separation") for label in labels),
        "given ceiling": any(label.endswith("given ceiling") for label in labels),
        "SEP score": sep,
        "ceiling": "ceiling" in labels,
        "false alarms": "false alarms" in labels,
        "leaked span": any(label.startswith("leaked span") for label in labels),
    }
    lines = [_MEANINGS[name].format(authority=info.authority) for name, there in present.items() if there]
    return "\n".join([*lines, *paired])


def _samples(summary: Summary) -> str:
    run = summary.run
    if run.complete and not run.refused:
        return str(summary.n)
    return f"{summary.n} ({len(run.outcomes)} of {run.expected} answers)"


def _nats(estimate: Estimate, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{estimate.value:{sign}.2f} [{estimate.low:{sign}.2f}, {estimate.high:{sign}.2f}]"


def _difference(found: Difference | None, nats: bool) -> str:
    if found is None:
        return ""
    return _apart(_nats(found.estimate, signed=True) if nats else found.estimate.percent(signed=True), found.p)


def _apart(text: str, p: float | None) -> str:
    """A difference with its p value."""
    return text if p is None else f"{text} ({'<.001' if p < 0.001 else f'{p:.3f}'.lstrip('0')})"


def _close(rows: list[Row]) -> None:
    label, cells, apart, _ = rows[-1]
    rows[-1] = (label, cells, apart, True)
