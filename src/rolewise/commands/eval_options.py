"""The options of `rolewise eval`: which suite takes which, and what they come to for its task and its models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

_SUITE_OF = {"indirect-injection": "structured_query"}
_INJECTIONS = ("structured-query", "direct-injection")
_ATTACKED = (*_INJECTIONS, "adaptive")
_BY_KIND = ("harmful", "over-refusal", "capability")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "attacks": _ATTACKED,
    "domain": _INJECTIONS,
    "payload": _ATTACKED,
    "utility_tokens": _INJECTIONS,
    "delimiters": _ATTACKED,
    "struq_compat": _INJECTIONS,
    "grader": (*_INJECTIONS, "guardrails", *_BY_KIND),
    "data_role": ("structured-query", "sep", "adaptive"),
    "turn": (*_INJECTIONS, "prompt-extraction"),
    "via": ("structured-query",),
    "system": (*_ATTACKED, *_BY_KIND),
    "queries": ("prompt-extraction",),
    "templates": ("harmful",),
    "benchmarks": ("capability",),
    "references": ("capability",),
    "method": ("adaptive",),
    "budget": ("adaptive",),
    "role": ("adaptive",),
    "attacker": ("adaptive",),
    "candidates": ("adaptive",),
    "suffix_tokens": ("adaptive",),
    "streams": ("adaptive",),
}
"""The options that only some suites have, with these suites: elsewhere they are refused, never ignored."""
_METHODS = {
    "attacks": "best_of_n",
    "delimiters": "best_of_n",
    "attacker": "pair",
    "streams": "pair",
    "candidates": "gcg",
    "suffix_tokens": "gcg",
}
"""The options that only one method of adaptive has."""
_BENCHMARKS = {"data": "mt_bench", "references": "alpaca_eval"}
"""The files of capability, and the benchmark that reads each."""
_FILES = ("queries", "templates", "references")
"""Those that name a file."""
_SAID_IF_GIVEN = {"turn": _INJECTIONS, "via": _INJECTIONS, "system": ("structured-query",)}
"""Those that came later to these suites: tasks are told of them when they are not the default, so that earlier runs are
still known."""
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """What `rolewise eval` does."""

    models: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL...")]
    """Models to evaluate; the first is the reference that the others are compared with."""
    suite: Literal[
        "structured-query", "indirect-injection", "direct-injection", "sep", "rules", "prompt-extraction", "harmful",
        "over-refusal", "capability", "adaptive",
    ] = "structured-query"  # fmt: skip
    """Which benchmark: attacks in the data (indirect-injection is another name for structured-query), the same attacks
    in the user turn below a system message (direct-injection), SEP, orders against a rule of the system (rules; with
    --data FILE, conversations that tempt to break the rules of a file), queries that ask for the system message
    (prompt-extraction), harmful requests, benign prompts that sound harmful (over-refusal), MT-Bench and AlpacaEval
    (capability), or attacks that try until they succeed (adaptive)."""
    data: str | None = None
    """A file of AlpacaEval's rows (instruction, input, output), of SEP, of guardrails, of secrets, of harmful requests,
    of benign prompts, or of MT-Bench's questions; or generated, for rows that need no file (not harmful, capability).
    By default the file in ../shared/data/eval if it is there, else generated."""
    attacks: str = "all"
    """main, in_domain, ood, secalign, all (in_domain and ood), everything, or names, separated by commas; for the two
    suites of injections, and what best_of_n draws from."""
    queries: str | None = None
    """A file of queries for prompt-extraction (a JSON array, or .txt with one a line); by default fifteen of ours."""
    templates: str | None = None
    """A file of jailbreak templates for harmful, of which each request also gets one: text separated by lines of ---,
    JSON, or CSV, with {prompt} where the request goes. By default requests are asked bare only."""
    benchmarks: str = "mt_bench,alpaca_eval"
    """What capability is made of: mt_bench, alpaca_eval, or both."""
    references: str | None = None
    """AlpacaEval's rows with reference answers, for capability; by default the file in ../shared/data/eval."""
    domain: Literal["in_domain", "ood", "secalign"] | None = None
    """Only the attacks of this domain; by default of all."""
    payload: str = "hacked"
    """What is injected, by name: hacked, word, code, ...; rolewise attacks --payloads lists them."""
    criterion: str | None = None
    """When a payload counts as followed, in the table; the logs have all. Injections and SEP: in_response, begins_with;
    rules: obeyed, broken; prompt-extraction: leaked, decoded. By default the first. When an answer is not as it should
    be, by a grader or by the classifier: harmful: helped, answered; over-refusal: declined, refused. By default the
    grader's, where all models have it."""
    limit: int | None = None
    """How many samples, by default all (of generated ones 100); each is asked under all conditions. Of suites that go
    by category, of each as many."""
    seed: int = 0
    """Of what attacks draw, and of sampling."""
    epochs: int = 1
    """How often each row is asked; more than one makes sense with a temperature only."""
    max_new_tokens: int | None = None
    """The most tokens of an answer; by default 32 for injections, 128 for sep, 64 for rules, 256 for
    prompt-extraction and over-refusal, 512 for harmful and guardrails, 1024 for capability."""
    utility_tokens: int | None = None
    """The most tokens of answers to unattacked rows, for ROUGE-L and the judge; by default as for the others."""
    temperature: float = 0.0
    """0 takes the likeliest token each time; above 0 samples."""
    system: str | None = None
    """The system message of direct-injection (by default one that says that the user's message holds one task), and of
    the other suites of injections, harmful, over-refusal and capability (by default none)."""
    method: str = "best_of_n"
    """Of adaptive: gcg (our models only), pair, best_of_n, or several, separated by commas."""
    budget: int | None = None
    """Of adaptive, for each sample: steps of gcg (50), attempts of pair (20) and best_of_n (50)."""
    role: Literal["data", "user"] = "data"
    """Of adaptive: whose text carries the attack."""
    attacker: str | None = None
    """Of adaptive: the model of inspect_ai that refines the attacks of pair."""
    candidates: int = 32
    """Of adaptive: how many suffixes gcg tries in a step."""
    suffix_tokens: int = 20
    """Of adaptive: how long gcg's suffix is."""
    streams: int = 4
    """Of adaptive: how many lines of tries pair refines in turn."""
    data_role: Literal["user", "tool"] = "user"
    """How a model of inspect_ai that has no data role gets the data: as a user message, or as a tool's result."""
    turn: Literal["first", "second"] = "first"
    """Whether the attack comes in the user's first turn, or in the second, behind an ordinary exchange."""
    via: Literal["data", "tool"] = "data"
    """Whether the data stands in the conversation, or is the result of a tool that the assistant has called."""
    delimiters: Literal["text", "delimiter", "chatml"] | None = None
    """The template whose delimiters completion attacks forge; by default the model's own, ChatML for models that are
    not ours."""
    struq_compat: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Repeat the accidents of StruQ's code in the attacks."""
    grader: str | None = None
    """A model of inspect_ai that judges: answers to unattacked rows against the reference (injections), help with
    harmful requests, refusals, or MT-Bench's and AlpacaEval's answers. By default nobody does."""
    probe: Literal["system-as-user", "data-as-user", "all-one-role", "scale-0"] | None = None
    """Tell our models wrong roles; by default the right ones."""
    scale: float | None = None
    """Factor on the segment table of our models, in place of their own; 0 is the bare model."""
    batch_size: int = 32
    """Rows that our models compute together."""
    device: str | None = None
    """Where our models run; by default an accelerator if there is one."""
    dtype: Literal["fp32", "bf16"] | None = None
    """How our models compute; by default as they were saved. bf16 takes little more than half the time on processors
    that have it, but its rounding turns some answers; compare models in one dtype only."""
    log_dir: Path = Path("logs")
    """Where logs go, and answers as they come."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("name at least one model, such as smollm2-135m")
        for name in ("limit", "epochs", "max_new_tokens", "utility_tokens", "batch_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} {value} must be at least 1")
        if not self.temperature >= 0:
            raise ValueError(f"--temperature {self.temperature} must not be negative")
        self._require_options_of_suite()
        if self.epochs > 1 and not self.temperature:
            raise ValueError("--epochs above 1 asks the same again and again; give a --temperature above 0 with it")

    def _require_options_of_suite(self) -> None:
        for field in dataclasses.fields(self):
            suites = _OPTIONS.get(field.name, ())
            if suites and getattr(self, field.name) != field.default and not self.has_option(field.name):
                raise ValueError(
                    f"--{field.name.replace('_', '-')} is for {_listed(suites)}; {self.suite} has no such option, so "
                    "leave it out"
                )
        if self.suite == "adaptive":
            self._require_named(_METHODS, "method", self.method)
        if self.suite == "capability":
            self._require_named(_BENCHMARKS, "benchmarks", self.benchmarks)

    def _require_named(self, owners: dict[str, str], option: str, chosen: str) -> None:
        """Options of a method, or a benchmark, that was not chosen."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        names = [name.strip().replace("-", "_") for name in chosen.split(",")]
        if not set(names) <= set(owners.values()):
            return  # an unknown name is told of elsewhere
        for name, owner in owners.items():
            if getattr(self, name) != defaults[name] and owner not in names:
                raise ValueError(f"--{_dashed(name)} is for --{option} {owner}, and {option} is {chosen}; leave it out")

    def has_option(self, name: str) -> bool:
        """Whether an option belongs to the suite."""
        return _dashed(self.suite_name) in _OPTIONS.get(name, (_dashed(self.suite_name),))

    @property
    def suite_name(self) -> str:
        """The name of the suite's task."""
        if self.suite == "rules" and self.data not in (None, "generated"):
            return "guardrails"
        return _SUITE_OF.get(self.suite, self.suite.replace("-", "_"))


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _listed(suites: Sequence[str]) -> str:
    *most, last = suites
    return f"the suites {', '.join(most)} and {last}" if most else f"the suite {last}"


def find_files(config: EvalConfig) -> dict[str, str]:
    """By argument of the task, the files that it reads, their paths whole; `data` may be `generated`.

    Raises:
        FileNotFoundError: when one does not exist; the message says what it is and where to get it.
    """
    from rolewise.evaluation.testsets import GENERATED, chosen_benchmarks, find_data, find_references

    found: dict[str, str] = {}
    if config.queries is not None and not Path(config.queries).expanduser().is_file():
        raise FileNotFoundError(f"no file of queries {config.queries!r}; leave it out for our own fifteen")
    if config.templates is not None and not Path(config.templates).expanduser().is_file():
        raise FileNotFoundError(f"no file of jailbreak templates {config.templates!r}; none comes with Rolewise")
    chosen = chosen_benchmarks(config.benchmarks)
    if config.has_option("references") and "alpaca_eval" in chosen:
        found["references"] = find_references(config.references)
    if config.has_option("benchmarks") and "mt_bench" not in chosen:
        found["data"] = found["references"]
    else:
        found["data"] = find_data(config.suite_name, config.data)
    found |= {name: str(file) for name in ("queries", "templates") if (file := getattr(config, name)) is not None}
    return {name: file if file == GENERATED else str(Path(file).expanduser().resolve()) for name, file in found.items()}


def task_args(config: EvalConfig, files: dict[str, str]) -> dict[str, Any]:
    """The arguments of the suite's task."""
    found: dict[str, Any] = {
        "limit": config.limit,
        "seed": config.seed,
        "epochs": config.epochs,
        "temperature": config.temperature,
        **files,
    }
    if config.max_new_tokens is not None:
        found["max_tokens"] = config.max_new_tokens
    suite = _dashed(config.suite_name)
    own = [name for name in _OPTIONS if config.has_option(name) and name not in (*_FILES, "grader")]
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    found |= {
        name: value
        for name in own
        if (value := getattr(config, name)) != defaults[name] or suite not in _SAID_IF_GIVEN.get(name, ())
    }
    if suite == "adaptive" and config.criterion is not None:
        found["criterion"] = config.criterion  # also says when an attack has succeeded
    if config.has_option("grader") and not config.has_option("benchmarks"):  # capability is all judging
        found["judge"] = config.grader is not None
    return found


def model_args(config: EvalConfig, bare: bool) -> dict[str, Any]:
    """The arguments of a model of ours; `bare` if it has no segment table."""
    given = {
        "batch_size": config.batch_size,
        "scale": 0.0 if bare and config.scale is None else config.scale,
        "probe": config.probe,
        "device": config.device,
        "dtype": _DTYPES[config.dtype] if config.dtype else None,
    }
    return {name: value for name, value in given.items() if value is not None}
