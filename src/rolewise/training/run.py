"""One training run from beginning to end: `train(config)`."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import TrainerCallback, TrainingArguments, set_seed

from rolewise.collation import RoleCollator
from rolewise.modeling import SegmentedCausalLM, apply_template, load_model, load_tokenizer
from rolewise.training import checkpoints
from rolewise.training.config import TrainConfig, as_begun, carried_over, config_to_dict, differing_keys
from rolewise.training.lora import require_peft
from rolewise.training.notices import table_report
from rolewise.training.packing import require_packing, separates_documents
from rolewise.training.prepare import Prepared, prepare_data
from rolewise.training.progress import ProgressBar, counted
from rolewise.training.trainer import RoleTrainer, default_collator

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RUN_FILE = "rolewise_run.json"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "mixed": torch.float32}


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What came out of a run; also stored in the output directory's `rolewise_run.json`."""

    output_dir: str
    """Where the model is: `rolewise.load` reads it."""
    steps: int
    """Optimizer steps in all."""
    train_loss: float
    """Mean of the logged training losses, over the whole run."""
    eval_loss: float | None
    """Loss on `eval_data`, if there is any."""
    rows: int
    """Training rows used."""
    tokens: int
    """Tokens of one pass over them."""
    labelled_tokens: int
    """How many of these carry loss."""
    bad_rows: int
    """Rows left out because they cannot be used."""
    too_long_rows: int
    """Rows left out because they are too long."""
    truncated_rows: int
    """Rows whose data was cut."""
    table_ratio: float | None
    """RMS of the trained table over the RMS of the token embeddings (None when the weights are sharded)."""
    seconds: float
    """Time of the last start, loading included."""
    already_done: bool = False
    """Whether this call found the run finished."""


def train(
    config: TrainConfig,
    *,
    callbacks: Sequence[TrainerCallback] = (),
    say: Callable[[str], None] = print,
    progress: str | None = "training",
) -> TrainResult:
    """Fine-tune a model as `config` says, and save it with its tokenizer in `config.output_dir`.

    A run that was killed goes on from its newest complete checkpoint and ends with the same weights as one that was
    not; a run that is finished says so. Under `torchrun` or `accelerate launch` every process calls this.

    Args:
        config: the run.
        callbacks: of transformers' `Trainer`, in addition to the progress bar.
        say: takes the lines meant for the user (on the main process only).
        progress: the progress bar's name; None for no bar.

    Returns:
        What came out of it.

    Raises:
        TypeError: when `config` is no `TrainConfig`.
        ImportError: when an extra that `config` needs is not installed.
        ValueError: when `output_dir` holds another run (the differing settings are named), the data, model or
            settings cannot be used, or the loss or a gradient becomes NaN or infinite.
        PermissionError: when `output_dir` cannot be written.
        OSError: when the disk is full; complete checkpoints stay, half-written ones are deleted.
    """
    if not isinstance(cast("object", config), TrainConfig):
        raise TypeError(
            f"train takes a TrainConfig, not {type(config).__name__}; rolewise.training.load_recipe reads a recipe"
        )
    if config.method == "lora":  # before anything is loaded
        require_peft()
    start = time.monotonic()
    output = Path(config.output_dir).expanduser()
    checkpoints.require_writable(output)
    arguments = _arguments(config, output)
    main = arguments.process_index == 0
    tell = say if main else _silent
    stored = _stored_run(output)
    as_it_was = ""
    if stored is not None:
        as_it_was = carried_over(config, stored["config"])
        config = as_begun(config, stored["config"])
        _require_same(config, stored, output)
    else:
        _require_unused(output)
    _together()  # all processes have looked before one of them writes
    if stored is not None and stored["result"] is not None:
        tell(f"{output} holds this run, finished; name another output_dir for a new one")
        return dataclasses.replace(TrainResult(**stored["result"]), already_done=True)
    if as_it_was:
        tell(f"{output} was {as_it_was}")
    set_seed(config.seed)
    model, tokenizer = _model(config)
    data = _data(config, tokenizer, model, evaluation=False, shown=main and progress is not None)
    tell(data.report("training data"))
    held_out = None
    if config.eval_data is not None:
        held_out = _data(config, tokenizer, model, evaluation=True, shown=main and progress is not None)
        tell(held_out.report("evaluation data"))
    fingerprint = data.dataset.fingerprint()
    if stored is not None and stored["data"] != fingerprint:
        raise ValueError(
            f"the rows in {config.data!r} (or how they are rendered) changed since {output} was begun; "
            "put the old ones back, or name another output_dir"
        )
    tell(table_report(config, model))
    trained = _prepare_model(config, model)
    _require_space(config, trained, output)
    trainer = RoleTrainer(
        model=trained,
        args=arguments,
        train_dataset=data.dataset,
        eval_dataset=held_out.dataset if held_out else None,
        data_collator=_collator(config, tokenizer, model, tell),
        processing_class=tokenizer,
        callbacks=[*([ProgressBar(progress)] if progress else []), *callbacks],
        table_lr_multiple=config.table_lr_multiple,
        group_by_length=config.group_by_length,
        shuffle=config.shuffle,
        keep_checkpoints=config.keep_checkpoints,
    )
    _quiet(trainer)
    resume_from = _checkpoint(arguments, main)
    run = stored or {"config": config_to_dict(config), "data": fingerprint, "versions": _versions(), "result": None}
    if main and stored is None:
        checkpoints.write_json(output / RUN_FILE, run)
    if resume_from is not None:
        tell(f"resuming from {resume_from.name}")
    outcome = trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
    eval_loss = trainer.evaluate()["eval_loss"] if held_out else None
    _save(trainer, output)
    result = TrainResult(
        output_dir=str(output),
        steps=outcome.global_step,
        train_loss=_mean_loss(trainer) or outcome.training_loss,
        eval_loss=eval_loss,
        rows=data.dataset.num_rows,
        tokens=data.dataset.num_tokens,
        labelled_tokens=data.dataset.num_labelled,
        bad_rows=data.bad,
        too_long_rows=data.too_long,
        truncated_rows=data.truncated,
        table_ratio=_ratio(trainer, trained),
        seconds=time.monotonic() - start,
    )
    if main:
        checkpoints.write_json(output / RUN_FILE, {**run, "result": dataclasses.asdict(result)})
        if config.keep_checkpoints:  # the newest one is the model just saved
            _drop_last(output / "checkpoints", config.keep_checkpoints - 1)
    tell(f"done: {result.steps} steps, loss {result.train_loss:.4f}, {result.seconds:.0f} s; the model is in {output}")
    return result


# --- what is in the output directory -----------------------------------------------------------------------


def _stored_run(output: Path) -> dict[str, Any] | None:
    path = output / RUN_FILE
    if not path.exists():
        return None
    stored: Any = None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        damage = ", ".join(sorted({"config", "data", "result"} - stored.keys()))
        if not damage and not (isinstance(stored["config"], dict) and isinstance(stored["result"], dict | None)):
            damage = "config or result is no object"
    except (ValueError, AttributeError, RecursionError) as error:
        damage = str(error)
    if damage:
        raise ValueError(f"{path} is damaged ({damage}); delete {output} or name another output_dir")
    return stored


def _require_same(config: TrainConfig, stored: dict[str, Any], output: Path) -> None:
    if config.resume == "never":
        raise ValueError(f"{output} holds a run already and resume is 'never'; name another output_dir")
    differing = differing_keys(config, stored["config"])
    if differing:
        said = "; ".join(f"{key} was {was!r} and is now {now!r}" for key, (was, now) in differing.items())
        raise ValueError(
            f"{output} holds a run with other settings: {said}. Give the same settings to resume it, "
            "or name another output_dir"
        )


def _require_unused(output: Path) -> None:
    for name in ("config.json", "adapter_config.json", "checkpoints"):
        path = output / name
        # The Trainer makes the directory a moment before the run is written down: a kill may come between.
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise ValueError(
                f"{output} holds {name} of something else, which training would overwrite; name another output_dir"
            )


def _checkpoint(arguments: TrainingArguments, main: bool) -> Path | None:
    """The checkpoint to resume from, once the main process has deleted half-written ones."""
    directory = Path(cast("str", arguments.output_dir))
    with arguments.main_process_first(local=False, desc="cleaning up checkpoints"):
        if main:
            checkpoints.remove_incomplete(directory)
    return checkpoints.newest_complete(directory)


def _drop_last(directory: Path, keep: int) -> None:
    import shutil

    complete = checkpoints.checkpoints(directory)
    for path in complete[: len(complete) - keep] if keep else complete:
        shutil.rmtree(path)
    if directory.exists() and not any(directory.iterdir()):
        directory.rmdir()


# --- model and data ----------------------------------------------------------------------------------------


def _model(config: TrainConfig) -> tuple[SegmentedCausalLM, PreTrainedTokenizerBase]:
    options: dict[str, Any] = {"dtype": _DTYPES[config.dtype]}
    if config.table_init_std is not None:
        options["init_std"] = config.table_init_std
    elif config.table_init_ratio is not None:
        options["init_ratio"] = config.table_init_ratio
    model, tokenizer = load_model(config.model, **options), load_tokenizer(config.model)
    prepared = apply_template(model, tokenizer, config.template)
    if prepared.added_words and config.method == "lora":
        raise ValueError(
            f"template {prepared.template!r} adds the tokens {', '.join(prepared.added_words)}, which LoRA would leave "
            "untrained; use method: full, or template: text, which adds none"
        )
    return model, tokenizer


def _data(
    config: TrainConfig,
    tokenizer: PreTrainedTokenizerBase,
    model: SegmentedCausalLM,
    *,
    evaluation: bool,
    shown: bool,
) -> Prepared:
    return prepare_data(
        config,
        tokenizer,
        scheme=model.role_scheme,
        evaluation=evaluation,
        wrap=lambda rows: counted(rows, "reading rows", shown=shown),
    )


def _prepare_model(config: TrainConfig, model: SegmentedCausalLM) -> Any:
    """Freeze, adapt and check the model as `config` says."""
    if not config.ise:
        model.segment_scale = 0.0
        torch.nn.init.zeros_(model.segment_embedding.weight)
        model.segment_embedding.requires_grad_(False)
    if config.packing:
        require_packing(model)
    if config.method == "full":
        return model
    from rolewise.training.lora import add_lora

    return add_lora(model, config.lora, base=config.model)


def _collator(
    config: TrainConfig, tokenizer: PreTrainedTokenizerBase, model: SegmentedCausalLM, tell: Callable[[str], None]
) -> RoleCollator:
    joins = config.padding_free and not config.packing
    if joins and not separates_documents(model):
        joins = False
        tell(f"{type(model).__name__} cannot keep rows laid end to end apart: rows are padded (padding_free is off)")
    return default_collator(tokenizer, model, packed=config.packing, padding_free=joins)


def _require_space(config: TrainConfig, model: Any, output: Path) -> None:
    """A checkpoint has the weights and two fp32 moments; the final model comes before the last one goes."""
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    moving = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    saved = weights if config.method == "full" else 4 * moving
    checkpoints.require_space(output, 2 * (saved + 8 * moving) + saved)


# --- the trainer -------------------------------------------------------------------------------------------


def _arguments(config: TrainConfig, output: Path) -> TrainingArguments:
    options: dict[str, Any] = {}
    if config.gradient_checkpointing:
        fields = {field.name for field in dataclasses.fields(TrainingArguments)}
        # Its name before transformers 5.20 or so.
        name = "activation_checkpointing" if "activation_checkpointing" in fields else "gradient_checkpointing"
        options |= {name: True, f"{name}_kwargs": {"use_reentrant": False}}
    if config.fsdp:
        options |= {"fsdp": True, "fsdp_config": {"version": 2, "state_dict_type": "FULL_STATE_DICT"}}
    return TrainingArguments(
        output_dir=str(output / "checkpoints"),
        per_device_train_batch_size=config.batch_size,
        per_device_eval_batch_size=config.batch_size,
        gradient_accumulation_steps=config.gradient_accumulation,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        lr_scheduler_type={"constant": "constant_with_warmup"}.get(config.schedule, config.schedule),
        warmup_steps=config.warmup,
        num_train_epochs=config.epochs,
        max_steps=-1 if config.max_steps is None else config.max_steps,
        bf16=config.dtype == "mixed",
        seed=config.seed,
        use_cpu=config.cpu or not torch.accelerator.is_available(),
        logging_steps=config.logging_steps,
        logging_nan_inf_filter=False,  # it would show the last good loss in place of a NaN
        save_strategy="epoch" if config.save_steps is None else "steps",
        save_steps=config.save_steps or 500,
        eval_strategy="no" if config.eval_data is None else "epoch" if config.eval_steps is None else "steps",
        eval_steps=config.eval_steps,
        report_to=[name.strip() for name in config.report_to.split(",")],
        remove_unused_columns=False,
        disable_tqdm=True,
        **options,
    )


def _quiet(trainer: RoleTrainer) -> None:
    """Our bar and lines in place of the printed dictionaries."""
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)


def _save(trainer: RoleTrainer, output: Path) -> None:
    with checkpoints.explained_disk(output):
        trainer.save_model(str(output))


def _mean_loss(trainer: RoleTrainer) -> float:
    losses: list[float] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return sum(losses) / max(len(losses), 1)


def _ratio(trainer: RoleTrainer, trained: Any) -> float | None:
    if trainer.is_fsdp_enabled:
        return None
    model: Any = trained.get_base_model() if hasattr(trained, "get_base_model") else trained
    return model.segment_ratio()


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("rolewise", "torch", "transformers")}


def _together() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


def _silent(_: str) -> None:
    return
