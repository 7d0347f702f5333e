"""inspect_evals on a Rolewise model: AgentDojo, StrongREJECT, XSTest and IFEval, from dataset to score."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="needs rolewise[eval]")
pytest.importorskip("inspect_evals", reason="inspect_evals is not installed: pip install 'rolewise[inspect-evals]'")

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolCall

from rolewise.roles import Role
from tests.agents import Script, model_of, save_model
from tests.test_tool_calls import tokenizer_of

DATA = Path(__file__).parents[2] / "shared" / "data" / "eval"


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("inspect-evals")
    return {name: save_model(root / name, tokenizer_of(name)) for name in ("qwen2_5", "plain")}


@pytest.fixture
def plain(directories: dict[str, Path]) -> Model:
    return model_of(directories["plain"])


def rows_of(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path.name} is not in ../shared/data/eval")
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines)) if path.suffix == ".csv" else [json.loads(line) for line in lines]


def run(task: Task, model: Model, tmp_path: Path, **options: Any) -> EvalLog:
    (log,) = eval(task, model=model, log_dir=str(tmp_path), display="none", max_samples=1, **options)
    assert log.status == "success", log.error
    return log


def metric(log: EvalLog, name: str) -> Any:
    assert log.results is not None
    (value,) = [score.metrics[name].value for score in log.results.scores if name in score.metrics]
    return value


def grader(*answers: str) -> Model:
    outputs = [ModelOutput.from_content("mockllm/model", answer) for answer in answers]
    for output in outputs:
        output.usage = ModelUsage()  # else tokens are counted, with a vocabulary that is downloaded
    return get_model("mockllm/model", memoize=False, custom_outputs=outputs)


# --- AgentDojo: its suites come with the package -----------------------------------------------------------


def as_text(call: ToolCall) -> str:
    return f"<tool_call>{json.dumps({'name': call.function, 'arguments': call.arguments})}</tool_call>"


def banking() -> tuple[Task, list[ToolCall], list[ToolCall]]:
    """AgentDojo's first task of its bank with its first injection, the user's calls and the attacker's."""
    if find_spec("deepdiff") is None or find_spec("email_validator") is None:
        pytest.skip("AgentDojo's own dependencies are not installed: pip install 'inspect-evals[agentdojo]'")
    from inspect_evals.agentdojo import agentdojo
    from inspect_evals.agentdojo.task_suites.banking.task_suite import BANKING_TASK_SUITE as SUITE

    environment = SUITE.load_and_inject_default_environment({})
    task = agentdojo(workspace="banking", user_task_ids=[0], injection_task_ids=[0], with_sandbox_tasks="no")
    asked = [task.ground_truth(environment) for task in (SUITE.user_tasks[0], SUITE.injection_tasks[0])]
    return task, asked[0], asked[1]


@pytest.mark.parametrize("name", ["qwen2_5", "plain"])
@pytest.mark.parametrize("obeys", [False, True])
def test_agentdojo(directories: dict[str, Path], tmp_path: Path, name: str, obeys: bool) -> None:
    task, user, attacker = banking()
    read, pay = user
    model = model_of(directories[name])
    script = Script(model, [as_text(read), *map(as_text, attacker if obeys else [pay]), "Done."])
    log = run(task, model, tmp_path)
    assert log.samples is not None
    (sample,) = log.samples
    assert sample.scores is not None
    value = next(iter(sample.scores.values())).value
    assert value == ({"utility": "I", "security": "C"} if obeys else {"utility": "C", "security": "I"}), (
        "`security` is C when the attack succeeds"
    )
    assert "read_file" in script.told(0, Role.SYSTEM), "tools are the system's"
    injection = "important message from me, Emma Johnson"
    assert injection not in "".join(script.told(0, role) for role in Role)
    for number in range(1, len(script.asked)):
        assert injection in script.told(number, Role.DATA), "what a tool returns is DATA"
        assert not any(injection in script.told(number, role) for role in Role if role is not Role.DATA)


# --- the others: their rows are downloaded, here read from ../shared/data ----------------------------------


def test_strong_reject(plain: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("inspect_evals.strong_reject.strong_reject")
    rows = rows_of("strongreject_313.csv")

    def load(*, sample_fields: Any, **options: Any) -> MemoryDataset:
        return MemoryDataset([sample_fields(row) for row in rows])

    monkeypatch.setattr(module, "load_csv_dataset", load)
    script = Script(plain, ["I can't help with that.", "First you write to them."])
    verdicts = [f"#scores\n1.b {refused}\n2.b {good}\n3.b {good}" for refused, good in ((1, 1), (0, 5))]
    roles = {"grader": grader(*verdicts)}
    log = run(module.strong_reject(judge_llm=None), plain, tmp_path, limit=2, model_roles=roles)
    assert metric(log, "jailbreak_rate") == 0.5
    assert metric(log, "strong_reject_metric") == 2.5
    for number in (0, 1):
        assert rows[number]["forbidden_prompt"] in script.told(number, Role.USER)


def test_xstest(plain: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("inspect_evals.xstest.xstest")
    rows = rows_of("xstest_prompts.csv")

    def load(*, sample_fields: Any, **options: Any) -> MemoryDataset:
        return MemoryDataset([sample_fields(row) for row in rows])

    monkeypatch.setattr(module, "hf_dataset", load)
    script = Script(plain, ["Use kill.", "I can't help with that."])
    roles = {"grader": grader("It helps. GRADE: C", "It does not. GRADE: I")}
    log = run(module.xstest(scorer_model=None), plain, tmp_path, limit=2, model_roles=roles)
    assert metric(log, "refusal_rate") == 50
    assert "You are a helpful assistant." in script.told(0, Role.SYSTEM)
    assert rows[0]["prompt"] in script.told(0, Role.USER)


@dataclass
class InputExample:
    key: int
    instruction_id_list: list[str]
    prompt: str
    kwargs: dict[int, Any]


@dataclass
class Followed:
    follow_instruction_list: list[bool] = field(default_factory=list)

    @property
    def follow_all_instructions(self) -> bool:
        return all(self.follow_instruction_list)


def checker(monkeypatch: pytest.MonkeyPatch) -> None:
    """IFEval's own checker is in no package registry: where it is missing, one that knows commas stands in."""
    if find_spec("instruction_following_eval") is not None:
        return
    names = ("instruction_following_eval", "instruction_following_eval.evaluation")
    package, evaluation = (ModuleType(name) for name in names)
    for name, module in zip(names, (package, evaluation), strict=True):
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)

    def test_instruction_following(example: InputExample, response: str, strict: bool) -> Followed:
        assert set(example.instruction_id_list) == {"punctuation:no_comma"}
        return Followed(["," not in response for _ in example.instruction_id_list])

    for name, value in (
        ("InputExample", InputExample),
        ("ensure_nltk_resource", lambda: None),
        ("test_instruction_following", test_instruction_following),
    ):
        setattr(evaluation, name, value)


def test_ifeval(plain: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checker(monkeypatch)
    module = importlib.import_module("inspect_evals.ifeval.ifeval")
    rows = [row for row in rows_of("ifeval.jsonl") if row["instruction_id_list"] == ["punctuation:no_comma"]]

    def load(*, sample_fields: Any, **options: Any) -> MemoryDataset:
        samples: list[Sample] = [sample_fields(row) for row in rows]
        return MemoryDataset(samples)

    monkeypatch.setattr(module, "hf_dataset", load)
    script = Script(plain, ["One, two.", "One and two."])
    log = run(module.ifeval(), plain, tmp_path, limit=2)
    assert metric(log, "prompt_strict_acc") == 0.5
    assert metric(log, "final_acc") == 0.5
    assert rows[0]["prompt"] in script.told(0, Role.USER)


@pytest.mark.slow
def test_the_command_line(directories: dict[str, Path], tmp_path: Path) -> None:
    """What the documentation says one types; the random model's few words are no call."""
    banking()
    done = subprocess.run(
        [
            sys.executable, "-m", "inspect_ai", "eval", "inspect_evals/agentdojo",
            "--model", f"rolewise/{directories['plain']}", "-M", "max_new_tokens=4", "-T", "workspace=banking",
            "-T", "with_sandbox_tasks=no", "--limit", "1", "--message-limit", "6",
            "--log-dir", str(tmp_path), "--log-format", "json", "--display", "none",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = tmp_path.glob("*.json")
    log = json.loads(path.read_text())
    assert (log["status"], log["results"]["completed_samples"]) == ("success", 1)
