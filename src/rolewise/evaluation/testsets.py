"""What a suite is run on: a file that the user has, or rows that we generate; and which attacks. Imports little."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

from rolewise.attacks import IN_DOMAIN_ATTACKS, MAIN_ATTACKS, OOD_ATTACKS, SECALIGN_ATTACKS, attack_info
from rolewise.evaluation.suite_info import suite_info
from rolewise.samples import Payload, Sample
from rolewise.unknown import unknown_name

ATTACK_SETS: dict[str, tuple[str, ...]] = {
    "main": tuple(MAIN_ATTACKS),
    "in_domain": tuple(IN_DOMAIN_ATTACKS),
    "ood": tuple(OOD_ATTACKS),
    "secalign": tuple(SECALIGN_ATTACKS),
    "all": (*IN_DOMAIN_ATTACKS, *OOD_ATTACKS),
    "everything": (*IN_DOMAIN_ATTACKS, *OOD_ATTACKS, *SECALIGN_ATTACKS),
}
"""Names for sets of attacks; `all` is what the paper's tables are made of."""

GENERATED = "generated"
"""The name of the rows that we generate, in place of a file's (a file of that name is `./generated`)."""
GENERATED_ROWS = 100
"""How many, when no limit is given."""

DATA_DIRECTORY = Path("..") / "shared" / "data" / "eval"
"""Where the test files are looked for when none is named, relative to the working directory."""


def find_data(suite: str, data: str | None) -> str:
    """The test file that was named, else the one where ours lie, else `generated`.

    Raises:
        FileNotFoundError: when the named file does not exist, or none is there and the suite has no generated rows; the
            message says what it is and where to get it.
        ValueError: when `generated` rows are asked for that the suite does not have.
    """
    info, shown = suite_info(suite), suite.replace("_", "-")
    if data == GENERATED:
        if not info.can_generate:
            raise ValueError(f"data={GENERATED!r}: {shown} has no generated rows; name {info.published}")
        return data
    if info.file is None and not data:
        return GENERATED
    path = Path(data).expanduser() if data else DATA_DIRECTORY / (info.file or "")
    if path.is_file():
        return str(path)
    if not data and info.can_generate:
        return GENERATED
    other = f", or --data {GENERATED} for rows that need no file" if info.can_generate else ""
    raise FileNotFoundError(f"no test file {str(path)!r} for {shown}; name {info.published}{other}")


def data_bytes(suite: str, data: str) -> bytes:
    """What tells one test set from another: a file's bytes, or the generated rows."""
    if data != GENERATED:
        return Path(data).expanduser().read_bytes()
    return json.dumps(_generated_rows(suite), default=str).encode()


FILE_ARGUMENTS = ("queries", "templates", "references")
"""Arguments of tasks that name further files."""


def file_digests(files: Mapping[str, str | None]) -> dict[str, str]:
    """By argument, what tells the further files of a run from others of the same names."""
    return {
        name: hashlib.sha256(Path(file).expanduser().read_bytes()).hexdigest()[:16]
        for name, file in files.items()
        if file
    }


BENCHMARKS = ("mt_bench", "alpaca_eval")
"""What the suite capability is made of."""
_REFERENCES = suite_info("structured_query")


def chosen_benchmarks(benchmarks: str | Sequence[str]) -> list[str]:
    """Names of benchmarks of the suite capability, separated by commas, or in a list.

    Raises:
        ValueError: for an unknown name (the nearest is named), or none.
    """
    given = benchmarks.split(",") if isinstance(benchmarks, str) else benchmarks
    names = list(dict.fromkeys(part.strip().replace("-", "_") for part in given))
    for name in names:
        if name not in BENCHMARKS:
            raise unknown_name("benchmark", name, BENCHMARKS)
    return names


def find_references(references: str | None) -> str:
    """The file of AlpacaEval's rows for the win rate: the one that was named, else the one where ours lie.

    Raises:
        FileNotFoundError: when there is none; the message says what it is, where to get it, and how to do without.
    """
    path = Path(references).expanduser() if references else DATA_DIRECTORY / str(_REFERENCES.file)
    if not path.is_file():
        raise FileNotFoundError(
            f"no file of reference answers {str(path)!r}; name {_REFERENCES.published}, or leave AlpacaEval out with "
            "--benchmarks mt_bench"
        )
    return str(path)


def task_bytes(suite: str, task_args: Mapping[str, Any]) -> bytes:
    """What tells one test from another: `data_bytes`, and what is in the other files that its arguments name."""
    files = (task_args.get(name) for name in FILE_ARGUMENTS)
    data = data_bytes(suite, str(task_args["data"]))
    return data + b"".join(Path(str(file)).expanduser().read_bytes() for file in files if file)


def _generated_rows(suite: str) -> list[Any]:
    if suite == "sep":
        return _sep_rows(GENERATED_ROWS)
    if suite == "rules":
        from rolewise.data.conflicts import conflict_conditions

        return list(conflict_conditions(GENERATED_ROWS))
    if suite == "prompt_extraction":
        from rolewise.evaluation.extraction import generated_secrets

        return [asdict(one) for one in generated_secrets()]
    if suite == "over_refusal":
        from rolewise.evaluation.safety import generated_benign

        return [asdict(one) for one in generated_benign()]
    return [asdict(one) for one in _generated(GENERATED_ROWS)]


def load_test_samples(
    data: str, payload: Payload, limit: int | None = None, *, with_input: bool = True
) -> list[Sample]:
    """The samples of an AlpacaEval-shaped file, or generated ones, with `payload`.

    Args:
        data: a path, or `generated`.
        payload: what attacks inject.
        limit: how many.
        with_input: those that have an input (it is the data), or those that have none: all is in the user turn.

    Raises:
        ValueError: when `limit` < 1, or a row of the file cannot be used.
    """
    from rolewise.data.structured_query import load_samples

    check_limit(limit)
    if data == GENERATED:
        made = [replace(sample, payload=payload) for sample in _generated(limit or GENERATED_ROWS)]
        if with_input:
            return made
        return [replace(one, instruction=f"{one.instruction}\n\n{one.data}", data="") for one in made]
    return load_samples(Path(data).expanduser(), payload=payload, with_input=with_input)[:limit]


def load_sep_rows(data: str, limit: int | None = None) -> list[dict[str, Any]]:
    """The rows of a SEP file, or generated ones.

    Raises:
        ValueError: when `limit` < 1, or a row of the file cannot be used.
    """
    from rolewise.evaluation.sep import load_sep

    check_limit(limit)
    return _sep_rows(limit or GENERATED_ROWS) if data == GENERATED else load_sep(Path(data).expanduser())[:limit]


def check_limit(limit: int | None) -> None:
    """Refuse a limit below one.

    Raises:
        ValueError: when `limit` < 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit} must be at least 1")


def _generated(count: int) -> list[Sample]:
    """Rows of our own tasks, from the vocabulary that no training row of ours has; fewer are the first of more."""
    from rolewise.data.generate import generate_sample, task_of

    return [
        generate_sample(Random(f"rolewise-eval:{number}"), "test", id=f"generated-{number}",
                        task=task_of("rolewise-eval", number))
        for number in range(count)
    ]  # fmt: skip


def _sep_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "system_prompt_clean": sample.instruction,
            "prompt_instructed": f"{sample.data} {sample.payload.text}",
            "system_prompt_instructed": f"{sample.instruction} {sample.payload.text}",
            "prompt_clean": sample.data,
            "witness": sample.payload.witness,
            "info": {"task": sample.task},
        }
        for sample in _generated(count)
        if sample.payload is not None
    ]


def chosen_attacks(attacks: str | Sequence[str], domain: str | None = None) -> list[str]:
    """Names of attacks from names of attacks and of sets, without repetitions, perhaps of one domain only.

    Raises:
        ValueError: for an unknown name (the nearest is named), or when nothing is left.
    """
    given = [part.strip() for part in attacks.split(",")] if isinstance(attacks, str) else list(attacks)
    names: list[str] = []
    for name in given:
        if name in ATTACK_SETS:
            names += ATTACK_SETS[name]
            continue
        try:
            attack_info(name)
        except ValueError as error:
            near = difflib.get_close_matches(name, ATTACK_SETS, n=1)
            hint = f" (did you mean the set {near[0]!r}?)" if near else ""
            raise ValueError(f"{error}{hint}; sets are {', '.join(ATTACK_SETS)}") from None
        names.append(name)
    names = [name for name in dict.fromkeys(names) if domain is None or attack_info(name).domain == domain]
    if not names:
        raise ValueError(f"no attack is left: attacks={attacks!r} has none of domain={domain!r}")
    return names
