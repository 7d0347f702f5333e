"""What a suite is run on: a file that the user has, or rows that we generate; and which attacks. Imports little."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

from rolewise.attacks import IN_DOMAIN_ATTACKS, MAIN_ATTACKS, OOD_ATTACKS, SECALIGN_ATTACKS, attack_info
from rolewise.evaluation.suite_info import suite_info
from rolewise.samples import Payload, Sample

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
        FileNotFoundError: when the named file does not exist; the message says what it is and where to get it.
    """
    if data == GENERATED:
        return data
    ours = suite_info(suite).file
    if ours is None and not data:
        return GENERATED
    path = Path(data).expanduser() if data else DATA_DIRECTORY / (ours or "")
    if path.is_file():
        return str(path)
    if not data:
        return GENERATED
    raise FileNotFoundError(
        f"no test file {str(path)!r} for {suite.replace('_', '-')}; name {suite_info(suite).published}, "
        f"or --data {GENERATED} for rows that need no file"
    )


def data_bytes(suite: str, data: str) -> bytes:
    """What tells one test set from another: a file's bytes, or the generated rows."""
    if data != GENERATED:
        return Path(data).expanduser().read_bytes()
    return json.dumps(_generated_rows(suite), default=str).encode()


def _generated_rows(suite: str) -> list[Any]:
    if suite == "sep":
        return _sep_rows(GENERATED_ROWS)
    if suite == "rules":
        from rolewise.data.conflicts import conflict_conditions

        return list(conflict_conditions(GENERATED_ROWS))
    if suite == "prompt_extraction":
        from rolewise.evaluation.extraction import generated_secrets

        return [asdict(one) for one in generated_secrets()]
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

    _check(limit)
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

    _check(limit)
    return _sep_rows(limit or GENERATED_ROWS) if data == GENERATED else load_sep(Path(data).expanduser())[:limit]


def _check(limit: int | None) -> None:
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
