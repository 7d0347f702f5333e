"""What a model does with roles inside: where its answers attend, and how far its layers tell user from data.

    from rolewise.inspection import inspect_model

    inspection = inspect_model(model, tokenizer, samples)        # numbers for each layer; no text
    inspection.to_dict()                                         # ready for JSON

`rolewise inspect-attention` does the same for several models, and writes tables and figures.
"""

from rolewise.inspection.passages import PassagePair, passage_pairs
from rolewise.inspection.results import Inspection, Measurement
from rolewise.inspection.run import inspect_model
from rolewise.inspection.write import write_inspection

__all__ = ["Inspection", "Measurement", "PassagePair", "inspect_model", "passage_pairs", "write_inspection"]
