"""One export from beginning to end: `export_model`."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from rolewise.export import weights
from rolewise.export.folded import FoldedAsked, Head, add_check, fold, write_folded
from rolewise.export.model_card import model_card
from rolewise.export.probes import Difference, Probe, Reading, SegmentedAsked, compare, make_probes, read
from rolewise.export.prompts import is_folded
from rolewise.export.provenance import Provenance, provenance_of
from rolewise.export.scores import ScoreTable
from rolewise.export.staging import EXPORT_FILE, check_target, require_space, staged
from rolewise.modeling import SegmentedCausalLM, load, load_model
from rolewise.modeling.loading import adapter_base, has_table, resolve_source

Form = Literal["hf", "folded"]
FORMS: tuple[Form, ...] = ("hf", "folded")
HEADS: tuple[Head, ...] = ("untied", "tied")

# RMS of what the folded embeddings may lose to rounding, over RMS of the logits: ten times what models have shown.
_ROUNDING = {torch.float32: 1e-3, torch.float16: 5e-3, torch.bfloat16: 4e-2}
_SLACK = 64 << 20
"""Bytes for the tokenizer and the rest."""


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """What an export made, and what it cost; also in the directory's `rolewise_export.json`."""

    directory: str
    to: Form
    dtype: str
    """Of the weights."""
    scale: float
    """The factor on the table: saved with the model (hf), or folded in."""
    source_bytes: int
    """What the weights take as they came."""
    bytes: int
    """What all weights take that were written."""
    added_parameters: int
    """Of a head that shared its weights with the token embeddings before."""
    rounding: Difference
    """What the dtype costs: the model with its weights rounded (and adapters merged), against the source; both
    computed in fp32."""
    written: Difference
    """What the form costs: the written model, read back, against that rounded one."""
    total: Difference
    """Both: the written model against the source."""


def export_model(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    to: Form,
    dtype: weights.Dtype = "auto",
    scale: float | None = None,
    head: Head = "untied",
    max_shard_size: str = "5GB",
    base_model: str | None = None,
    license: str | None = None,
    scores: Sequence[ScoreTable] = (),
    overwrite: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> ExportResult:
    """Write a model for others to use, with a model card, and see that what was written answers as the model does.

    The directory appears whole or not at all. The work is done on the CPU in fp32: it takes 4 bytes of memory a
    parameter, and 2 more while a smaller dtype is written.

    Args:
        source: what `rolewise.load` takes: a trained model, a checkpoint, a PEFT adapter (which is merged).
        directory: where to; it is made.
        to: "hf" for our own format, whole, in one directory; "folded" for a checkpoint of the base architecture, for
            stock engines, whose clients send prompts as embeddings (see `FoldedClient`).
        dtype: of the weights; "auto" keeps what the source has. The table stays in fp32.
        scale: factor on the table, in place of the model's own.
        head: folded only, and where the head shares its weights with the token embeddings: "untied" gives it its own,
            so that logits stay what they are; "tied" shares the folded ones, which adds the same number to all logits
            of a position, as softmax does not see.
        max_shard_size: of a weights file, such as "5GB".
        base_model: for the card, where the source does not say: a hub id.
        license: for the card, where the source does not say: an identifier of the hub, such as "apache-2.0".
        scores: for the card, from `read_scores`.
        overwrite: replace an earlier export in `directory`.
        say: takes a line at each step.

    Raises:
        ValueError: when the source has no segment table, or is folded already; when the architecture cannot be folded;
            when what was written does not answer as the model does (nothing is left then).
        FileExistsError: when `directory` holds something, unless it is an export and `overwrite` is on.
        OSError: (ENOSPC) when the disk is full.
    """
    for name, value, known in (("to", to, FORMS), ("dtype", dtype, ("auto", *weights.DTYPES)), ("head", head, HEADS)):
        if value not in known:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(known)}")
    # Resolved: what is put in place by a rename would replace a link, not what it leads to.
    target, path = Path(directory).expanduser().resolve(), resolve_source(source)
    check_target(target, path, overwrite=overwrite)
    _require_table(source, path)
    provenance = provenance_of(source, base_model=base_model, license=license)
    kept = weights.stored_dtype(source)
    wanted = kept if dtype == "auto" else weights.DTYPES[dtype]

    say("reading the model")
    model, tokenizer = load(source, dtype=torch.float32)
    model.eval()
    if scale is not None:
        model.segment_scale = scale
    source_bytes = weights.weight_bytes(model, kept)
    require_space(target, _needed(model, wanted, to, head))
    folded = fold(model) if to == "folded" else None  # from weights that are not rounded yet
    embedding: Any = model.get_input_embeddings()
    probes = make_probes(tokenizer, embedding.weight.shape[0], model.num_segments)
    say("asking it the probes")
    reference = _reference(model, path, probes)
    weights.round_weights(model, wanted)
    rounded = read(SegmentedAsked(model), probes, reference.said)
    used_scale, scheme = model.segment_scale, model.role_scheme
    architecture = type(model).__bases__[-1].__name__
    weights.cast_weights(model, wanted)

    with staged(target) as staging:
        say(f"writing {target}")
        added = 0
        if folded is None:
            model.save_pretrained(staging, max_shard_size=max_shard_size)
        else:
            added = write_folded(model, tokenizer, folded, staging, head=head, max_shard_size=max_shard_size)
        del model, embedding, folded
        say("reading it back, and asking it the probes")
        reading = _read_back(staging, to, probes, reference)
        written = compare(reading, rounded)
        _require_same(written, wanted if to == "folded" else torch.float32, architecture)
        if to == "folded":
            add_check(staging, probes[0], reading)
        result = ExportResult(
            directory=str(target),
            to=to,
            dtype=str(wanted).removeprefix("torch."),
            scale=used_scale,
            source_bytes=source_bytes,
            bytes=weights.file_bytes(staging),
            added_parameters=added,
            rounding=compare(rounded, reference),
            written=written,
            total=compare(reading, reference),
        )
        card = model_card(
            result, provenance=provenance, architecture=architecture, scheme=scheme, tokenizer=tokenizer, scores=scores
        )
        (staging / "README.md").write_text(card, encoding="utf-8")
        _write_record(staging, result, provenance)
    return result


def _require_table(source: str | os.PathLike[str], path: Path) -> None:
    if is_folded(path):
        raise ValueError(f"{str(source)!r} is folded already; export the model that it was made from")
    if not has_table(source):
        raise ValueError(
            f"{str(source)!r} has no segment table, so there is nothing to fold or to keep: it is a plain model, which "
            "can be used as it is. Give it roles first: rolewise train --model ... --data ..."
        )


def _needed(model: SegmentedCausalLM, dtype: torch.dtype, to: Form, head: Head) -> int:
    embedding: Any = model.get_input_embeddings()
    more = embedding.weight.numel() * dtype.itemsize if to == "folded" and head == "untied" else 0
    return weights.weight_bytes(model, dtype) + more + _SLACK


def _reference(model: SegmentedCausalLM, path: Path, probes: Sequence[Probe]) -> Reading:
    """What the source makes of the probes: of an adapter, before it is merged."""
    if not (path / "adapter_config.json").exists():
        return read(SegmentedAsked(model), probes)
    from peft import PeftModel

    apart: Any = PeftModel.from_pretrained(load_model(adapter_base(path), dtype=torch.float32), path)  # pyright: ignore[reportArgumentType]
    apart.get_base_model().segment_scale = model.segment_scale
    return read(SegmentedAsked(apart.eval()), probes)


def _read_back(staging: Path, to: Form, probes: Sequence[Probe], reference: Reading) -> Reading:
    if to == "folded":
        return read(FoldedAsked(staging), probes, reference.said)
    return read(SegmentedAsked(load_model(staging, dtype=torch.float32).eval()), probes, reference.said)


def _require_same(found: Difference, dtype: torch.dtype, architecture: str) -> None:
    if not found.relative <= _ROUNDING[dtype]:
        raise ValueError(
            f"the exported model does not answer as the model itself ({found}; relative RMS {found.relative:.2g}, and "
            f"{_ROUNDING[dtype]:g} is allowed), so {architecture} cannot be exported in this form; nothing was written"
            ". Serve it with rolewise serve, or try --to hf, --head untied or a larger --dtype"
        )


def _write_record(staging: Path, result: ExportResult, provenance: Provenance) -> None:
    record = {
        "result": {**dataclasses.asdict(result), "directory": Path(result.directory).name},
        "provenance": dataclasses.asdict(provenance),
        "versions": {name: importlib.metadata.version(name) for name in ("rolewise", "torch", "transformers")},
    }
    (staging / EXPORT_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
