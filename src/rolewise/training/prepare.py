"""Conversations -> rows of token ids with roles and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolewise.rendering import Encoding, render
from rolewise.roles import Role, RoleScheme
from rolewise.training.dataset import RoleDataset
from rolewise.training.rows import BadRow, Row, read_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rolewise.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Rows ready for training, and what happened to those that are not among them."""

    dataset: RoleDataset
    """The rows."""
    bad: int = 0
    """Rows left out because they cannot be used."""
    first_problem: str | None = None
    """Why the first of them cannot be used."""
    too_long: int = 0
    """Rows left out because they are longer than the maximum."""
    truncated: int = 0
    """Rows whose data spans were cut."""
    truncated_tokens: int = 0
    """Tokens cut from data spans."""

    def report(self, name: str) -> str:
        """One paragraph for people."""
        rows, tokens = self.dataset.num_rows, self.dataset.num_tokens
        lines = [
            f"{name}: {rows:,} rows, {tokens:,} tokens ({tokens / max(rows, 1):,.0f} a row), "
            f"{100 * self.dataset.num_labelled / max(tokens, 1):.0f} % of them carry loss"
        ]
        if self.dataset.packed:
            lines.append(f"packed into {len(self.dataset):,} rows")
        if self.truncated:
            lines.append(f"{self.truncated:,} rows lost {self.truncated_tokens:,} tokens at the end of their data")
        if self.too_long:
            lines.append(f"{self.too_long:,} rows left out because they are too long")
        if self.bad:
            lines.append(f"{self.bad:,} bad rows left out; the first: {self.first_problem}")
        return "\n  ".join(lines)


def prepare_data(
    config: TrainConfig,
    tokenizer: PreTrainedTokenizerBase,
    *,
    scheme: RoleScheme | None = None,
    evaluation: bool = False,
    wrap: Callable[[Iterable[Row | BadRow]], Iterable[Row | BadRow]] = lambda rows: rows,
) -> Prepared:
    """Read and render the rows that `config` names.

    Args:
        config: the run.
        tokenizer: the model's.
        scheme: which role takes which row of the table; as for `rolewise.render`.
        evaluation: read `eval_data` instead of `data`; it is never packed.
        wrap: put around the rows' iterator, for a progress bar.

    Raises:
        ValueError: when a row cannot be used or is too long (see `skip_bad` and `overflow`), with its file and
            line; or when no row is left.
    """
    source = config.eval_data if evaluation else config.data
    assert source is not None
    split = config.eval_split if evaluation else config.data_split
    dataset = RoleDataset()
    bad = too_long = truncated = truncated_tokens = 0
    first_problem: str | None = None
    for row in wrap(read_rows(source, split=split, form=config.data_format)):
        if config.max_rows is not None and dataset.num_rows >= config.max_rows:
            break
        try:
            if isinstance(row, BadRow):
                raise ValueError(row.problem)
            encoded = encode_row(row, config, tokenizer, scheme)
        except (ValueError, TypeError) as error:
            problem = str(error)
            if not config.skip_bad:
                raise ValueError(f"{problem}\n(skip_bad, --skip-bad, leaves out such rows and counts them)") from error
            bad, first_problem = bad + 1, first_problem or problem
            continue
        if encoded is None:
            too_long += 1
            continue
        dataset.append(encoded.input_ids, encoded.segment_ids, encoded.loss_mask)
        truncated += bool(encoded.truncated_tokens)
        truncated_tokens += encoded.truncated_tokens
    if not dataset.num_rows:
        why = f"; the first bad one: {first_problem}" if first_problem else ""
        raise ValueError(f"{source!r} has no row to use: {bad} bad and {too_long} too long were left out{why}")
    if config.packing and not evaluation:
        dataset.pack(config.max_length)
    return Prepared(
        dataset=dataset,
        bad=bad,
        first_problem=first_problem,
        too_long=too_long,
        truncated=truncated,
        truncated_tokens=truncated_tokens,
    )


def encode_row(
    row: Row, config: TrainConfig, tokenizer: PreTrainedTokenizerBase, scheme: RoleScheme | None = None
) -> Encoding | None:
    """Render one row as `config` says: an `Encoding`, or None when it is too long and to be skipped.

    Raises:
        ValueError: with the row's place, when it cannot be rendered, is too long, or has no token to learn.
    """
    limit = config.max_length if config.overflow == "truncate_data" else None
    try:
        encoded = render(
            tokenizer,
            row.messages,
            tools=row.tools,
            documents=row.documents,
            scheme=scheme,
            tools_role=Role[config.tools_role.upper()],
            train_on=config.train_on,
            max_length=limit,
            overflow="truncate_data" if limit else "refuse",
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{row.place}: {error}") from error
    if len(encoded.input_ids) > config.max_length:
        if config.overflow == "skip":
            return None
        raise ValueError(
            f"{row.place}: the row has {len(encoded.input_ids):,} tokens, more than max_length={config.max_length:,}; "
            "raise max_length, or set overflow to truncate_data (cuts data only) or skip"
        )
    if not any(encoded.loss_mask[1:]):
        raise ValueError(f"{row.place}: no token of the row carries loss, so there is nothing to learn")
    return encoded
