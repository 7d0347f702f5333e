"""Training rows: Clean and Adversarial Alpaca, and role-swapped twins.

Adversarial (ISE paper, section 5; StruQ, section 4): rows without an input stay as they are. Of those with one, half
stay, a quarter get another row's instruction and input appended to their data, a quarter the same behind a forged
answer in foreign delimiters. The answer is the same in all of them, so the model learns to leave such text alone.

A twin of an attacked row has the very same extra instruction in the user turn, and both answers. Without twins a model
learns to ignore a second instruction wherever it stands, and looks robust because it is deaf.

Rows are chosen and put in order before anything is injected: with one seed, the clean and the adversarial data have the
same rows in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

from rolewise.attacks import make_attack
from rolewise.data.structured_query.sources import BadExample, Example, read_examples
from rolewise.samples import Payload, Position, Sample, audit, to_messages

Row = dict[str, Any]
"""`{"messages": [...], "meta": {...}}`."""

Variant = Literal["clean", "adversarial"]

CLEAN, TWIN = "clean", "twin"
ATTACKS = ("naive", "completion_other")
"""What stands in the data of attacked rows."""

QUESTION_PREFIX = "Please answer the question that follows. "
"""Before an injected instruction that is a question."""

BOTH_SHARE = 0.25
"""The share of twins whose data carries yet another row's instruction, which is to be ignored."""

_POSITIONS: tuple[Position, ...] = ("begin", "middle", "end")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Which rows, and what is done to them."""

    variant: Variant = "adversarial"
    """clean leaves every row as it is."""
    seed: int = 0
    """Decides the order of the rows, the choice among too many, and every injection."""
    twins: bool = False
    """Add to each attacked row its twin: the same extra instruction in the user turn, with both answers."""
    position: Literal["end", "random"] = "end"
    """Where in the data an injection stands: its end (the paper), or begin, middle or end (SecAlign)."""
    forged: Literal["reference", "other"] = "reference"
    """The answer that completions forge: the right one (the paper), or another row's, which cannot be copied."""
    only_with_input: bool = False
    """Leave out the rows without an input."""
    min_chars: int = 0
    """The fewest characters of a row: instruction, input and output."""
    max_chars: int | None = None
    """The most characters of a row."""
    min_data_chars: int = 0
    """The fewest characters of an input, where a row has one."""
    max_data_chars: int | None = None
    """The most characters of an input."""
    max_injected_chars: int | None = None
    """The most characters of a row that is injected into others: instruction and input, and output with twins."""
    deduplicate: bool = True
    """Keep the first of the rows with the same instruction and input, up to case and white space."""
    max_per_source: int | None = None
    """The most rows of each source, drawn; a way to balance a small source against a large one."""
    max_rows: int | None = None
    """The most rows, drawn from all sources; twins come on top."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("variant", self.variant, get_args(Variant)),
            ("position", self.position, ("end", "random")),
            ("forged", self.forged, ("reference", "other")),
        ):
            if value not in allowed:
                raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
        for name in ("max_chars", "max_data_chars", "max_injected_chars", "max_per_source", "max_rows"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1, or left out for no limit")
        for name, least, most in (
            ("min_chars", self.min_chars, self.max_chars),
            ("min_data_chars", self.min_data_chars, self.max_data_chars),
        ):
            if least < 0 or (most is not None and least > most):
                raise ValueError(f"{name}={least} must be between 0 and the maximum ({most})")
        if self.twins and self.variant == "clean":
            raise ValueError("twins=True, but clean rows have nothing to swap; use variant='adversarial'")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training rows, and how they came about."""

    rows: list[Row]
    """`meta` holds `id`, `condition` (clean, naive, completion_other or twin), `pair` (the id that an attacked row
    shares with its twin, else None), the payload with the row it is from, and what was injected where."""
    counts: dict[str, int]
    """Rows read, left out for each reason, and written by condition."""
    problems: list[str] = field(default_factory=list[str])
    """What is wrong with the rows that could not be used."""


@dataclass(frozen=True)
class _Entry:
    id: str
    source: int
    example: Example


def build(
    sources: Sequence[str],
    *,
    drop_test: Sequence[str] = (),
    split: str = "train",
    skip_bad: bool = False,
    **settings: Any,
) -> Dataset:
    """Training rows from Alpaca-shaped sources.

    Args:
        sources: files, or names of hub datasets (see `read_examples`), mixed.
        drop_test: files of test rows; what has the instruction and input of one of them is left out.
        split: the split of hub datasets.
        skip_bad: leave out rows that cannot be used, and count them, instead of stopping at the first one; those of
            `drop_test`, too.
        **settings: the fields of `Settings`.

    Raises:
        FileNotFoundError: when a source or test file does not exist.
        ValueError: for a bad row of a source or a test file (unless `skip_bad`), a setting out of range, or when no
            row is left.
    """
    chosen = Settings(**settings)
    counts: Counter[str] = Counter()
    problems: list[str] = []
    read = list(_read(sources, split, skip_bad, counts, problems))
    tested = _tested(drop_test, skip_bad, counts, problems)
    pool = list(_usable(read, tested, chosen, counts))
    order = _drawn(pool, len(sources), chosen)
    entries = order if chosen.max_rows is None else order[: chosen.max_rows]
    counts["over the maximum"] = len(pool) - len(entries)
    if not entries:
        said = ", ".join(f"{name}: {number}" for name, number in counts.items() if number)
        raise ValueError(f"no row is left ({said}); relax the limits, or name other sources")
    # Injected text comes from more rows than the chosen ones: kinds of payload matter more than their number.
    donors = [entry for entry in order if _injectable(entry.example, chosen)]
    if chosen.variant == "adversarial" and (found := len({_asked(entry) for entry in donors})) < 3:
        raise ValueError(
            f"only {found} different instruction{'s' * (found != 1)} can be injected into others, and at least 3 are "
            f"needed; name more sources, or {_more_donors(chosen)}"
        )
    rows = list(_rows(entries, donors, chosen))
    names = ("read", "bad", "duplicate", "in the test set", "without input", "too short or long", "over the maximum",
             "bad test rows")  # fmt: skip
    summary = {name: counts[name] for name in names}
    written = Counter(row["meta"]["condition"] for row in rows)
    summary |= {name: written[name] for name in (CLEAN, *ATTACKS, TWIN)} | {"written": len(rows)}
    return Dataset(rows=rows, counts=summary, problems=problems)


def _read(
    sources: Sequence[str], split: str, skip_bad: bool, counts: Counter[str], problems: list[str]
) -> Iterator[_Entry]:
    for number, (source, label) in enumerate(zip(sources, _labels(sources), strict=True)):
        for example in read_examples(source, split=split):
            counts["read"] += 1
            if isinstance(example, BadExample):
                _skip(example, skip_bad, problems)
                counts["bad"] += 1
                continue
            yield _Entry(f"{label}[{example.index}]", number, example)


def _tested(paths: Sequence[str], skip_bad: bool, counts: Counter[str], problems: list[str]) -> set[tuple[str, str]]:
    """The keys of the test rows. One that cannot be read might be among the training rows, so it is not passed over."""
    found: set[tuple[str, str]] = set()
    for path in paths:
        for example in read_examples(path, answered=False):
            if isinstance(example, BadExample):
                _skip(example, skip_bad, problems)
                counts["bad test rows"] += 1
            else:
                found.add(example.key)
    return found


def _skip(bad: BadExample, skip_bad: bool, problems: list[str]) -> None:
    if not skip_bad:
        raise ValueError(f"{bad.problem} (--skip-bad, or skip_bad=True, leaves such rows out)")
    problems.append(bad.problem)


def _labels(sources: Sequence[str]) -> list[str]:
    """Names of the sources that say nothing of this machine's directories."""
    names = [Path(source).name if Path(source).expanduser().is_file() else source for source in sources]
    labels: list[str] = []
    for number, name in enumerate(names):
        before = names[:number].count(name)
        labels.append(f"{name}#{before + 1}" if before else name)
    return labels


def _usable(
    entries: Iterable[_Entry], tested: set[tuple[str, str]], chosen: Settings, counts: Counter[str]
) -> Iterator[_Entry]:
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        example = entry.example
        if chosen.deduplicate and example.key in seen:
            counts["duplicate"] += 1
        elif example.key in tested:
            counts["in the test set"] += 1
        elif chosen.only_with_input and not example.input:
            counts["without input"] += 1
        elif not _fits(example, chosen):
            counts["too short or long"] += 1
        else:
            yield entry
        seen.add(example.key)


def _fits(example: Example, chosen: Settings) -> bool:
    size = len(example.instruction) + len(example.input) + len(example.output)
    if size < chosen.min_chars or (chosen.max_chars is not None and size > chosen.max_chars):
        return False
    if not example.input:
        return True
    data = len(example.input)
    return data >= chosen.min_data_chars and (chosen.max_data_chars is None or data <= chosen.max_data_chars)


def _drawn(pool: list[_Entry], sources: int, chosen: Settings) -> list[_Entry]:
    """The rows in their order: drawn within each source, then over all."""
    kept = pool
    if chosen.max_per_source is not None:
        kept = []
        for number in range(sources):
            own = [entry for entry in pool if entry.source == number]
            Random(f"rolewise-sq-train:{chosen.seed}:source:{number}").shuffle(own)
            kept += own[: chosen.max_per_source]
    order = list(kept)
    Random(f"rolewise-sq-train:{chosen.seed}:order").shuffle(order)
    return order


def _injectable(example: Example, chosen: Settings) -> bool:
    size = len(example.instruction) + len(example.input) + (len(example.output) if chosen.twins else 0)
    return chosen.max_injected_chars is None or size <= chosen.max_injected_chars


def _more_donors(chosen: Settings) -> str:
    limit = chosen.max_injected_chars
    return "make clean rows (variant='clean')" if limit is None else f"raise the limit max_injected_chars={limit}"


def _rows(entries: Iterable[_Entry], donors: list[_Entry], chosen: Settings) -> Iterator[Row]:
    plan = _plan(chosen.seed)
    for entry in entries:
        condition = next(plan) if chosen.variant == "adversarial" and entry.example.input else CLEAN
        sample = Sample(
            id=entry.id,
            instruction=entry.example.instruction,
            data=entry.example.input,
            answer=entry.example.output,
            task="structured_query",
        )
        if condition == CLEAN:
            yield _row(sample, CLEAN)
        else:
            yield from _attacked(sample, entry, condition, donors, chosen)


def _plan(seed: int) -> Iterator[str]:
    """Conditions of the rows with an input: in every four, two clean ones and one of each attack."""
    block = 0
    while True:
        yield from Random(f"rolewise-sq-train:{seed}:block:{block}").sample((CLEAN, CLEAN, *ATTACKS), 4)
        block += 1


def _attacked(sample: Sample, entry: _Entry, name: str, donors: list[_Entry], chosen: Settings) -> Iterator[Row]:
    rng = Random(f"rolewise-sq-train:{chosen.seed}:{sample.id}")
    other = _other(rng, donors, entry)
    payload = payload_of(other.example)
    decoy = _other(rng, donors, entry, other).example.output if chosen.forged == "other" else None
    sample = replace(sample, payload=payload, decoy=decoy)

    def attack(host: Sample) -> Sample:
        position = "end" if chosen.position == "end" else rng.choice(_POSITIONS)
        forged = "reference" if decoy is None else "decoy"
        return make_attack(name, split="train", position=position, forged=forged)(host, rng)

    yield _row(attack(sample), name, pair=sample.id if chosen.twins else None, injected=other.id)
    if not chosen.twins:
        return
    twin = make_attack("naive", role="user", split="train")(sample, rng)
    if rng.random() < BOTH_SHARE:
        third = payload_of(_other(rng, donors, entry, other).example)
        twin = replace(attack(replace(twin, payload=third)), payload=payload)
    both = f"{sample.answer.rstrip()}\n\n{other.example.output.lstrip()}"
    yield _row(twin, TWIN, pair=sample.id, injected=other.id, answer=both)


def payload_of(example: Example) -> Payload:
    """Another row as an extra instruction: its instruction and input; the witness is its output."""
    prefix = QUESTION_PREFIX if example.instruction.rstrip().endswith("?") else ""
    text = f"{prefix}{example.instruction} {example.input}".strip()
    return Payload(text=text, witness=example.output, kind="row")


def _other(rng: Random, donors: list[_Entry], *taken: _Entry) -> _Entry:
    """A random row with another instruction than those taken: the same one again would be no extra instruction."""
    asked = {_asked(entry) for entry in taken}
    while True:
        donor = donors[rng.randrange(len(donors))]
        if _asked(donor) not in asked:
            return donor


def _asked(entry: _Entry) -> str:
    return entry.example.key[0]


def _row(
    sample: Sample, condition: str, *, pair: str | None = None, injected: str | None = None, answer: str | None = None
) -> Row:
    meta = {**audit(sample), "condition": condition, "pair": pair}
    if injected is not None:
        meta["injected_row"] = injected
    if answer is not None:
        sample = replace(sample, answer=answer)
    return {"messages": to_messages(sample), "meta": meta}
