"""The `rolewise` command: its arguments, its errors, and what each subcommand does."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rolewise import cli
from rolewise.processor import computes_in_bf16
from tests.training_model import TEMPLATE, save_tiny_model, tiny_tokenizer, write_rows

ROWS = [
    {"messages": [{"role": "user", "content": f"copy {word}"}]}
    for word in ["red", "green", "blue", "cat", "dog", "tree", "of"]
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose head is its own, so that its answers depend on what is asked; its template takes tools."""
    directory = save_tiny_model(tmp_path_factory.mktemp("tiny"), "qwen3")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}" + TEMPLATE
    tokenizer.save_pretrained(directory)
    return str(directory)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.jsonl", ROWS)


def answers(path: Path) -> list[str]:
    return [json.loads(line)["messages"][-1]["content"] for line in path.read_text().splitlines()]


# --- the command itself --------------------------------------------------------------------------------------


def test_help_lists_every_command_and_each_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert f"\n  {name} " in listed
        assert cli.main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "examples:\n" in shown
        assert f"\n  rolewise {name}" in shown


@pytest.mark.parametrize("name", [*cli.COMMANDS, "data structured-query", "data conflicts"])
def test_help_offers_no_none_as_a_default(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--limit None` is refused; what it means that an option is absent, its text says."""
    monkeypatch.setenv("COLUMNS", "400")
    assert cli.main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "default: None" not in shown
    assert "(default: )" not in shown
    others = {"attacks": "(default: data)", "eval": "(default: logs)", "train": "(default: 2e-05)"}
    assert others.get(name, "") in shown, "other defaults stay"


def test_help_breaks_lines_at_its_own_width_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line breaks of docstrings, in the source's width, would leave single words on lines of their own."""
    monkeypatch.setenv("COLUMNS", "3000")
    assert cli.main(["eval", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "for the two suites of injections, and what best_of_n draws from." in shown, "an option's text"
    assert "what only sounds so (over-refusal), and for what a model can do" in shown, "what the command is for"
    assert "\n  rolewise eval runs/ise --suite sep --limit 100\n" in shown, "examples stay a line each"


def test_an_argument_that_is_no_text_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["attack", str(tmp_path / "in.json"), "-o", str(tmp_path / "out"), "--attack", "naive"]
    assert cli.main([*command, "--payload", "Say \udcff", "--witness", "x"]) == 2
    assert "the argument 'Say \\udcff' is not UTF-8 text (character 4)" in capsys.readouterr().err


def test_the_labs_help_says_its_own_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    from rolewise.lab.config import LabConfig

    assert cli.main(["lab", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    config = LabConfig()
    for value in (config.steps, config.lr_multiple, config.init_std):
        assert f"by default {value:g}" in shown
    for value in (config.base_steps, config.test_samples):
        assert f"the study takes {value}" in shown


def test_a_recipes_value_stays_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "r.yaml").write_text("model: m\ndata: d\noutput_dir: o\nmax_rows: 77\nlora: {rank: 5}\n")
    assert cli.main(["train", str(tmp_path / "r.yaml"), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "(default: 77)" in shown
    assert "(default: 5)" in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == "rolewise 0.1.0\n"


@pytest.mark.parametrize(("typed", "hint"), [("shwo", "'show'"), ("quikstart", "'quickstart'"), ("zzz", "generate")])
def test_an_unknown_command_suggests(typed: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([typed]) == 2
    error = capsys.readouterr().err
    assert typed in error
    assert hint in error


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (ValueError("two\nlines \x1b[2J"), 2, "rolewise: error: two lines \\x1b[2J\n"),
        (FileNotFoundError(2, "No such file or directory", "a.json"), 2, "No such file or directory: a.json\n"),
        (ImportError("no peft"), 2, "rolewise: error: no peft\n"),
        (NotImplementedError("later"), 2, "rolewise: error: later\n"),
        (KeyError("lost"), 1, "unexpected KeyError: 'lost' (rolewise --debug ... shows where)\n"),
        (KeyboardInterrupt(), 130, "rolewise: interrupted\n"),
    ],
)
def test_errors_are_one_line_and_a_status(
    raised: BaseException,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(_: Any) -> int:
        raise raised

    monkeypatch.setattr("rolewise.commands.show.main", broken)
    monkeypatch.delenv("ROLEWISE_DEBUG", raising=False)
    assert cli.main(["show", "x"]) == status
    error = capsys.readouterr().err
    assert error.endswith(said)
    assert error.count("\n") == 1
    with pytest.raises(type(raised)):
        cli.main(["show", "x", "--debug"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--lerning-rate", "3", "--model", "m"], "--lerning-rate, 3; did you mean --learning-rate?"),
        (["train", "--model", "m"], "Missing from rolewise train: --output-dir STR --data STR"),
        (["train", "--epochs", "abc"], "Error parsing --epochs: could not convert string to float: 'abc'"),
        (
            ["train", "--method", "abc"],
            "invalid choice 'abc' for argument '--method'. Expected one of 'full', 'lora' (rolewise",
        ),
        (
            ["train", "--method", "lore"],
            "invalid choice 'lore' for argument '--method'. Expected one of 'full', 'lora'; did you mean lora?",
        ),
        (
            ["eval", "m", "--probe", "scale0"],
            "Expected one of 'all-one-role', 'data-as-user', 'scale-0', 'system-as-user'; did you mean scale-0?",
        ),
        (["show"], "Missing from rolewise show: FILE"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    required = (
        ["--model", "m", "--output-dir", "o", "--data", "d"]
        if arguments[0] == "train" and "Missing" not in said
        else []
    )
    assert cli.main([*arguments, *required]) == 2
    error = capsys.readouterr().err
    assert error == f"rolewise: error: {error[len('rolewise: error: ') :]}"
    assert error.count("\n") == 1
    assert said in error
    assert f"(rolewise {arguments[0]} --help lists the options)" in error


def test_a_name_that_no_hub_can_be_asked_for_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("rolewise.hub.getproxies", dict)
    monkeypatch.setattr("socket.getaddrinfo", unknown)
    path = write_rows(tmp_path / "in.jsonl", ROWS)
    start = time.perf_counter()
    assert cli.main(["show", str(path), "--model", "nobody/smolm2"]) == 2
    assert time.perf_counter() - start < 10  # the hub's client tries for 24 seconds
    assert "no model 'nobody/smolm2'" in (error := capsys.readouterr().err)
    assert "Name or service not known" in error


def test_start_up_is_quick_and_light() -> None:
    heavy = "{'torch', 'transformers', 'rich', 'pydantic', 'tyro', 'numpy'}"
    script = f"import sys, rolewise, rolewise.cli; rolewise.cli.main(['--help']); print({heavy} & sys.modules.keys())"
    times: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - start)
        assert done.stdout.endswith("set()\n")
    assert statistics.median(times) < 1.0  # half a second is the aim; test machines are busy


# --- show ----------------------------------------------------------------------------------------------------


def show(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[dict[str, Any]]]:
    capsys.readouterr()
    assert cli.main(["show", "--json", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_show_json_gives_each_token_its_role(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages = [
        {"role": "user", "content": "copy"},
        {"role": "data", "content": "red<|im_end|>"},
        {"role": "assistant", "content": "red"},
    ]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(messages, indent=2))  # one document over many lines
    [tokens] = show(capsys, str(path), "--model", model)

    def said(role: str) -> str:
        return "".join(token["token"] for token in tokens if token["role"] == role)

    assert said("user") == "<|im_start|>user\ncopy<|im_end|>\n"
    assert said("data") == "<|im_start|>data\nred<|im_end|><|im_end|>\n"
    assert said("output") == "<|im_start|>assistant\nred<|im_end|>\n"
    assert {token["segment"] for token in tokens if token["role"] == "data"} == {2}
    assert "".join(token["token"] for token in tokens if token["loss"]) == "red<|im_end|>"
    # What somebody typed is spelled out in ordinary tokens; only the template's own is a control token.
    assert [token["token"] for token in tokens if token["role"] == "data" and token["control"]] == [
        "<|im_start|>",
        "<|im_end|>",
    ]
    [prompt] = show(capsys, str(path), "--model", model, "--generation-prompt")
    assert prompt[: len(tokens)] == tokens
    assert {token["role"] for token in prompt[len(tokens) :]} == {"output"}


def test_show_reads_jsonl_arrays_alpaca_and_standard_input(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    separator = {"role": "user", "content": "copy \u2028 green"}  # no line feed, so no end of a row
    plain = [ROWS[0]["messages"], [separator]]
    alpaca = {"instruction": "copy", "input": "red", "output": "red"}
    lines = write_rows(tmp_path / "a.jsonl", [ROWS[0], plain[1], alpaca])  # type: ignore[list-item]
    array = tmp_path / "b.json"
    array.write_text(json.dumps([ROWS[0], plain[1], alpaca]))
    lines.write_text(lines.read_text().replace("\\u2028", "\u2028"), encoding="utf-8")
    expected = show(capsys, str(lines), "--model", model)
    assert len(expected) == 3
    assert {token["role"] for token in expected[2]} == {"user", "data", "output"}
    assert show(capsys, str(array), "--model", model) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.read_bytes())))
    assert show(capsys, "-", "--model", model) == expected


def test_show_prints_roles_as_labels_and_harmless_text(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_rows(tmp_path / "a.jsonl", [{"messages": [{"role": "user", "content": "copy \x1b[2J"}]}])
    assert cli.main(["show", str(path), "--model", model]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^ +user \W?<\|im_start\|>\W?user", shown, re.MULTILINE)
    assert "copy \\x1b[2J" in shown
    assert "\x1b" not in shown
    assert "roles:  system " in shown


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"messages": [{"role": "user", "content": "a"}]}\n{"messages": [}\n', "rows.jsonl:2: not valid JSON"),
        ('{\n  "messages": [\n    oops\n  ]\n}\n', "rows.jsonl:3: not valid JSON"),
        ('{"messages": [{"role": "boss", "content": "a"}]}', "rows.jsonl:1: messages[0] has the role 'boss'"),
        ('{"messages": []}', "rows.jsonl:1: the conversation is empty"),
        ('{"prompt": "a"}', "rows.jsonl:1: no \"messages\"; the keys are 'prompt'"),
        ('{"messages": [{"role": "user", "content": "a"}], "id": 1}', "unknown key id"),
        ('[{"messages": [{"role": "user", "content": "a"}]}, 7]', "rows.jsonl[1]: a conversation is"),
        ("", "is empty"),
    ],
)
def test_bad_input_names_its_place(text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    assert cli.main(["show", str(path)]) == 2
    assert problem in capsys.readouterr().err


def test_show_refuses_what_is_no_text_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latin.json").write_bytes(b'["\xe9"]')
    for path, problem in (("latin.json", "not UTF-8"), (".", "is a directory"), ("none.json", "no file")):
        assert cli.main(["show", str(tmp_path / path)]) == 2
        assert problem in capsys.readouterr().err


def test_a_closed_pipe_is_silent(model: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "many.jsonl", ROWS * 200)
    command = [sys.executable, "-m", "rolewise", "show", str(path), "--json", "--model", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


# --- train and quickstart ------------------------------------------------------------------------------------


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    runs: list[Any] = []
    monkeypatch.setattr("rolewise.training.train", runs.append)
    return runs


def test_train_takes_a_recipe_and_options_win(
    trained: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("model: tiny\ndata: rows.jsonl\nlearning_rate: 1e-4\nlora:\n  rank: 4\n")
    options = ["--output-dir", "out", "--batch-size", "3", "--no-ise", "--lora.alpha", "5"]
    assert cli.main(["train", str(recipe), *options]) == 0
    assert cli.main(["train", *options, str(recipe)]) == 0
    assert ("--dtype mixed" in capsys.readouterr().err) == bool(computes_in_bf16())
    config = trained[0]
    assert (config.model, config.data, config.output_dir) == ("tiny", "rows.jsonl", "out")
    assert (config.learning_rate, config.batch_size, config.ise) == (1e-4, 3, False)
    assert (config.lora.rank, config.lora.alpha) == (4, 5.0)
    assert trained[1] == config


def test_train_without_a_recipe(
    trained: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["train", "--model", "a", "--data", "b", "--output-dir", "runs/c d"]
    assert cli.main(options) == 0
    assert trained[0].output_dir == "runs/c d"
    assert capsys.readouterr().out == "try it: rolewise chat 'runs/c d'; attack it: rolewise eval 'runs/c d'\n"
    monkeypatch.setenv("RANK", "1")
    assert cli.main(options) == 0
    assert not capsys.readouterr().out


def test_train_teaches_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train"]) == 2
    assert "rolewise train RECIPE.yaml" in capsys.readouterr().err
    assert cli.main(["train", "--help"]) == 0
    assert "usage: rolewise train [RECIPE.yaml] [-h]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recipe", "options", "problem"),
    [
        ("model: a\ndata: b\noutput_dir: c\nlerning_rate: 1\n", [], "unknown key 'lerning_rate'"),
        ("model: a\ndata: b\n", [], "--output-dir"),
        ("model: a\ndata: b\noutput_dir: c\n", ["--lerning-rate", "1"], "--learning-rate"),
        ("model: a\ndata: b\noutput_dir: c\n", ["--batch-size", "0"], "--batch-size 0"),
        ("[1]", [], "must be a YAML mapping"),
        ("[" * 5000, [], "r.yaml is nested too deeply"),
        ("model: a\ndata: b\noutput_dir: c\n", ["--seed", "-1"], "seed -1 must be from 0"),
        ("model: a\ndata: b\noutput_dir: c\n", ["--table-init-std", "nan"], "nan must not be negative"),
        (None, [], "no recipe at"),
    ],
)
def test_train_refuses(
    recipe: str | None,
    options: list[str],
    problem: str,
    trained: list[Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "r.yaml"
    if recipe is not None:
        path.write_text(recipe)
    assert cli.main(["train", str(path), *options]) == 2
    assert problem in capsys.readouterr().err
    assert not trained


def test_quickstart_passes_its_settings_and_status_on(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[Any] = []

    def run(config: Any) -> int:
        configs.append(config)
        return 7

    monkeypatch.setattr("rolewise.quickstart.run", run)
    assert cli.main(["quickstart", "--minutes", "2", "--output", "there", "--fresh", "--seed", "4"]) == 7
    [config] = configs
    assert (config.minutes, config.output, config.fresh, config.seed) == (2.0, Path("there"), True, 4)


@pytest.mark.parametrize("stored", ["[]", "3", '{"model_type": 3}', "[" * 5000])
def test_a_configuration_that_is_none_is_named(
    stored: str, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(stored)
    assert generate(str(tmp_path / "model"), prompts, tmp_path / "out.jsonl") == 2
    said = capsys.readouterr().err
    assert "config.json" in said
    assert "save the model again" in said


# --- generate ------------------------------------------------------------------------------------------------


def generate(model: str, source: Path, output: Path, *options: str) -> int:
    return cli.main(["generate", model, str(source), "-o", str(output), "--max-new-tokens", "6", *options])


def test_generate_answers_in_the_order_of_its_input(model: str, prompts: Path, tmp_path: Path) -> None:
    together, alone = tmp_path / "together.jsonl", tmp_path / "alone.jsonl"
    assert generate(model, prompts, together, "--batch-size", "4") == 0
    assert generate(model, prompts, alone, "--batch-size", "1") == 0
    rows = [json.loads(line) for line in together.read_text().splitlines()]
    assert [row["messages"][:-1] for row in rows] == [row["messages"] for row in ROWS]
    assert all(row["messages"][-1]["role"] == "assistant" for row in rows)
    assert answers(together) == answers(alone)
    assert len(set(answers(together))) == len(ROWS)
    assert not list(tmp_path.glob("*.partial"))


def test_generate_keeps_tools_and_meta(model: str, tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {}}}
    source = write_rows(tmp_path / "in.jsonl", [{**ROWS[0], "tools": [tool], "meta": {"id": 3}}])
    assert generate(model, source, tmp_path / "out.jsonl", "--scale", "0") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert row["tools"] == [tool]
    assert row["meta"]["id"] == 3
    assert row["meta"]["rolewise"]["scale"] == 0


@pytest.mark.parametrize("options", [(), ("--temperature", "1.5", "--seed", "5")])
def test_generate_resumes_to_the_same_answers(
    options: tuple[str, ...], model: str, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rolewise.commands.answer_file import AnswerFile

    whole, resumed = tmp_path / "whole.jsonl", tmp_path / "resumed.jsonl"
    assert generate(model, prompts, whole, "--batch-size", "3", *options) == 0
    keys = [json.loads(line)["meta"]["rolewise"]["key"] for line in whole.read_text().splitlines()]
    with AnswerFile(resumed, keys) as started:
        started.add(2, answers(whole)[2])
        started.add(0, "kept as it is")
    partial = AnswerFile.partial_path(resumed)
    with partial.open("a") as file:
        file.write(json.dumps({"row": 1, "key": "of something else", "answer": "not this"}) + "\n")
        file.write('{"row": 3, "key": "' + keys[3] + '", "answer": "cut sh')
    assert generate(model, prompts, resumed, "--batch-size", "3", *options) == 0
    said = capsys.readouterr().err
    assert "resuming: 2 of 7" in said
    assert "1 answers in" in said
    assert answers(resumed) == ["kept as it is", *answers(whole)[1:]]
    assert not partial.exists()


def test_generate_never_replaces_something_else(
    model: str, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("precious\n")
    assert generate(model, prompts, output) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert output.read_text() == "precious\n"
    assert generate(model, prompts, output, "--overwrite") == 0
    done = output.read_bytes()
    assert generate(model, prompts, output) == 0
    assert "done already" in capsys.readouterr().err
    assert generate(model, prompts, output, "--scale", "0.5") == 2  # other settings: not this command's result
    assert generate(model, prompts, prompts, "--overwrite") == 2
    assert "is the input" in capsys.readouterr().err
    assert output.read_bytes() == done
    assert generate(model, prompts, Path("/dev/zero")) == 2
    assert "not a regular file" in capsys.readouterr().err
    other = tmp_path / "new.jsonl.partial"
    other.write_text("somebody's notes")
    assert generate(model, prompts, tmp_path / "new.jsonl") == 2
    assert other.read_text() == "somebody's notes"


def test_generate_names_bad_rows_or_skips_them(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    answered = {"messages": [*ROWS[0]["messages"], {"role": "assistant", "content": "red"}]}
    documents = {**ROWS[0], "documents": [{"text": "a"}]}
    lines = [json.dumps(ROWS[0]), "{oops", json.dumps(answered), json.dumps(documents), json.dumps(ROWS[1])]
    source.write_text("\n".join(lines))
    output = tmp_path / "out.jsonl"
    assert generate(model, source, output) == 2
    assert "in.jsonl:2: not valid JSON" in capsys.readouterr().err
    assert not list(tmp_path.glob("out*"))
    assert generate(model, source, output, "--skip-bad") == 0
    said = capsys.readouterr().err
    for problem in (
        "in.jsonl:2:",
        "in.jsonl:3: the last message is the assistant's",
        "in.jsonl:4: the chat template ignores documents",
    ):
        assert problem in said
    assert "3 bad rows skipped" in said
    assert len(answers(output)) == 2


def test_a_partial_file_stays_clean_over_many_kills(tmp_path: Path) -> None:
    from rolewise.commands.answer_file import AnswerFile

    path = AnswerFile.partial_path(tmp_path / "out.jsonl")
    kept = '{"row": 0, "key": "k0", "answer": "a"}\n'
    path.write_text('{"row": 1, "key": "old", "answer": "of other settings"}\n' * 3 + kept + '{"row": 1, "ke')
    with AnswerFile(tmp_path / "out.jsonl", ["k0", "k1"]) as answers:
        assert (answers.known, answers.foreign) == ({0: "a"}, 3)
        assert path.read_text() == kept
        answers.add(1, "b\u2028c")
        assert path.read_text() == kept + '{"row": 1, "key": "k1", "answer": "b\\u2028c"}\n'  # on disk at once


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    from rolewise.commands.answer_file import AnswerFile

    with AnswerFile(tmp_path / "out.jsonl", ["k"]) as first:
        first.add(0, "a")
        with (
            pytest.raises(BlockingIOError, match="another rolewise generate"),
            AnswerFile(tmp_path / "out.jsonl", ["k"]),
        ):
            pass
        assert first.known == {0: "a"}
    with AnswerFile(tmp_path / "out.jsonl", ["k"]) as second:
        assert second.known == {0: "a"}


def test_generate_goes_on_after_a_sigkill(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_rows(tmp_path / "in.jsonl", ROWS * 5)
    options = ["--max-new-tokens", "30", "--batch-size", "1"]
    command = ["generate", model, str(source), "-o", str(tmp_path / "out.jsonl"), *options]
    partial = tmp_path / "out.jsonl.partial"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "rolewise", *command], env=environment, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 90
        while not (partial.exists() and partial.read_bytes().count(b"\n") >= 2):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    before = partial.read_bytes().count(b"\n")
    assert 2 <= before < len(ROWS) * 5
    assert not (tmp_path / "out.jsonl").exists()
    assert cli.main(command) == 0
    assert f"resuming: {before} of 35" in capsys.readouterr().err
    assert cli.main([*command[:3], "-o", str(tmp_path / "whole.jsonl"), *options]) == 0
    assert answers(tmp_path / "out.jsonl") == answers(tmp_path / "whole.jsonl")
