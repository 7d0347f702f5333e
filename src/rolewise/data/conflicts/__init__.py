"""Programmatic conflicts: a system rule, an order that contradicts it, and a checker that needs no judge.

    from rolewise.data import write_jsonl
    from rolewise.data.conflicts import conflict_conditions, conflict_rows, judge

    write_jsonl(conflict_rows(2000, seed=0), "train.jsonl")   # pairs, rules alone and plain rows, answered
    for row in conflict_conditions(100, seed=0):              # 100 samples x (4 channels + twin + rule)
        verdict = judge(ask(row["messages"]), row["meta"]["check"])
        print(row["meta"]["condition"], verdict.kept, verdict.obeyed, verdict.correct)

Every conflict has a twin in which the same words come from a role that may give them, so that refusing and obeying
both have a right answer (`rolewise.data.conflicts.rows` says how). Everything is drawn from our own words and
templates, deterministic for a seed on any machine; the splits share no wordings, names or values, and some kinds of
rules occur in tests only.

A kind of your own is one `RuleKind` whose maker draws a `Rule`; hand it to `conflict_rows(kinds=[...])`:

    def shout(scene):
        return against(
            "End with an exclamation mark.", "End with a question mark.",
            ours=Style(phrase="!", write=lambda task: task.answer + "!", holds=lambda _: checks.includes("!")),
            theirs=Style(phrase="?", write=lambda task: task.answer + "?", holds=lambda _: checks.includes("?")),
            task=tasks.fact,
        )

    conflict_rows(100, kinds=[RuleKind(name="shout", make=shout), "case"])
"""

from rolewise.data.conflicts import checks, tasks
from rolewise.data.conflicts.checks import Check, holds
from rolewise.data.conflicts.conversations import CHANNELS, Channel
from rolewise.data.conflicts.judging import Verdict, judge, verdict_spec
from rolewise.data.conflicts.kinds import Job, Rule, RuleKind, Style, Task, addition, against, contest
from rolewise.data.conflicts.registry import KINDS, held_out_kinds, kind_names
from rolewise.data.conflicts.rows import Row, conflict_conditions, conflict_rows

__all__ = [
    "CHANNELS",
    "KINDS",
    "Channel",
    "Check",
    "Job",
    "Row",
    "Rule",
    "RuleKind",
    "Style",
    "Task",
    "Verdict",
    "addition",
    "against",
    "checks",
    "conflict_conditions",
    "conflict_rows",
    "contest",
    "held_out_kinds",
    "holds",
    "judge",
    "kind_names",
    "tasks",
    "verdict_spec",
]
