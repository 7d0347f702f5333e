"""The Hugging Face `Trainer`, for models whose tokens have roles."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import EvalLoopOutput

from rolewise.collation import NO_LABEL, RoleCollator
from rolewise.modeling import SegmentEmbedding, labelled_loss
from rolewise.modeling.loss import require_next_token_loss
from rolewise.training.checkpoints import mark_complete, rotate, whole_or_absent
from rolewise.training.finite import all_finite, require_finite_step

DEFAULT_TABLE_LR_MULTIPLE = 10.0


class RoleTrainer(Trainer):
    """`transformers.Trainer` with what Instructional Segment Embedding needs.

    - the segment table has a parameter group of its own: a multiple of the learning rate, no weight decay;
    - the LM head runs only where there are labels, and the loss is the mean over all labelled tokens of an
      optimizer step, whatever the number of processes and of accumulated batches;
    - the order of the rows depends on the seed and the epoch alone, so that a killed run resumes to the same weights;
    - a checkpoint is marked once it is complete (see `rolewise.training.checkpoints`);
    - a step whose loss or gradient is NaN or infinite ends the run with a ValueError, before it moves the weights,
      and weights that are NaN or infinite are never saved.

    Args:
        args: as `Trainer` takes them. `remove_unused_columns` is turned off: it would drop the roles.
        table_lr_multiple: the table's learning rate over the model's.
        group_by_length: batch rows of about one length.
        shuffle: draw the rows in an order of the seed's; False keeps the data set's.
        keep_checkpoints: how many complete checkpoints to keep, 0 for all (in place of `save_total_limit`).
        kwargs: as `Trainer` takes them; `data_collator` must be a `RoleCollator` (or do the same).

    Raises:
        ValueError: when there is no segment table, no collator, a PEFT method that the roles do not reach, or a model
            whose loss is not the next token's cross-entropy.
    """

    def __init__(
        self,
        *args: Any,
        table_lr_multiple: float = DEFAULT_TABLE_LR_MULTIPLE,
        group_by_length: bool = False,
        shuffle: bool = True,
        keep_checkpoints: int = 1,
        **kwargs: Any,
    ) -> None:
        model = kwargs.get("model", args[0] if args else None)
        if not isinstance(model, nn.Module) or not segment_tables(model):
            raise ValueError(
                f"RoleTrainer needs a model with a segment table, not {type(model).__name__}; "
                "make one with rolewise.load_model or rolewise.attach"
            )
        configs: Any = getattr(model, "peft_config", None)
        for config in configs.values() if isinstance(configs, dict) else ():
            refuse_without_roles(config)
        collator = kwargs.get("data_collator", args[2] if len(args) > 2 else None)
        if collator is None:
            raise ValueError("RoleTrainer needs data_collator=rolewise.RoleCollator(pad_token_id=...)")
        self.table_lr_multiple = table_lr_multiple
        self._keep_checkpoints = keep_checkpoints
        self._step_loss: torch.Tensor | None = None
        super().__init__(*args, **kwargs)
        if self.args.label_smoothing_factor:
            raise ValueError("label_smoothing_factor is not supported by RoleTrainer's loss; set it to 0")
        if self.args.fsdp and not self.is_fsdp_enabled:
            raise ValueError(
                "FSDP was asked for, but accelerate does not shard on this device (only on accelerators such as GPUs) "
                "and would train unsharded without a word; turn fsdp off, or run on GPUs with torchrun"
            )
        require_next_token_loss(model)
        self.args.remove_unused_columns = False
        self.args.save_total_limit = None  # rotation is ours: the old checkpoint goes once the new one is complete
        # Our loss is a sum over the step's labelled tokens already; nothing may divide it again.
        self.model_accepts_loss_kwargs = True
        self.loss_is_scaled_for_ga = True
        self._sampler: EpochSampler | None = None
        if self.train_dataset is not None:
            self._sampler = EpochSampler(
                cast("Dataset[Any]", self.train_dataset),
                seed=self.args.seed,
                shuffle=shuffle,
                group=self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
                if group_by_length
                else None,
            )
            self.add_callback(_SetEpoch(self._sampler))

    # --- loss ----------------------------------------------------------------------------------------------

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The labelled tokens' cross-entropy, divided by their number over the whole optimizer step."""
        loss = labelled_loss(model, inputs, num_items_in_batch)
        if num_items_in_batch is not None:
            # The processes' gradients are averaged, but the divisor already counts the tokens of all of them.
            loss = loss * self.accelerator.num_processes
        return (loss, {"loss": loss}) if return_outputs else loss

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As `Trainer` does, and note the loss for the check at the end of the optimizer step."""
        loss = super().training_step(*args, **kwargs)
        self._step_loss = loss if self._step_loss is None else self._step_loss + loss
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The last that `Trainer` asks for before the optimizer moves the weights: stop here when they diverge."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        loss, self._step_loss = self._step_loss, None
        if not self.args.fp16:  # its loss scaler expects infinite gradients, and skips such steps by itself
            groups = cast("torch.optim.Optimizer", self.optimizer).param_groups
            require_finite_step(self.state.global_step + 1, loss, norm, (groups[0]["lr"], groups[-1]["lr"]))
        return norm

    def _get_num_items_in_batch(
        self, batch_samples: list[Mapping[str, torch.Tensor]], device: torch.device
    ) -> torch.Tensor | None:
        """Labelled tokens of an optimizer step, over all processes; a row's first token is never predicted."""
        if not batch_samples:
            return None
        count = torch.stack([(batch["labels"][:, 1:] != NO_LABEL).sum() for batch in batch_samples]).sum().to(device)
        return cast("torch.Tensor", self.accelerator.gather(count)).sum() if self.args.world_size > 1 else count

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """The mean loss over all labelled tokens (`Trainer` would average batches, however many labels they have).

        Raises:
            ValueError: when predictions are asked for (`compute_metrics`); generate them instead.
        """
        if self.compute_metrics is not None or prediction_loss_only is False:
            raise ValueError("RoleTrainer evaluates the loss only; use rolewise.generation for predictions")
        model: Any = self.model_wrapped
        if model is self.model and not self.is_in_train:
            model = self.accelerator.prepare_model(
                cast("nn.Module", self.model), evaluation_mode=not self.is_fsdp_enabled
            )
        was_training = model.training
        model.eval()
        total_rows = len(cast("Sized", dataloader.dataset))
        totals = torch.zeros(2, dtype=torch.float64, device=self.args.device)
        size = self.args.eval_batch_size
        for step, raw in enumerate(dataloader):
            batch = self._prepare_inputs(raw)
            # Processes get batches in turn, and the last round starts over to fill up: count no row twice.
            first = (step * self.args.world_size + self.args.process_index) * size
            rows = max(0, min(size, total_rows - first))
            labels = batch["labels"].clone()
            if rows:
                labels[rows:] = NO_LABEL
            with torch.no_grad(), self.compute_loss_context_manager():
                loss = labelled_loss(model, {**batch, "labels": labels}, num_items=1)
            if rows:
                totals += torch.stack([loss.double(), (labels[:, 1:] != NO_LABEL).sum().double()])
        if self.args.world_size > 1:
            totals = cast("torch.Tensor", self.accelerator.gather(totals)).view(-1, 2).sum(0)
        model.train(was_training)
        loss, tokens = totals.tolist()
        metrics = {f"{metric_key_prefix}_loss": loss / max(tokens, 1.0)}
        return EvalLoopOutput(predictions=cast("Any", ()), label_ids=None, metrics=metrics, num_samples=total_rows)

    # --- optimizer and order of the rows -------------------------------------------------------------------

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW (or what `args.optim` says) with the table in a group of its own."""
        fresh = self.optimizer is None
        optimizer: torch.optim.Optimizer = (
            super().create_optimizer() if model is None else super().create_optimizer(model)
        )
        if fresh:
            whole = cast("nn.Module", self.model if model is None else model)
            tables = [p for t in segment_tables(whole) for p in t.parameters() if p.requires_grad]
            chosen = {id(parameter) for parameter in tables}
            for group in optimizer.param_groups:
                group["params"] = [parameter for parameter in group["params"] if id(parameter) not in chosen]
            if tables:
                learning_rate = self.args.learning_rate * self.table_lr_multiple
                optimizer.add_param_group({"params": tables, "lr": learning_rate, "weight_decay": 0.0})
        return optimizer

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        return self._sampler

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """As `Trainer`'s, with a row of the batch for each row of the data, which `evaluation_loop` counts."""
        collator = self.data_collator
        try:
            if isinstance(collator, RoleCollator):
                self.data_collator = dataclasses.replace(collator, padding_free=False)
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.data_collator = collator

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[int] | None:
        return torch.utils.data.SequentialSampler(eval_dataset)

    # --- checkpoints ---------------------------------------------------------------------------------------

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As `Trainer` does, on every process.

        Raises:
            ValueError: when the last step made a weight NaN or infinite.
        """
        finite = all_finite(cast("nn.Module", self.model))
        if self.is_fsdp_enabled:  # each process sees its shards only, and all must come to the same end
            flag = torch.tensor([int(finite)], device=self.args.device)
            finite = bool(cast("torch.Tensor", self.accelerator.gather(flag)).all())
        if not finite:
            raise ValueError(
                f"step {self.state.global_step} made weights NaN or infinite, so they are not saved; lower "
                "learning_rate or table_lr_multiple, and name another output_dir"
            )
        super().save_model(output_dir, _internal_call)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        run = Path(self._get_output_dir(trial))
        checkpoint = run / f"checkpoint-{self.state.global_step}"
        owner = bool(self.args.should_save)
        with whole_or_absent(checkpoint, owner=owner):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if owner:
                mark_complete(checkpoint)
        if owner:
            rotate(run, self._keep_checkpoints)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if state_dict is not None:
            # Gathered shards no longer share memory, so a tied head would be written a second time.
            tied: dict[str, str] = getattr(self.model, "all_tied_weights_keys", {})
            copies = {name for name, source in tied.items() if source in state_dict}
            state_dict = {name: weight for name, weight in state_dict.items() if name not in copies}
        log = logging.getLogger("transformers.configuration_utils")
        level = log.level
        if hasattr(self.model, "peft_config"):
            # PEFT compares vocabulary sizes by reading the plain base's configuration as ours, which warns each time.
            log.setLevel(logging.ERROR)
        try:
            super()._save(output_dir, state_dict)
        finally:
            log.setLevel(level)
        # A pickle, which nothing reads: the settings are in the run's JSON file.
        (Path(output_dir or str(self.args.output_dir)) / "training_args.bin").unlink(missing_ok=True)


class EpochSampler(Sampler[int]):
    """The order of the rows: a function of the seed and the epoch, and of nothing else."""

    def __init__(self, dataset: Dataset[Any], *, seed: int, shuffle: bool, group: int | None) -> None:
        """Prepare.

        Args:
            dataset: the rows; with a `lengths()` method, or items that have `input_ids`.
            seed: of the order.
            shuffle: False for the data set's own order.
            group: the number of rows of one optimizer step, to keep rows of about one length together.
        """
        self._count = len(cast("Sized", dataset))
        self._seed = seed
        self._shuffle = shuffle
        self._group = group
        self._lengths = _lengths(dataset) if group else []
        self.epoch = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """This epoch's indices."""
        if not self._shuffle:
            return iter(range(self._count))
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self.epoch)
        order: list[int] = torch.randperm(self._count, generator=generator).tolist()
        if self._group:
            order = self._grouped(order, self._group, generator)
        return iter(order)

    def _grouped(self, order: list[int], group: int, generator: torch.Generator) -> list[int]:
        """Sort stretches of fifty steps by length, cut them into steps, and shuffle the steps."""
        stretch = 50 * group
        steps: list[list[int]] = []
        for start in range(0, self._count, stretch):
            rows = sorted(order[start : start + stretch], key=lambda index: -self._lengths[index])
            steps += [rows[at : at + group] for at in range(0, len(rows), group)]
        partial = steps.pop() if len(steps[-1]) < group else None
        shuffled = [steps[index] for index in torch.randperm(len(steps), generator=generator).tolist()]
        if partial:
            shuffled.append(partial)
        return [index for step in shuffled for index in step]


class _SetEpoch(TrainerCallback):
    """Tell the sampler the epoch, also after resuming."""

    def __init__(self, sampler: EpochSampler) -> None:
        self._sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._sampler.epoch = int(state.epoch or 0)


def segment_tables(model: nn.Module) -> list[SegmentEmbedding]:
    """The model's segment tables; under PEFT its frozen original and the trained copy."""
    return [module for module in model.modules() if isinstance(module, SegmentEmbedding)]


def refuse_without_roles(config: Any) -> None:
    """Refuse PEFT methods whose tokens would have no role.

    Args:
        config: a `peft.PeftConfig`.

    Raises:
        ValueError: naming the method and what to use instead.
    """
    if getattr(config, "is_prompt_learning", False):
        raise ValueError(
            f"{type(config).__name__} adds virtual tokens before the prompt, and they have no role; "
            "use a method that adapts weights instead, such as LoRA (method: lora)"
        )
    if getattr(config, "trainable_token_indices", None) or type(config).__name__ == "TrainableTokensConfig":
        raise ValueError(
            f"{type(config).__name__} replaces the input embedding to train single tokens (trainable_token_indices), "
            "which takes the roles away; train the whole embedding, modules_to_save=['embed_tokens'], or none of it"
        )


def default_collator(tokenizer: Any, model: Any, *, packed: bool = False, padding_free: bool = False) -> RoleCollator:
    """The collator for a model and its tokenizer."""
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    pad = 0 if pad is None else pad
    return RoleCollator(pad_token_id=pad, scheme=model.role_scheme, packed=packed, padding_free=padding_free)


def _lengths(dataset: Any) -> list[int]:
    if hasattr(dataset, "lengths"):
        return dataset.lengths()
    return [len(dataset[index]["input_ids"]) for index in range(len(dataset))]
