"""One model inspected: attention of its answers, and a probe of its hidden states."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Literal, get_args

import torch

from rolewise.attacks import attack_info, template_delimiters
from rolewise.data.structured_query import evaluation_conditions
from rolewise.inspection.attention import measure_attention
from rolewise.inspection.capture import read_hidden
from rolewise.inspection.passages import TwinRow, passage_pairs, position_shift, twin_rows
from rolewise.inspection.probe import LEAST_PAIRS, Examples, accuracies, folds_of, offsets
from rolewise.inspection.results import ACCURACY, FULL, OFFSET, SEGMENTS, TEMPLATE, Inspection, Measurement
from rolewise.inspection.rows import AnswerRow, answer_row
from rolewise.modeling import SegmentedCausalLM
from rolewise.roles import Role
from rolewise.samples import Sample

Part = Literal["attention", "probe"]
Answers = Literal["reference", "own"]
PARTS: tuple[Part, ...] = get_args(Part)
CEILING = "ceiling"
_LEAST_SAMPLES = 2
_FIT_SHARE = 5
"""Reading this many tokens takes about as long as fitting the probes of one (for the bar alone)."""
_Told = Callable[[int], object]
_Reading = list[torch.Tensor]
"""For each pair the hidden states of its passages, [layers, tokens, hidden]."""


def inspect_model(
    model: SegmentedCausalLM,
    tokenizer: Any,
    samples: Sequence[Sample],
    *,
    label: str = "model",
    attacks: Sequence[str] = ("naive",),
    seed: int = 0,
    answers: Answers = "reference",
    answer_tokens: int = 64,
    parts: Sequence[Part] = PARTS,
    data: str = "",
    progress: bool = False,
) -> Inspection:
    """Measure a model's attention from answers to roles, and how well its layers tell user from data.

    A model whose `segment_scale` is 0 has no table: its probe has the template alone to go by. The model is left as it
    was: its scale, its attention implementation, its mode.

    Args:
        model: a segmented model.
        tokenizer: its tokenizer.
        samples: with payloads, from `rolewise.data.structured_query.load_samples` or any; all of them are used.
        label: the model's name in tables.
        attacks: names; each sample is read clean, and under each of them.
        seed: of what attacks draw, and of which passages train a probe.
        answers: what stands in the answer: the sample's reference (the same for all models), or the model's own
            greedy answer.
        answer_tokens: the most tokens of an answer.
        parts: what to measure: `attention`, `probe` or both.
        data: where the samples are from, for the captions of tables and figures.
        progress: whether to show a bar with the time left on standard error.

    Raises:
        ValueError: for an unknown attack or option, too few samples, a conversation that the template or the model's
            positions cannot take, or a model that gives no attention weights.
    """
    began = time.monotonic()
    _check(parts, answers, answer_tokens, attacks, samples)
    rows = (
        _answer_rows(model, tokenizer, samples, attacks, seed, answers, answer_tokens, progress)
        if "attention" in parts
        else []
    )
    twins = _twins(model, tokenizer, samples) if "probe" in parts else {}
    signals = _signals(model) if twins else ()
    read = sum(len(row.input_ids) for four in twins.values() for row in four)
    layers = model.config.get_text_config().num_hidden_layers + 1
    fitting = read // _FIT_SHARE // layers
    total = sum(len(row.input_ids) for row in rows) + (read + fitting * layers) * len(signals)
    measurements: list[Measurement] = []
    with _bar(label, total, progress) as told:
        if rows:
            measurements += measure_attention(model, rows, told)
        if twins:
            measurements += _measure_probe(model, tokenizer, twins, signals, seed, told, fitting)
    settings: dict[str, Any] = {
        "data": data,
        "samples": len(samples),
        "attacks": list(attacks),
        "seed": seed,
        "answers": answers,
        "answer_tokens": answer_tokens,
        "pairs": len(twins),
        "position_shift": max((position_shift(four) for four in twins.values()), default=0),
    }
    attending = next((one.layers for one in measurements if one.kind == "attention"), ())
    return Inspection(
        label=label,
        model=_described(model),
        settings=settings,
        measurements=tuple(measurements),
        remarks=tuple(_remarks(model, rows, attending, settings)),
        seconds=time.monotonic() - began,
        versions={name: version(name) for name in ("rolewise", "torch", "transformers")},
    )


def _check(
    parts: Sequence[str], answers: str, answer_tokens: int, attacks: Sequence[str], samples: Sequence[Sample]
) -> None:
    if not parts or not set(parts) <= set(PARTS):
        raise ValueError(f"parts={tuple(parts)} must be one or both of {', '.join(PARTS)}")
    if answers not in get_args(Answers):
        raise ValueError(f"answers={answers!r} must be one of {', '.join(get_args(Answers))}")
    if answer_tokens < 1:
        raise ValueError(f"answer_tokens={answer_tokens} must be at least 1")
    for name in attacks:
        attack_info(name)
    check_samples(samples, parts)


def check_samples(samples: Sequence[Sample], parts: Sequence[str]) -> None:
    """Refuse too few samples; no model is needed to know.

    Raises:
        ValueError: when there are too few for an interval, or for a probe.
    """
    if "attention" in parts and len(samples) < _LEAST_SAMPLES:
        raise ValueError(f"{len(samples)} samples are too few for an interval; give at least {_LEAST_SAMPLES}")
    if "probe" in parts and (pairs := len(passage_pairs(samples))) < LEAST_PAIRS:
        raise ValueError(
            f"{pairs} pairs of passages are too few for a probe, which is trained on some and tested on others; give "
            f"at least {2 * LEAST_PAIRS} samples whose data differ (--limit {2 * LEAST_PAIRS}), or leave the probe out "
            "(--parts attention)"
        )


def _described(model: SegmentedCausalLM) -> dict[str, Any]:
    config: Any = model.config.get_text_config()
    table = model.segment_scale != 0.0
    return {
        "architecture": type(model).__name__.removeprefix("Segmented"),
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "roles": list(model.role_scheme.names),
        "segment_scale": model.segment_scale,
        "table_ratio": round(model.segment_ratio(), 4) if table else None,
    }


def _remarks(
    model: SegmentedCausalLM, rows: Sequence[AnswerRow], attending: Sequence[int], settings: dict[str, Any]
) -> Generator[str]:
    layers = model.config.get_text_config().num_hidden_layers
    if rows and len(attending) < layers:
        yield f"{len(attending)} of {layers} layers have attention weights; the others are left out"
    if settings["pairs"] and model.segment_scale == 0.0:
        yield "no segment table is in use, so the probe has the template alone to go by"
    if shift := settings["position_shift"]:
        yield (
            f"the headers of user and data differ in length: a passage's place differs by up to {shift} tokens between "
            "its roles, which the probes `full` and `template` may use"
        )


# --- attention -------------------------------------------------------------------------------------------------


def _answer_rows(
    model: SegmentedCausalLM,
    tokenizer: Any,
    samples: Sequence[Sample],
    attacks: Sequence[str],
    seed: int,
    answers: Answers,
    answer_tokens: int,
    progress: bool,
) -> list[AnswerRow]:
    real = template_delimiters(tokenizer)
    asked = [
        row
        for row in evaluation_conditions(samples, attacks, seed=seed, real=real)
        if row["meta"]["condition"] != CEILING
    ]
    given = [row["meta"]["reference"] for row in asked]
    if answers == "own":
        given = _own_answers(model, tokenizer, [row["messages"] for row in asked], answer_tokens, progress)
    rows = [
        answer_row(tokenizer, row, answer, scheme=model.role_scheme, answer_tokens=answer_tokens)
        for row, answer in zip(asked, given, strict=True)
    ]
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(rows, key=lambda row: len(row.input_ids))
    if limit and len(longest.input_ids) > limit:
        raise ValueError(
            f"{longest.id}/{longest.condition} has {len(longest.input_ids)} tokens with its answer, and the model has "
            f"{limit} positions; leave that sample out, or read fewer tokens of answers (--answer-tokens)"
        )
    return rows


def _own_answers(
    model: SegmentedCausalLM, tokenizer: Any, conversations: Sequence[Any], tokens: int, progress: bool
) -> list[str]:
    from rolewise.generation import generate_batch

    answers = [""] * len(conversations)
    with _bar("answering", len(conversations), progress, unit="answer") as told:
        for index, text in generate_batch(model, tokenizer, conversations, max_new_tokens=tokens):
            answers[index] = text
            told(1)
    return answers


# --- probe -----------------------------------------------------------------------------------------------------


def _twins(model: SegmentedCausalLM, tokenizer: Any, samples: Iterable[Sample]) -> dict[str, list[TwinRow]]:
    return {pair.id: twin_rows(tokenizer, pair, model.role_scheme) for pair in passage_pairs(samples)}


def _signals(model: SegmentedCausalLM) -> tuple[str, ...]:
    if model.segment_scale == 0.0:
        return (TEMPLATE,)
    scheme = model.role_scheme
    same = scheme.row(Role.USER) == scheme.row(Role.DATA)
    return (FULL, TEMPLATE) if same else (FULL, SEGMENTS, TEMPLATE)


def _measure_probe(
    model: SegmentedCausalLM,
    tokenizer: Any,
    twins: dict[str, list[TwinRow]],
    signals: Sequence[str],
    seed: int,
    told: _Told,
    fitting: int,
) -> list[Measurement]:
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    output = model.role_scheme.output
    user = [torch.tensor([row.user for row in four]).flatten() for four in twins.values()]
    training = model.training
    model.eval()

    def read(segments: str) -> _Reading:
        states: _Reading = []
        for four in twins.values():
            states.append(_read_pair(model, four, segments, pad, output).flatten(1, 2))
            told(sum(len(row.input_ids) for row in four))
        return states

    found: list[Measurement] = []
    folds = folds_of(len(twins), seed)

    def add(signal: str, *readings: _Reading, labels: list[torch.Tensor]) -> None:
        found.extend(_probed(signal, tuple(twins), readings, labels, folds, lambda: told(fitting)))

    try:
        if FULL in signals:
            own = read("segment_ids")
            add(FULL, own, labels=user)
            if SEGMENTS in signals:
                # The passages' segments are right in one reading and exchanged in the other, all else is the same.
                add(SEGMENTS, own, read("swapped_ids"), labels=[torch.cat([one, ~one]) for one in user])
            del own
        with _without_table(model):
            add(TEMPLATE, read("segment_ids"), labels=user)
    finally:
        model.train(training)
    return found


def _read_pair(model: SegmentedCausalLM, four: Sequence[TwinRow], segments: str, pad: int, output: int) -> torch.Tensor:
    """The hidden states of a pair's passages, [layers, conversations, tokens, hidden]; padded on the right."""
    width = max(len(row.input_ids) for row in four)

    def padded(rows: Iterable[list[int]], fill: int) -> torch.Tensor:
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])

    ids = padded((row.input_ids for row in four), pad)
    mask = padded(([1] * len(row.input_ids) for row in four), 0)
    keep = torch.tensor([row.places for row in four])
    return read_hidden(model, ids, padded((getattr(row, segments) for row in four), output), mask, keep)


def _probed(
    signal: str,
    units: tuple[str, ...],
    readings: Sequence[_Reading],
    user: Sequence[torch.Tensor],
    folds: Sequence[int],
    fitted: Callable[[], object],
) -> list[Measurement]:
    layers = range(len(readings[0][0]))
    told, apart = list[list[float]](), list[list[float]]()
    for layer in layers:
        features = [torch.cat([one[layer] for one in pair]) for pair in zip(*readings, strict=True)]
        examples = Examples(features=features, user=user)
        told.append(accuracies(examples, folds))
        apart.append(offsets(examples))
        fitted()
    return [
        Measurement(
            kind="probe", condition=signal, role="user, data", measure=measure, layers=tuple(layers), units=units,
            values=tuple(zip(*columns, strict=True)),
        )
        for measure, columns in ((ACCURACY, told), (OFFSET, apart))
    ]  # fmt: skip


@contextmanager
def _without_table(model: SegmentedCausalLM) -> Generator[None]:
    scale = model.segment_scale
    try:
        model.segment_scale = 0.0
        yield
    finally:
        model.segment_scale = scale


@contextmanager
def _bar(description: str, total: int, shown: bool, unit: str = "token") -> Generator[_Told]:
    from tqdm import tqdm

    # smoothing=0: the time left is by the mean rate, as rows differ in length.
    with tqdm(
        total=total, desc=description[-24:], unit=unit, unit_scale=unit == "token", disable=not shown, smoothing=0,
        file=sys.stderr, dynamic_ncols=True,
    ) as bar:  # fmt: skip
        yield bar.update
