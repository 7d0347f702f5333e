"""Structured Query: training data from Alpaca-shaped sources, and the test set with its attacks.

    from rolewise.attacks import IN_DOMAIN_ATTACKS, template_delimiters
    from rolewise.data.structured_query import build, evaluation_conditions, load_samples

    dataset = build(["alpaca.json"], variant="adversarial", seed=0)    # dataset.rows, dataset.counts
    samples = load_samples("alpacaeval.json")                          # the rows with an input
    rows = evaluation_conditions(samples, IN_DOMAIN_ATTACKS, seed=0, real=template_delimiters(tokenizer))
    rows = evaluation_conditions(samples, turn="second", via="tool")   # after an exchange, in a tool's result

See the ISE paper (section 5) and StruQ (section 4). `rolewise data structured-query` is `build` at the command line.
"""

from rolewise.data.structured_query.sources import Example, read_examples
from rolewise.data.structured_query.testset import evaluation_conditions, load_samples
from rolewise.data.structured_query.training import Dataset, Settings, build
from rolewise.data.structured_query.turns import Turn, Via

__all__ = [
    "Dataset",
    "Example",
    "Settings",
    "Turn",
    "Via",
    "build",
    "evaluation_conditions",
    "load_samples",
    "read_examples",
]
