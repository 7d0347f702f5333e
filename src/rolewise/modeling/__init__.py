"""The segment table on any causal language model: attach, run, generate, save, load, and the training loss."""

from rolewise.modeling.attach import attach
from rolewise.modeling.families import register
from rolewise.modeling.loading import load, load_model, load_tokenizer
from rolewise.modeling.loss import labelled_loss
from rolewise.modeling.mixin import SegmentedCausalLM
from rolewise.modeling.segments import SegmentEmbedding
from rolewise.modeling.vocabulary import apply_template

__all__ = [
    "SegmentEmbedding",
    "SegmentedCausalLM",
    "apply_template",
    "attach",
    "labelled_loss",
    "load",
    "load_model",
    "load_tokenizer",
    "register",
]
