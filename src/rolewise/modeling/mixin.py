"""What every segmented model adds to its base class: forward, generation, saving and loading with roles."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, initialization

from rolewise.modeling.caches import given_cache
from rolewise.modeling.segments import (
    SegmentEmbedding,
    check_segment_ids,
    check_segments_used,
    hook_embedding,
    lookup_segments,
)
from rolewise.roles import RoleScheme

if TYPE_CHECKING:

    class _Base(PreTrainedModel):
        """What the class factory puts behind the mixin: a model that generates."""

        def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> dict[str, Any]: ...
        def generate(self, *args: Any, **kwargs: Any) -> Any: ...
        def _get_candidate_generator(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    _Base = object

TABLE_KEY = "segment_embedding.weight"
_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")


class SegmentedCausalLM(_Base):
    """A causal language model whose tokens have roles.

    The class factory puts this before a `...ForCausalLM` class of transformers. The model takes `segment_ids`,
    [batch, seq], wherever it takes `input_ids`, and refuses to run without them.
    """

    segment_embedding: SegmentEmbedding
    rolewise_tokenizer: PreTrainedTokenizerBase | None = None
    """The tokenizer that `load` read along; `save_pretrained` saves it next to the model."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.add_segment_table()

    # --- the table -----------------------------------------------------------------------------------------

    def add_segment_table(self) -> None:
        """Make an empty table and install the hooks: what a new model and a converted one have in common."""
        embedding: Any = self.get_input_embeddings()
        table = SegmentEmbedding(
            self.num_segments, embedding.weight.shape[-1], device=embedding.weight.device, dtype=torch.float32
        )
        self.segment_embedding = table
        if table.weight.device.type != "meta":
            self._init_weights(table)
        backbone: Any = self.base_model
        inner = getattr(backbone, "decoder", None)
        if getattr(inner, "embed_tokens", None) is embedding:
            backbone = inner  # OPT's forward calls this one, past the backbone around it
        backbone.register_forward_pre_hook(self._lookup_segments, with_kwargs=True)
        backbone.register_forward_hook(check_segments_used, always_call=True)
        hook_embedding(embedding)

    def _lookup_segments(self, backbone: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return lookup_segments(self, backbone, args, kwargs)

    def _init_weights(self, module: nn.Module) -> None:
        """Fill a new table with N(0, segment_init_std^2), the same on every process; the rest as the base does."""
        if isinstance(module, SegmentEmbedding):
            generator = torch.Generator().manual_seed(0)
            values = torch.randn(module.weight.shape, generator=generator) * self.config.segment_init_std
            initialization.copy_(module.weight, values)  # leaves a table that was just read alone
            return
        super()._init_weights(module)

    @classmethod
    def is_custom_code(cls) -> bool:
        """Whether the base class is custom code. As such transformers would leave some buffers without values."""
        return cls.is_remote_code() or not cls.__bases__[-1].__module__.startswith("transformers.")

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding (as resizing the vocabulary does) and keep adding the segments to it."""
        super().set_input_embeddings(value)
        hook_embedding(value)

    @property
    def role_scheme(self) -> RoleScheme:
        """Which row of the table each role takes."""
        return RoleScheme.from_dict(self.config.segment_scheme)

    @property
    def num_segments(self) -> int:
        """The number of rows of the table (H)."""
        return len(self.config.segment_scheme["names"])

    @property
    def segment_scale(self) -> float:
        """The factor on the table's rows: 1 as trained, 0 the bare model bit for bit. Saved with the model."""
        return self.config.segment_scale

    @segment_scale.setter
    def segment_scale(self, scale: float) -> None:
        if not math.isfinite(scale):
            raise ValueError(
                f"segment_scale={scale} must be a finite number; 1 is the table as trained, 0 the bare model"
            )
        self.config.segment_scale = float(scale)

    @torch.no_grad()
    def segment_ratio(self) -> float:
        """RMS of the table's entries over RMS of the token embeddings' entries (as the backbone receives them).

        Near 0 the roles are lost among the words; near 1 they drown them. SmolLM2's embeddings have an RMS of
        0.136, so the paper's 0.01 is a ratio of 0.07 there.
        """
        embedding: Any = self.get_input_embeddings()
        count = embedding.weight.shape[0]
        sample = torch.linspace(0, count - 1, min(count, 4096), device=embedding.weight.device).long()
        words = embedding(sample).float().pow(2).mean().sqrt()
        table = self.segment_embedding.weight
        return float(table.float().pow(2).mean().sqrt().to(words.device) / words)

    # --- generation ----------------------------------------------------------------------------------------

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, *args: Any, segment_ids: torch.Tensor | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """As the base class does, with the segment ids of just the positions that this call computes.

        `segment_ids` [batch, prompt] are counted from the first position of the cache; what lies beyond them was
        generated, so it is OUTPUT.
        """
        inputs = super().prepare_inputs_for_generation(input_ids, *args, **kwargs)
        if segment_ids is None:  # forward refuses, unless the scale is 0
            return inputs
        cache = given_cache(inputs)
        tokens = inputs.get("input_ids")
        if tokens is None:
            tokens = inputs["inputs_embeds"]
        start = _cached_length(cache)
        if start is None:
            mask = kwargs.get("attention_mask")
            total = mask.shape[1] if mask is not None and mask.ndim == 2 else input_ids.shape[1]
            start = max(total - tokens.shape[1], 0)
        inputs["segment_ids"] = self._segments_between(segment_ids, start, start + tokens.shape[1]).to(tokens.device)
        return inputs

    def _segments_between(self, segment_ids: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        known = segment_ids[:, start:stop]
        generated = stop - start - known.shape[1]
        if not generated:
            return known
        fill = known.new_full((known.shape[0], generated), self.role_output)
        return torch.cat([known, fill], dim=1) if known.shape[1] else fill

    @property
    def role_output(self) -> int:
        """The row of generated tokens."""
        scheme = self.config.segment_scheme
        return scheme["rows"][-1]

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        *args: Any,
        segment_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """`generate` of transformers, with the role of each prompt token; generated tokens are OUTPUT.

        Args:
            inputs: the prompt's ids, [batch, prompt] (or pass `input_ids=`, or `inputs_embeds=`).
            args: as transformers' `generate` takes them.
            segment_ids: the prompt's segment ids, of the same shape. When a conversation goes on from a cache and
                only the new ids are passed (with the attention mask of all), these are the new ids' segments.
            kwargs: as transformers' `generate` takes them.

        Raises:
            ValueError: when segment ids are missing, out of range or of another shape.
        """
        prompt = inputs if inputs is not None else kwargs.get("input_ids")
        if isinstance(prompt, list):
            raise TypeError("generate needs tensors, not lists: pass return_tensors='pt' to rolewise.encode")
        if prompt is None or not prompt.shape[-1]:
            prompt = kwargs.get("inputs_embeds", prompt)
        if prompt is None:
            raise ValueError("generate needs input_ids [batch, prompt] and segment_ids; see rolewise.encode")
        if segment_ids is None and self.segment_scale == 0.0:
            return super().generate(inputs, *args, **kwargs)
        shape = tuple(prompt.shape[:2])
        config = args[0] if args else kwargs.get("generation_config")
        if getattr(config, "is_assistant", False) and segment_ids is not None and segment_ids.shape[1] < shape[1]:
            # As a draft model we are handed the main model's prompt segments, and ids that grow round by round.
            segment_ids = self._segments_between(segment_ids, 0, shape[1])
        segment_ids = check_segment_ids(segment_ids, shape, self.num_segments, check_range=True)
        cache = given_cache(kwargs)
        mask = kwargs.get("attention_mask")
        if cache is not None and mask is not None and mask.ndim == 2 and mask.shape[1] > shape[1]:
            # Only the new ids were passed: count positions from the start of the cache, whose roles are settled.
            settled = segment_ids.new_full((shape[0], mask.shape[1] - shape[1]), self.role_output)
            segment_ids = torch.cat([settled, segment_ids], dim=1)
        return super().generate(inputs, *args, segment_ids=segment_ids, **kwargs)

    def _get_candidate_generator(self, *args: Any, **kwargs: Any) -> Any:
        """A draft model without roles is handed none (its own `generate` would refuse them)."""
        assistant = kwargs.get("assistant_model")
        if assistant is not None and not isinstance(assistant, SegmentedCausalLM):
            model_kwargs = kwargs["model_kwargs"]
            kwargs["model_kwargs"] = {key: value for key, value in model_kwargs.items() if key != "segment_ids"}
        return super()._get_candidate_generator(*args, **kwargs)

    def _refuse_batching(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "transformers' continuous batching (generate_batch) drops segment_ids without a word, so every token "
            "would lose its role; use model.generate(**batch) or rolewise.generation.generate_batch"
        )

    generate_batch = _refuse_batching
    init_continuous_batching = _refuse_batching
    continuous_batching_context_manager = _refuse_batching

    # --- saving and loading --------------------------------------------------------------------------------

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Save as transformers does (safetensors), whole or not at all, with the tokenizer if `load` gave one.

        Raises:
            OSError: when the directory can't be written or the disk is full; nothing half-written stays.
        """
        target = Path(save_directory)
        target.mkdir(parents=True, exist_ok=True)
        if kwargs.get("push_to_hub"):
            kwargs.setdefault("repo_id", target.name)  # not the name of the staging directory
        staging = Path(tempfile.mkdtemp(prefix=".saving-", dir=target))
        try:
            super().save_pretrained(staging, *args, **kwargs)
            if self.rolewise_tokenizer is not None:
                self.rolewise_tokenizer.save_pretrained(staging)
            # The configuration goes last: a directory without one is not a model.
            saved = sorted(staging.iterdir(), key=lambda file: file.name == "config.json")
            for file in saved:
                os.replace(file, target / file.name)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        # Weights of an earlier save that was split otherwise would be loaded in place of these.
        names = {file.name for file in saved}
        if any(_WEIGHTS.fullmatch(name) for name in names):
            for file in target.iterdir():
                if _WEIGHTS.fullmatch(file.name) and file.name not in names:
                    file.unlink()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Self | Any:
        """Load a saved Rolewise model, table included.

        Raises:
            ValueError: when the checkpoint has no segment table, or one of another shape, or lacks other weights.
        """
        want_info = kwargs.pop("output_loading_info", False)
        kwargs.setdefault("use_safetensors", True)
        kwargs["output_loading_info"] = True
        try:
            loaded: Any = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except RuntimeError as error:
            if "mismatch" not in str(error):
                raise
            raise ValueError(
                f"the weights in {str(pretrained_model_name_or_path)!r} do not fit its config.json (segments, hidden "
                f"size or vocabulary differ; the table is segment_embedding.weight, [segments, hidden]): {error}"
            ) from error
        model, info = loaded
        mismatched = [key for key, *_ in info.get("mismatched_keys", ())]
        if TABLE_KEY in mismatched:
            raise ValueError(
                f"the segment table in {str(pretrained_model_name_or_path)!r} has another shape than config.json says; "
                "load it with the configuration that it was saved with"
            )
        if TABLE_KEY in info["missing_keys"]:
            raise ValueError(
                f"the checkpoint {str(pretrained_model_name_or_path)!r} has no segment table ({TABLE_KEY}), so its "
                "roles would be random; it was saved by a tool that dropped the table. Save it again with "
                "model.save_pretrained, or load the plain model with rolewise.load_model to start a new table"
            )
        if missing := sorted(info["missing_keys"]):
            raise ValueError(
                f"the checkpoint {str(pretrained_model_name_or_path)!r} lacks {len(missing)} weights ({missing[0]} "
                "first), which would be random; save it again, whole, with model.save_pretrained"
            )
        return (model, info) if want_info else model


def _cached_length(cache: Any) -> int | None:
    """How many positions a cache holds; None without one, or when it does not know (Mamba's state)."""
    try:
        return None if cache is None else int(cache.get_seq_length())
    except (AttributeError, ValueError):
        return None
