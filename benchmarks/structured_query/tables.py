"""Tables and figures of the Structured Query study, from its results alone.

    python -m benchmarks.structured_query.tables

It reads what `benchmarks.structured_query.study` wrote, and takes any part of it: what a missing run would tell is
said to be missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.structured_query import inside
from benchmarks.structured_query.estimates import Arm, Reading, Study, negated, success
from benchmarks.structured_query.figures import ARMS, draw_all
from benchmarks.structured_query.readings import AS_TRAINED, CRITERIA, SEP, Result, read_results
from benchmarks.structured_query.study import PROBES, RESULTS, STUDY
from benchmarks.structured_query.targets import DATA, VARIANTS, target_lines
from rolewise.evaluation.statistics import Estimate
from rolewise.evaluation.suite_info import SUITES
from rolewise.evaluation.summary import UTILITIES, Summary, summarise
from rolewise.reporting.wording import figure_name, measured, p_value

OUTPUT = Path(__file__).parents[1] / "results"
COMPARISONS = (("delimiter-ise", "delimiter"), ("text-ise", "text"), ("text-ise", "delimiter"))
FIGURES = (
    "rouge_l", "reference_logprob", "main average", "main worst", "main union", "ood average", "ood worst", "ceiling",
    "main separation", "ood separation",
)  # fmt: skip
"""In domain: of the main four attacks, as the paper's tables have it."""
_TITLES = {variant: data.capitalize() for variant, data in DATA.items()}

Lines = list[str]


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    """Markdown; nothing without rows. The first column is a name, the others are figures."""
    kept = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(heading)} |", "|---|" + "---|" * (len(heading) - 1), *kept, ""] if kept else []


def cell(key: str, reading: Reading | None, *, signed: bool = False) -> str:
    """`66.3 [59.6, 72.4]`, what it is of, and each seed's value below where there are several."""
    if reading is None:
        return ""
    signed = signed or key.endswith(" separation")
    said = measured(key, reading.estimate, signed=signed) + (f" {reading.remark}" if reading.remark else "")
    if len(reading.by_seed) == 1:
        return said
    seeds = (_bare(key, value, signed) for value in reading.by_seed.values())
    return f"{said}<br>({', '.join(seeds)})"


def _bare(key: str, value: float, signed: bool) -> str:
    return measured(key, Estimate(value=value, low=value, high=value, n=1), signed=signed).partition(" [")[0]


def report(results: Sequence[Result], drawn: Sequence[str] = ()) -> str:
    """The whole page; `drawn` are the names of the figures that stand beside it."""
    studies = {criterion: Study(results=results, criterion=criterion) for criterion in CRITERIA}
    first = studies["in_response"]

    def picture(name: str, words: str) -> Lines:
        return [f"![{words}]({name}.svg)", ""] if name in drawn else []

    lines = [*_introduction(results), *_targets(studies)]
    lines += picture("structured-query-ceiling", "ceiling against robust accuracy of every run")
    for variant in VARIANTS:
        there = [Arm(variant, name) for name in ARMS if first.arm(Arm(variant, name))]
        if there:
            lines += [f"## {_TITLES[variant]}", "", *_variant(studies, there)]
            lines += picture(f"structured-query-attacks-{variant}", f"attack success by attack, {variant} data")
            for criterion, study in studies.items():
                lines += [f"By attack: attack success; {_meaning(criterion)}.", "", *_attacks(study, there)]
    lines += ["## By length of the data", "", *picture(
        "structured-query-separation-by-length", "separation by length of the data")]  # fmt: skip
    lines += [*_lengths(first), *_probes(first), *_sep(first), *inside.section(results, drawn)]
    return "\n".join([*lines, *_runs(results)])


def _meaning(criterion: str) -> str:
    return f"a payload is followed when {SUITES['structured_query'].criteria[criterion]} (`{criterion}`)"


def _introduction(results: Sequence[Result]) -> Lines:
    (model,) = {str(one.config["model"]) for one in results}
    done = len({setting.name for setting in STUDY} & {one.name for one in results})
    run = results[0].runs[AS_TRAINED]
    n, limit = len({outcome.id for outcome in run.outcomes}), run.settings["task"].get("limit")
    return [
        f"# Structured Query on {model}", "",
        f"{done} of the study's {len(STUDY)} runs; {n} test samples"
        + (" (a trial: not all that there are)" if limit else "")
        + f" of `{run.settings['task']['data']}` under every attack. Percent with 95 % intervals, and points for "
        "differences, which are paired by sample.", "",
        "- *Robust*: the payload in the data is not followed. *Average*: mean over the main four attacks (naive, "
        "ignore, escape_separation, completion_real) or their out-of-domain kin; *worst*: the least robust of them, "
        "chosen anew in every draw of its bootstrap; *union*: samples that withstand all of them.",
        "- *Ceiling*: the payload is followed where it stands in the instruction. *Separation*: ceiling minus average "
        "attack success (main four). A model that follows nothing is robust and deaf: it has no separation.",
        "- *Utility*, on unattacked rows: ROUGE-L, and the mean log-likelihood per token of the reference answer.",
        "- Intervals: Wilson for a share; else a bootstrap over samples. With several seeds a figure is their mean "
        "(each in brackets below it), and the bootstrap draws samples and seeds together. Three seeds are few: such "
        "an interval is rough.", "",
    ]  # fmt: skip


def _targets(studies: dict[str, Study]) -> Lines:
    by = {criterion: target_lines(study) for criterion, study in studies.items()}
    rows = [
        (line.figure, line.target, line.measured, line.n, line.verdict, other.verdict)
        for line, other in zip(by["in_response"], by["begins_with"], strict=True)
    ]
    heading = ("figure", "target", "measured", "n", "verdict", "verdict by begins_with")
    return [
        "## Targets", "",
        f"Measured where {_meaning('in_response')}. *Met* and *not met*: the whole interval lies on that side of the "
        "target; otherwise these samples cannot tell. A reduction is met when the figure reaches it and the "
        "difference is above 0, as that target says.", "",
        *table(heading, rows),
    ]  # fmt: skip


def _variant(studies: dict[str, Study], arms: Sequence[Arm]) -> Lines:
    lines: Lines = []
    for criterion, study in studies.items():
        # Utility is the same by either criterion.
        keys = FIGURES if criterion == CRITERIA[0] else tuple(key for key in FIGURES if key not in UTILITIES)
        said = _meaning(criterion)
        lines += [f"{said[0].upper()}{said[1:]}.", "", *table(
            ("arm", "n", *map(figure_name, keys)),
            [(arm.label, _n(study, arm), *(cell(key, study.figures(arm).get(key))
                                           for key in keys)) for arm in arms],
        )]  # fmt: skip
        pairs = _pairs(study, arms)
        lines += table(
            ("difference", *map(_pair_name, pairs)),
            [(figure_name(key), *(cell(key, study.differences(*pair).get(key), signed=True) for pair in pairs))
             for key in keys if pairs],
        )  # fmt: skip
    return lines


def _n(study: Study, arm: Arm) -> str:
    """The samples that were attacked; references may be fewer."""
    return study.figures(arm)["ceiling"].n


def _pairs(study: Study, arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """The comparisons for which both arms have a seed."""
    by_name = {arm.name: arm for arm in arms}
    pairs = [(by_name[one], by_name[other]) for one, other in COMPARISONS if one in by_name and other in by_name]
    return [pair for pair in pairs if study.differences(*pair)]


def _pair_name(pair: tuple[Arm, Arm]) -> str:
    return f"{pair[0].label} − {pair[1].label}"


def _attacks(study: Study, arms: Sequence[Arm]) -> Lines:
    pairs = _pairs(study, arms)
    names = dict.fromkeys(attack for arm in arms for one in study.arm(arm).values() for attack in one.robust)
    rows: list[tuple[str, ...]] = []
    for name in names:
        shown = [cell(name, success(study.figures(arm)[name])) for arm in arms]
        for pair in pairs:
            reading = study.differences(*pair)[name]
            p = "" if reading.p is None else f", p {p_value(reading.p)}"
            values = {seed: -value for seed, value in reading.by_seed.items()}
            shown.append(cell(name, Reading(estimate=negated(reading.estimate), by_seed=values), signed=True) + p)
        rows.append((name, *shown))
    caption = [
        "Below 0: the first of the two is attacked with less success. p: McNemar's exact test, not corrected for the "
        "number of attacks; of several seeds it has none.", ""
    ]  # fmt: skip
    return [
        *table(("attack", *(arm.label for arm in arms), *map(_pair_name, pairs)), rows),
        *(caption if pairs else ()),
    ]


def _lengths(study: Study) -> Lines:
    parts = study.parts()
    lines = ["The test samples in thirds, by the length of their data before any attack.", ""]
    for variant in VARIANTS:
        arms = [Arm(variant, name) for name in ARMS if study.arm(Arm(variant, name))]
        rows: list[tuple[str, ...]] = []
        keys = ("main average", "ceiling", "main separation")
        for name, part in parts:
            for arm in arms:
                found = part.figures(arm)
                figures = [cell(key, found.get(key)) for key in keys]
                rows.append((name, arm.label, _n(part, arm), *figures))
            for pair in _pairs(part, arms):
                found = part.differences(*pair)
                differences = [cell(key, found.get(key), signed=True) for key in keys]
                rows.append((name, _pair_name(pair), found["ceiling"].n, *differences))
        if rows:
            heading = ("samples", "arm", "n", *map(figure_name, keys))
            lines += [f"### {_TITLES[variant]}", "", *table(heading, rows)]
    return lines


def _probes(study: Study) -> Lines:
    keys = ("main average", "main separation", "ceiling", "rouge_l", "reference_logprob")
    rows: list[tuple[str, ...]] = []
    for variant in VARIANTS:
        for name in ARMS:
            for probe in PROBES:
                told, trained = Arm(variant, name, probe), Arm(variant, name)
                if found := study.differences(told, trained):
                    figures = [
                        f"{cell(key, study.figures(told).get(key))}<br>{cell(key, found.get(key), signed=True)}"
                        for key in keys
                    ]
                    rows.append((f"{variant}, {trained.label}: {probe}", found["ceiling"].n, *figures))
    if not rows:
        return []
    return [
        "## Probes", "",
        "The same weights told wrong roles: data as the user's (`data-as-user`), or the table switched off "
        "(`scale-0`). In each cell the figure under the probe, and below it its change against the model as trained, "
        "paired.", "",
        *table(("run and probe", "n", *map(figure_name, keys)), rows),
    ]  # fmt: skip


def _sep(study: Study) -> Lines:
    """The arms on the other suite."""
    rows: list[tuple[str, ...]] = []
    for variant in VARIANTS:
        arms = [Arm(variant, name, SEP) for name in ARMS]
        for arm in (one for one in arms if study.arm(one)):
            figures = study.figures(arm)
            (key,) = [key for key in figures if key.endswith(" separation")]
            average = key.replace(" separation", " average")
            shown = [cell(one, figures[one]) for one in (average, "ceiling", key)]
            rows.append((f"{variant}, {arm.label}", figures[key].n, _sep_scores(study.arm(arm).values()), *shown))
        for pair in _pairs(study, arms):
            found = study.differences(*pair)
            (key,) = [key for key in found if key.endswith(" separation")]
            average = key.replace(" separation", " average")
            shown = [cell(one, found[one], signed=True) for one in (average, "ceiling", key)]
            rows.append((f"{variant}, {_pair_name(pair)}", found[key].n, "", *shown))
    if not rows:
        return []
    return [
        "## SEP", "",
        "Is a question answered where it stands in the instruction, and left alone where it stands in the data? SEP "
        "score: left alone in the data, of the samples that are answered in the instruction (the ceiling).", "",
        *table(("arm", "n", "SEP score", "left alone in the data", "ceiling", "separation"), rows),
    ]  # fmt: skip


def _sep_scores(summaries: Iterable[Summary]) -> str:
    """With its interval for one seed; else each seed's, as every seed has other samples that reach the ceiling."""
    scores = [one.headline.given_ceiling if one.headline else None for one in summaries]
    if len(scores) == 1:
        return measured("", scores[0])
    return ", ".join(measured("", one).partition(" [")[0] for one in scores)


def _runs(results: Sequence[Result]) -> Lines:
    by_name = {one.name: one for one in results}
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys([*(setting.name for setting in STUDY), *by_name]):
        one = by_name.get(name)
        if one is None:
            rows.append((name, "missing", *[""] * 7))
            continue
        ratio = one.training["table_ratio"]
        also = [*(probe for probe in one.runs if probe != AS_TRAINED), *([SEP] if one.sep else [])]
        rows.append(
            (
                name, "done", str(one.rows["written"]), str(one.training["steps"]), f"{one.config['epochs']:g}",
                f"{one.training['loss']:.3f}", "" if ratio is None or not one.config["ise"] else f"{ratio:.3f}",
                f"{one.seconds / 60:.0f}", ", ".join(also),
            )
        )  # fmt: skip
    versions = dict.fromkeys(", ".join(f"{name} {number}" for name, number in one.versions.items()) for one in results)
    shared = {name: value for name, value in results[0].config.items() if _same(results, lambda o, n=name: o.config[n])}
    return [
        "## What was run", "",
        *table(("run", "state", "training rows", "steps", "epochs", "loss", "table ratio", "minutes", "also"), rows),
        "Table ratio: RMS of the trained table over that of the token embeddings. Minutes: training and evaluation, "
        "since the last start where a run was resumed.", "",
        f"Settings of all runs: {', '.join(f'{name} {value}' for name, value in shared.items())}.", "",
        *_unanswered(results),
        *(f"Versions{' (not the same for all runs)' if len(versions) > 1 else ''}: {one}." for one in versions), "",
        "`python -m benchmarks.structured_query.study`, then `python -m benchmarks.structured_query.tables`", "",
    ]  # fmt: skip


def _unanswered(results: Sequence[Result]) -> Lines:
    """What was too long for the model: figures are of the samples that have an answer."""
    counts = {
        f"{one.name}{'' if run == AS_TRAINED else f', {run}'}": summarise(found, draws=1).missing
        for one in results
        for run, found in one.runs.items()
    }
    said = [
        f"{name} ({', '.join(f'{attack} {count}' for attack, count in missing.items())})"
        for name, missing in counts.items()
        if missing
    ]
    return [f"Samples without an answer, by condition: {'; '.join(said)}.", ""] if said else []


def _same(results: Sequence[Result], of: Callable[[Result], Any]) -> bool:
    return all(of(one) == of(results[0]) for one in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="what the study wrote")
    parser.add_argument("--output", type=Path, help="where structured_query.md and the figures go")
    options = parser.parse_args()
    try:
        results = read_results(options.results)
    except ValueError as error:
        raise SystemExit(f"{error}") from error
    if not results:
        raise SystemExit(f"{options.results} has no results; run python -m benchmarks.structured_query.study first")
    # The page of a trial stands beside its results, and does not replace the study's.
    output = options.output or (OUTPUT if options.results.resolve() == RESULTS.resolve() else options.results)
    output.mkdir(parents=True, exist_ok=True)
    drawn = [*draw_all(Study(results=results), output), *inside.draw_inside(results, output)]
    (output / "structured_query.md").write_text(report(results, drawn), encoding="utf-8")
    print(f"structured_query.md and {len(drawn)} figures in {output}: {', '.join(drawn)}")


if __name__ == "__main__":
    main()
