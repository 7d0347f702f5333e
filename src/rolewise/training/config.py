"""What a training run is: frozen settings, read from a YAML recipe and overridable on the command line."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

_Settings = TypeVar("_Settings")


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters; used when `method` is "lora". The segment table is always trained whole."""

    rank: int = 16
    """The rank of the adapters' matrices."""
    alpha: float = 32.0
    """Scale of the adapters; their output is multiplied by alpha / rank."""
    dropout: float = 0.0
    """Dropout before the adapters."""
    targets: tuple[str, ...] = ("all-linear",)
    """Names of the modules to adapt, such as q_proj v_proj; all-linear for every linear layer but the head."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A supervised fine-tuning run (ISE paper, sections 4 and 5)."""

    model: str
    """The packaged "smollm2-135m", a hub id, a local causal LM, a saved Rolewise model, or a .gguf file."""
    output_dir: str
    """Where the trained model goes, with the run's checkpoints in `checkpoints/`."""
    data: str
    """Training rows: a JSONL or JSON file of conversations or of Alpaca rows, or the name of a hub dataset."""
    data_split: str = "train"
    """The split of a hub dataset."""
    data_format: Literal["auto", "conversations", "alpaca"] = "auto"
    """Shape of a row: {"messages": [...]}, or {"instruction", "input", "output"}; auto looks at the first row."""
    eval_data: str | None = None
    """Rows for the evaluation loss, as `data`; by default none is computed."""
    eval_split: str = "test"
    """The split of a hub dataset in `eval_data`."""
    skip_bad: bool = False
    """Leave out rows that cannot be used, and count them, instead of stopping at the first one."""
    max_rows: int | None = None
    """Use only the first so many rows; by default all."""

    ise: bool = True
    """Train with segment embeddings. False is the delimiter arm: the table is zero and frozen and the saved model
    has segment_scale 0, so it is the base architecture bit for bit but still loads and runs as a Rolewise model."""
    template: Literal["auto", "own", "text", "delimiter", "chatml"] = "auto"
    """Chat template: the tokenizer's own, or one of ours for base models (see rolewise.prepare_tokenizer); auto is the
    tokenizer's own, and ChatML where it has none. New tokens start from the words that they stand for."""
    tools_role: Literal["system", "data"] = "system"
    """Whether tool descriptions are trusted (system) or come from third parties (data)."""
    train_on: Literal["all", "last"] = "all"
    """Which assistant turns carry loss."""
    max_length: int = 1024
    """The most tokens of a row (and of a packed row)."""
    overflow: Literal["refuse", "truncate_data", "skip"] = "refuse"
    """What happens to a longer row: stop, cut the end of its data spans only, or leave it out; both are counted."""

    method: Literal["full", "lora"] = "full"
    """Train all weights, or low-rank adapters (needs the extra rolewise[peft]) and the table."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """Settings of the adapters."""
    dtype: Literal["fp32", "bf16", "mixed"] = "fp32"
    """Of the weights: fp32; bf16 throughout; or fp32 weights with bf16 computation. The table is fp32 always."""
    table_init_std: float | None = None
    """Standard deviation of a new table; 0.01 (the paper's) when neither this nor the ratio is given."""
    table_init_ratio: float | None = None
    """The same, relative to the RMS of the model's token embeddings; in place of `table_init_std`."""

    learning_rate: float = 2e-5
    """Peak learning rate of the weights."""
    table_lr_multiple: float = 10.0
    """The table's learning rate, as a multiple of `learning_rate`: at 1 its rows hardly move from where they start."""
    weight_decay: float = 0.0
    """AdamW's weight decay; never applied to the table."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls after the warm-up."""
    warmup: float = 0.03
    """Warm-up: a share of all steps when below 1, a number of steps otherwise."""
    epochs: float = 1.0
    """Passes over the data."""
    max_steps: int | None = None
    """Stop after so many optimizer steps, whatever `epochs` says; by default `epochs` decides."""
    batch_size: int = 8
    """Rows (packed rows, with packing) of one forward pass on each process."""
    gradient_accumulation: int = 1
    """Forward passes of one optimizer step."""
    packing: bool = False
    """Put several rows into one of up to `max_length` tokens; documents stay apart."""
    padding_free: bool = True
    """Lay the rows of a batch end to end, kept apart by their positions, where that is less work than padding them.
    Architectures that cannot keep them apart are padded, and the run says so."""
    group_by_length: bool = False
    """Batch rows of about one length, so that less padding is computed."""
    shuffle: bool = True
    """Draw the rows in an order that the seed decides, another one each epoch; False keeps the file's."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third slower."""
    fsdp: bool = False
    """Shard the weights over the processes of torchrun (FSDP2). `accelerate launch` may say so instead."""
    seed: int = 42
    """Decides the order of the rows, adapters' initial values and dropout."""

    logging_steps: int = 10
    """Report the loss every so many steps."""
    save_steps: int | None = None
    """Write a checkpoint every so many steps; by default at the end of each epoch."""
    keep_checkpoints: int = 1
    """How many checkpoints to keep; 0 keeps all."""
    eval_steps: int | None = None
    """Compute the evaluation loss every so many steps; by default at the end of each epoch."""
    report_to: str = "none"
    """Where metrics go: none, tensorboard, wandb, mlflow, ... (separate several by commas)."""
    resume: Literal["auto", "never"] = "auto"
    """auto goes on from the newest complete checkpoint in `output_dir`; never refuses an `output_dir` in use."""
    cpu: bool = False
    """Train on the CPU even where there is a GPU."""

    def __post_init__(self) -> None:
        _check(self)


# Settings that change where a run is heard or how often it is saved, not the weights that come out of it.
UNCOMPARED = frozenset(
    {"output_dir", "logging_steps", "save_steps", "keep_checkpoints", "eval_steps", "eval_data", "eval_split"}
    | {"report_to", "resume", "skip_bad"}
)


# What was done before a setting existed, where that is not its default.
_BEFORE = {"padding_free": False}


def load_recipe(path: str | Path, **overrides: Any) -> TrainConfig:
    """Read a YAML recipe.

    Args:
        path: a YAML mapping of `TrainConfig`'s fields.
        overrides: fields that win over the recipe's.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is not a YAML mapping, has an unknown key or a value of another kind, or lacks a key
            without a default; the message names the file and the key.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no recipe at {str(path)!r}; write one, or start from a file in recipes/")
    return config_from_dict({**read_yaml(path), **overrides}, source=str(path))


def config_from_dict(values: dict[str, Any], *, source: str = "the configuration") -> TrainConfig:
    """A `TrainConfig` from plain values, as in a recipe; see `load_recipe` for what it raises."""
    return build_settings(TrainConfig, values, source, "")


def config_to_dict(config: TrainConfig) -> dict[str, Any]:
    """Plain values, ready for JSON or YAML."""
    return cast("dict[str, Any]", _plain(dataclasses.asdict(config)))


def differing_keys(config: TrainConfig, stored: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings in which `config` would train other weights than `stored` (from `config_to_dict`) did.

    A setting that `stored` lacks did not exist then; it is compared with what was done in its place.
    """
    now = config_to_dict(config)
    stored = config_to_dict(TrainConfig(model="-", output_dir="-", data="-")) | _BEFORE | stored
    keys = (now.keys() | stored.keys()) - UNCOMPARED
    return {key: (stored.get(key), now.get(key)) for key in sorted(keys) if stored.get(key) != now.get(key)}


def as_begun(config: TrainConfig, stored: dict[str, Any]) -> TrainConfig:
    """`config`, but doing as was done before a setting existed that `stored` is too old to have."""
    return dataclasses.replace(config, **{key: was for key, was in _BEFORE.items() if key not in stored})


def carried_over(config: TrainConfig, stored: dict[str, Any]) -> str:
    """What `as_begun` changes, for people; empty when nothing."""
    begun = as_begun(config, stored)
    changed = [name for name in _BEFORE if getattr(config, name) != getattr(begun, name)]
    told = ", ".join(f"{name}={getattr(begun, name)!r} in place of {getattr(config, name)!r}" for name in changed)
    return f"begun by a version that did not have {', '.join(changed)}: it goes on as it was, {told}" if changed else ""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; a key that it has twice is refused."""
    import yaml

    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply for a recipe; it is a mapping of settings") from error
    if not isinstance(values, dict) or not isinstance(node, yaml.MappingNode):
        raise ValueError(f"{path} must be a YAML mapping such as 'model: smollm2-135m', not {type(values).__name__}")
    if twice := _given_twice(node):
        raise ValueError(f"{path} gives {', '.join(twice)} more than once; keep one")
    return {str(key): value for key, value in values.items()}


def _given_twice(node: Any, prefix: str = "") -> list[str]:
    """The keys that a YAML mapping has more than once, at any depth, by dotted names; its reader keeps the last."""
    import yaml

    pairs: list[tuple[Any, Any]] = node.value if isinstance(node, yaml.MappingNode) else []
    keys = [prefix + str(key.value) for key, _ in pairs]
    twice = {key for key in keys if keys.count(key) > 1}
    below = [one for key, (_, value) in zip(keys, pairs, strict=True) for one in _given_twice(value, f"{key}.")]
    return sorted(twice.union(below))


_OTHER_NAMES = {
    "lr": "learning_rate",
    "num_train_epochs": "epochs",
    "num_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "micro_batch_size": "batch_size",
    "gradient_accumulation_steps": "gradient_accumulation",
    "max_seq_length": "max_length",
    "max_seq_len": "max_length",
    "sequence_len": "max_length",
    "dataset": "data",
    "base_model": "model",
    "model_name_or_path": "model",
    "lr_scheduler_type": "schedule",
    "warmup_ratio": "warmup",
    "warmup_steps": "warmup",
    "r": "rank",
    "lora_r": "lora",
}
"""What other trainers call our settings, for the hint at an unknown key."""


def build_settings(cls: type[_Settings], values: dict[str, Any], source: str, prefix: str) -> _Settings:
    """A dataclass of settings from what a YAML file holds, nested ones included.

    Args:
        cls: the dataclass.
        values: by key.
        source: the file, for errors.
        prefix: of the keys, for errors: `lora.` within `lora`.

    Raises:
        ValueError: for an unknown key (the nearest is named), a missing one, or a value of another kind.
    """
    fields = {item.name: item for item in dataclasses.fields(cast("Any", cls))}
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=3, cutoff=0.5)
            near = [_OTHER_NAMES[key]] if _OTHER_NAMES.get(key) in fields else near
            hint = f"did you mean {' or '.join(near)}?" if near else f"known keys are {', '.join(fields)}"
            raise ValueError(f"{source}: unknown key {prefix + key!r}; {hint}")
    required = [
        name
        for name, item in fields.items()
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    ]
    if missing := [prefix + name for name in required if name not in values]:
        raise ValueError(f"{source} lacks {', '.join(missing)}; give a value in the recipe or on the command line")
    kinds = typing.get_type_hints(cls)
    converted = {key: _convert(value, kinds[key], source, prefix + key) for key, value in values.items()}
    return cls(**converted)


def _convert(value: Any, kind: Any, source: str, key: str) -> Any:
    """`value` as `kind`; YAML reads 2e-5 as a string and 1 as an integer, and both are fine for a float."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if isinstance(value, cast("type[Any]", kind)):
            return value
        if isinstance(value, dict):
            return build_settings(cast("type[Any]", kind), cast("dict[str, Any]", value), source, f"{key}.")
        raise ValueError(f"{source}: {key} must be a mapping, not {value!r}")
    if origin is types.UnionType:
        if value is None:
            return None
        return _convert(value, next(item for item in arguments if item is not types.NoneType), source, key)
    if origin is Literal:
        if value in arguments:
            return value
        raise ValueError(f"{source}: {key} must be one of {', '.join(map(str, arguments))}, not {value!r}")
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(item, arguments[0], source, key) for item in items)
    if kind is float and not isinstance(value, bool):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    elif type(value) is kind:
        return value
    raise ValueError(f"{source}: {key} must be {kind.__name__}, not {value!r}")


_SEEDS = 2**32
"""Transformers seeds numpy too, which takes no more."""


def _check(config: TrainConfig) -> None:
    """Refuse values that no run can use, before anything is loaded."""
    positive = {"max_length": 2, "batch_size": 1, "gradient_accumulation": 1, "logging_steps": 1}
    positive |= {"max_steps": 1, "save_steps": 1, "eval_steps": 1, "max_rows": 1}
    for name, least in positive.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"{name}={value} must be at least {least}")
    for name in ("learning_rate", "table_lr_multiple", "weight_decay", "warmup", "max_grad_norm", "keep_checkpoints"):
        if not 0 <= getattr(config, name) < float("inf"):
            raise ValueError(f"{name}={getattr(config, name)} must not be negative, nor infinite")
    for name in ("table_init_std", "table_init_ratio"):
        value = getattr(config, name)
        if value is not None and not 0 <= value < float("inf"):
            raise ValueError(f"{name}={value} must not be negative, nor infinite or NaN")
    if not 0 <= config.seed < _SEEDS:
        raise ValueError(f"seed={config.seed} must be from 0 to {_SEEDS - 1}")
    if not config.epochs > 0:
        raise ValueError(f"epochs={config.epochs} must be above 0")
    for name in ("model", "output_dir", "data"):
        if not getattr(config, name):
            raise ValueError(f"{name} is empty; name one in the recipe or with --{name.replace('_', '-')}")
    if config.table_init_std is not None and config.table_init_ratio is not None:
        raise ValueError("give either table_init_std or table_init_ratio, not both")
    if config.lora.rank < 1 or not config.lora.targets:
        raise ValueError(f"lora.rank={config.lora.rank} must be at least 1, and lora.targets must not be empty")
    if config.packing and config.group_by_length:
        raise ValueError("packing already fills rows to one length; turn off group_by_length or packing")
    if config.group_by_length and not config.shuffle:
        raise ValueError("group_by_length reorders the rows; turn it off to keep the file's order (shuffle: false)")
