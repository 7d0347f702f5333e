"""The answers of one model to the test rows, kept on disk as they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rolewise.data import Row

MAX_NEW_TOKENS = 24


def answer_rows(model: Any, tokenizer: Any, rows: Sequence[Row], path: Path, *, description: str) -> list[str]:
    """The model's greedy answer to each row, in order; those that `path` has already are not asked again.

    `path` is JSON lines of {"row", "key", "answer"}; a line that a kill cut short, or one of another row, is dropped.
    """
    from tqdm import tqdm

    from rolewise.generation import generate_batch

    keys = [_key(row) for row in rows]
    known = read_answers(path, keys)
    missing = [index for index in range(len(rows)) if index not in known]
    if missing:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Begin with a clean file: appending to a line that was cut short would spoil both.
        path.write_text("".join(_line(index, keys[index], known[index]) for index in sorted(known)), encoding="utf-8")
        conversations = [rows[index]["messages"] for index in missing]
        answers = generate_batch(model, tokenizer, conversations, max_new_tokens=MAX_NEW_TOKENS, batch_size=32)
        with (
            path.open("a", encoding="utf-8") as file,
            tqdm(total=len(rows), initial=len(known), desc=description, unit="answer", dynamic_ncols=True) as bar,
        ):
            for place, text in answers:
                index = missing[place]
                known[index] = text
                file.write(_line(index, keys[index], text))
                file.flush()
                bar.update()
    return [known[index] for index in range(len(rows))]


def answers_file(output: Path, arm: str) -> Path:
    """Where an arm's answers are kept."""
    return output / "answers" / f"{arm}.jsonl"


def complete(path: Path, rows: Sequence[Row]) -> bool:
    """Whether `path` has an answer to every row."""
    return len(read_answers(path, [_key(row) for row in rows])) == len(rows)


def answers_to(output: Path, arm: str, rows: Sequence[Row]) -> list[str]:
    """An arm's answers to all rows, in order, from disk."""
    known = read_answers(answers_file(output, arm), [_key(row) for row in rows])
    assert len(known) == len(rows), f"{arm} was not asked everything"
    return [known[index] for index in range(len(rows))]


def read_answers(path: Path, keys: Sequence[str]) -> dict[int, str]:
    """The complete answers in `path` to the rows with these keys."""
    known: dict[int, str] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                if keys[entry["row"]] == entry["key"]:
                    known[entry["row"]] = entry["answer"]
            except (ValueError, KeyError, IndexError, TypeError):
                continue  # cut short by a kill: asked again
    return known


def _key(row: Row) -> str:
    content = json.dumps(row["messages"], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _line(index: int, key: str, answer: str) -> str:
    return json.dumps({"row": index, "key": key, "answer": answer}, ensure_ascii=False) + "\n"
