"""Generated conversations: small tasks with checkable answers, attacked and twinned.

    from rolewise.data import evaluation_rows, training_rows, write_jsonl

    write_jsonl(training_rows(400, seed=0), "train.jsonl")   # {"messages": [...], "meta": {...}} a line
    write_jsonl(evaluation_rows(48, seed=0), "test.jsonl")         # 48 samples x (clean + 4 attacks + ceiling)

Everything is drawn from our own words and templates, deterministic for a seed on any machine, and the two splits
share no names, texts, instruction wordings, payloads or attack vocabulary. `rolewise.quickstart.scoring` judges
outputs by a row's `meta`. See `rolewise.data.rows` for the mix and the reasons behind it.
"""

from rolewise.data.generate import SYSTEM, generate_sample
from rolewise.data.jsonl import write_jsonl
from rolewise.data.payloads import PAYLOAD_KINDS, draw_payload
from rolewise.data.rows import CEILING, CLEAN, TWIN, Row, evaluation_rows, training_rows
from rolewise.data.tasks import TASKS, Task

__all__ = [
    "CEILING",
    "CLEAN",
    "PAYLOAD_KINDS",
    "SYSTEM",
    "TASKS",
    "TWIN",
    "Row",
    "Task",
    "draw_payload",
    "evaluation_rows",
    "generate_sample",
    "training_rows",
    "write_jsonl",
]
