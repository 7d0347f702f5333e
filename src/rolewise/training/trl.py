"""Train with TRL's `SFTTrainer`: rows that keep their roles, the options they need, and the table's optimizer.

TRL's trainer renders and tokenises conversations itself, which would lose the roles, so it is handed rows that are
tokenised already. It also replaces the model's forward by one with a fused head that calls the backbone directly;
Rolewise adds the segments in the backbone, so they take part all the same.

    from trl import SFTConfig, SFTTrainer
    import rolewise as rw
    from rolewise.training import to_trl_rows, trl_collator, trl_optimizer, trl_options

    model, tokenizer = rw.load("smollm2-135m")
    arguments = SFTConfig(output_dir="out", learning_rate=2e-5, **trl_options())
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=to_trl_rows(tokenizer, rows),  # [{"messages": [...]}, ...]
        data_collator=trl_collator(model, tokenizer),
        processing_class=tokenizer,
        optimizers=(trl_optimizer(model, arguments), None),
    )
    trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

from rolewise.collation import NO_LABEL, RoleCollator
from rolewise.rendering import render
from rolewise.roles import Role, RoleScheme
from rolewise.training.rows import parse_row
from rolewise.training.trainer import DEFAULT_TABLE_LR_MULTIPLE, default_collator, segment_tables

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase, TrainingArguments

    from rolewise.modeling import SegmentedCausalLM


def to_trl_rows(
    tokenizer: PreTrainedTokenizerBase,
    rows: Iterable[Mapping[str, Any]],
    *,
    scheme: RoleScheme | None = None,
    tools_role: Role = Role.SYSTEM,
    train_on: Literal["all", "last"] = "all",
    max_length: int | None = None,
    overflow: Literal["refuse", "truncate_data"] = "refuse",
) -> Dataset:
    """Conversations as a data set that `SFTTrainer` leaves as it is (with `trl_options`).

    Args:
        tokenizer: the model's.
        rows: {"messages": [...], "tools": [...]?} or Alpaca rows {"instruction", "input", "output"}.
        scheme: the model's `role_scheme`; as for `rolewise.render`.
        tools_role: whether tool descriptions are SYSTEM or DATA.
        train_on: which assistant turns carry loss.
        max_length: the most tokens of a row.
        overflow: refuse longer rows, or cut the end of their data.

    Returns:
        A `datasets.Dataset` with `input_ids`, `segment_ids` and `labels` (-100 where there is no loss).

    Raises:
        ValueError: naming the row that cannot be used.
    """
    from datasets import Dataset

    def converted() -> Iterable[dict[str, list[int]]]:
        for index, value in enumerate(rows):
            try:
                row = parse_row(dict(value), place=f"row {index}")
                encoding = render(
                    tokenizer,
                    row.messages,
                    tools=row.tools,
                    documents=row.documents,
                    scheme=scheme,
                    tools_role=tools_role,
                    train_on=train_on,
                    max_length=max_length,
                    overflow=overflow,
                )
            except (ValueError, TypeError) as error:
                raise ValueError(f"row {index}: {error}") from error
            labels = [
                token if labelled else NO_LABEL
                for token, labelled in zip(encoding.input_ids, encoding.loss_mask, strict=True)
            ]
            yield {
                "input_ids": list(encoding.input_ids),
                "segment_ids": list(encoding.segment_ids),
                "labels": labels,
            }

    return Dataset.from_list(list(converted()))


def trl_collator(model: SegmentedCausalLM, tokenizer: PreTrainedTokenizerBase) -> RoleCollator:
    """The collator to hand to `SFTTrainer`; TRL's own would drop `segment_ids`."""
    return default_collator(tokenizer, model)


def trl_options() -> dict[str, Any]:
    """Options of `SFTConfig` without which it would drop the roles."""
    return {
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "remove_unused_columns": False,
        "packing": False,
        "max_length": None,
    }


def trl_optimizer(
    model: torch.nn.Module, arguments: TrainingArguments, *, table_lr_multiple: float = DEFAULT_TABLE_LR_MULTIPLE
) -> torch.optim.Optimizer:
    """AdamW with a learning rate of its own for the table, for `optimizers=(trl_optimizer(...), None)`.

    Not with FSDP, where transformers refuses an optimizer made beforehand; use `RoleTrainer` there.
    """
    tables = [p for table in segment_tables(model) for p in table.parameters() if p.requires_grad]
    chosen = {id(parameter) for parameter in tables}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    rate = arguments.learning_rate
    groups = [
        {"params": others, "weight_decay": arguments.weight_decay},
        {"params": tables, "lr": rate * table_lr_multiple, "weight_decay": 0.0},
    ]
    betas = (arguments.adam_beta1, arguments.adam_beta2)
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=rate, betas=betas, eps=arguments.adam_epsilon)
