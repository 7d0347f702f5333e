"""How robust a model is: tasks, scorers and our model provider on inspect_ai, and the figures they lead to.

    from rolewise.evaluation import compare, read_runs, summarise

    reference, run = (summarise(run) for run in read_runs(["logs"]))
    print(reference.headline.average, compare(run, reference)["main average"])

Importing this package imports neither torch nor inspect_ai; `rolewise.evaluation.registry` is what inspect_ai loads.
"""

from rolewise.evaluation.logs import read_runs
from rolewise.evaluation.outcomes import Outcome, Refusal, Run
from rolewise.evaluation.statistics import Estimate, bootstrap, bootstrap_means, holm, mcnemar, sign_flip, wilson
from rolewise.evaluation.suite_info import SUITES, SuiteInfo, suite_info
from rolewise.evaluation.summary import Difference, Group, Summary, by_data_length, compare, summarise

__all__ = [
    "SUITES",
    "Difference",
    "Estimate",
    "Group",
    "Outcome",
    "Refusal",
    "Run",
    "SuiteInfo",
    "Summary",
    "bootstrap",
    "bootstrap_means",
    "by_data_length",
    "compare",
    "holm",
    "mcnemar",
    "read_runs",
    "sign_flip",
    "suite_info",
    "summarise",
    "wilson",
]
