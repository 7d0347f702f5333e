"""Training rows of Structured Query: what is read, what is left out, what is injected, and the command."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rolewise import cli
from rolewise.attacks import foreign_delimiters
from rolewise.data.structured_query import Example, build, read_examples
from rolewise.data.structured_query.training import BOTH_SHARE, QUESTION_PREFIX
from rolewise.messages import parse_messages
from rolewise.training.rows import parse_row

DIGEST = "99aa1d416da2d16d"
SHARED = Path(__file__).parents[2] / "shared" / "data"
ALPACA = [
    {"instruction": f"Count the letters of word {n}.", "input": f"word-{n} is here", "output": f"out-{n}"}
    for n in range(40)
] + [{"instruction": f"What is {n} plus {n}?", "input": "", "output": f"sum-{2 * n}"} for n in range(20)]


def write(path: Path, rows: Any) -> str:
    path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return str(path)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write(tmp_path / "alpaca.json", ALPACA)


def text_of(row: dict[str, Any], role: str) -> str:
    return next((m["content"] for m in row["messages"] if m["role"] == role), "")


def original(row: dict[str, Any]) -> dict[str, str]:
    return ALPACA[int(row["meta"]["id"].partition("[")[2][:-1])]


# --- reading -----------------------------------------------------------------------------------------------


def examples(path: str, **options: Any) -> list[tuple[str, str, str]]:
    return [(e.instruction, e.input, e.output) for e in read_examples(path, **options) if isinstance(e, Example)]


def problems(path: str) -> list[str]:
    return [
        e.problem.removeprefix(str(Path(path).parent) + os.sep)
        for e in read_examples(path)
        if not isinstance(e, Example)
    ]


def test_the_shapes_that_are_read(tmp_path: Path) -> None:
    alpaca = {"instruction": "a", "input": "b", "output": "c"}
    dolly = {"instruction": "a", "context": "b", "response": "c", "category": "qa"}
    seed = {"id": "s", "instruction": "a", "instances": [{"input": "b", "output": "c"}], "is_classification": False}
    task = {
        "Definition": ["a"],
        "Instances": [{"id": "1", "input": "b", "output": ["c", "d"]}],
        "Positive Examples": [],
    }
    for number, row in enumerate((alpaca, dolly, seed)):
        assert examples(write(tmp_path / f"{number}.json", [row])) == [("a", "b", "c")]
        lines = tmp_path / f"{number}.jsonl"
        lines.write_text("\ufeff" + json.dumps(row) + "\n\n" + json.dumps(row) + "\n", encoding="utf-8")
        assert examples(str(lines)) == [("a", "b", "c")] * 2
    assert examples(write(tmp_path / "task.json", task)) == [("a", "b", "c")]
    pretty = tmp_path / "pretty.json"
    pretty.write_text(json.dumps(task, indent=2), encoding="utf-8")
    assert examples(str(pretty)) == [("a", "b", "c")]


def test_a_blank_input_is_none(tmp_path: Path) -> None:
    rows = [{"instruction": "a", "input": blank, "output": "c"} for blank in ("", " \n", None)]
    assert examples(write(tmp_path / "x.json", rows)) == [("a", "", "c")] * 3


def test_bad_rows_say_what_and_where(tmp_path: Path) -> None:
    good = {"instruction": "a", "input": "b", "output": "c"}
    path = write(
        tmp_path / "x.json",
        [
            good,
            {**good, "input": 5},
            {**good, "output": " "},
            {"input": "b", "output": "c"},
            "text",
            {**good, "output": ["c"]},
            {"instruction": "a", "context": "b", "response": ""},
        ],
    )
    assert problems(path) == [
        "x.json[1]: \"input\" must be text, not int '5'",
        'x.json[2]: "output" is empty',
        "x.json[3]: no \"instruction\"; the fields are 'input', 'output'",
        "x.json[4]: a row must be a JSON object, not str",
        'x.json[5]: "output" must be text that is not empty, not list "[\'c\']"',
        'x.json[6]: "response" is empty',
    ]
    lines = tmp_path / "y.jsonl"
    lines.write_text(json.dumps(good) + "\n{oops\n" + json.dumps(good), encoding="utf-8")
    assert len(problems(str(lines))) == 1
    assert problems(str(lines))[0].startswith("y.jsonl:2: not valid JSON")
    spoilt = ('"in\\ud800"', "NaN", '"b", "input": "c"', "[" * 100_000, "9" * 5000)
    lines.write_text(
        "\n".join(f'{{"instruction": "a", "input": {value}, "output": "c"}}' for value in ('"b"', *spoilt)), "utf-8"
    )
    expected = ("lone surrogate '\\ud800'", "NaN", "'input' stands there twice", "levels deep", "5,000 digits")
    for number, (problem, said) in enumerate(
        zip(problems(str(lines)), expected, strict=True), 2
    ):  # fmt: skip
        assert problem.startswith(f"y.jsonl:{number}: ")
        assert said in problem
    task = write(tmp_path / "t.json", {"Definition": ["a"], "Instances": [{"input": "b", "output": []}]})
    assert problems(task) == [
        "t.json:1.Instances[0]: no \"output\" or \"response\"; the fields are 'input', 'instruction', 'output'"
    ]


def test_bad_files_say_what_is_wrong(tmp_path: Path) -> None:
    cases = {
        "[]": "holds no rows",
        '[{"instruction": "a", "text": "b", "output": "c"}]': "no row has the field \"input\" .*'text'.*rename",
        "{nope": "not valid JSON",
        "": r"3\.json is empty",
        " \n": "is empty",
        '{"a": 1,': "not valid JSON",
    }
    for number, (content, message) in enumerate(cases.items()):
        path = tmp_path / f"{number}.json"
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            list(read_examples(str(path)))
    (tmp_path / "latin.json").write_bytes(b'[{"instruction": "\xe9"}]')
    with pytest.raises(ValueError, match=r"latin\.json is not UTF-8 text"):
        list(read_examples(str(tmp_path / "latin.json")))
    with pytest.raises(FileNotFoundError, match="no data at"):
        list(read_examples(str(tmp_path / "nowhere.json")))
    with pytest.raises(ValueError, match="is a directory"):
        list(read_examples(str(tmp_path)))


# --- the mix -----------------------------------------------------------------------------------------------


def test_clean_rows_are_the_corpus_in_another_order(source: str) -> None:
    dataset = build([source], variant="clean", seed=1)
    assert len(dataset.rows) == len(ALPACA)
    assert [row["meta"]["id"] for row in dataset.rows] != [f"alpaca.json[{n}]" for n in range(len(ALPACA))]
    for row in dataset.rows:
        assert text_of(row, "user") == original(row)["instruction"]
        assert text_of(row, "data") == original(row)["input"]
        assert text_of(row, "assistant") == original(row)["output"]
        assert [m["role"] for m in row["messages"]].count("data") == bool(original(row)["input"])
        assert (row["meta"]["condition"], row["meta"]["injections"]) == ("clean", [])
        parse_messages(row["messages"])
        parse_row(row, place="here")  # rolewise train reads it


def test_adversarial_rows_are_half_clean_and_a_quarter_each(source: str) -> None:
    dataset = build([source], seed=1)
    with_input = [row for row in dataset.rows if original(row)["input"]]
    assert Counter(row["meta"]["condition"] for row in with_input) == {"clean": 20, "naive": 10, "completion_other": 10}
    assert {row["meta"]["condition"] for row in dataset.rows if not original(row)["input"]} == {"clean"}
    assert dataset.counts == {
        "read": 60, "bad": 0, "duplicate": 0, "in the test set": 0, "without input": 0, "too short or long": 0,
        "over the maximum": 0, "bad test rows": 0, "clean": 40, "naive": 10, "completion_other": 10, "twin": 0,
        "written": 60,
    }  # fmt: skip
    frames = {
        part
        for seed in range(800)
        for drawn in [foreign_delimiters(Random(seed), "train")]
        for part in (drawn.response, drawn.instruction)
    }
    for row in dataset.rows:
        assert text_of(row, "user") == original(row)["instruction"]
        assert text_of(row, "assistant") == original(row)["output"]
        if row["meta"]["condition"] == "clean":
            assert text_of(row, "data") == original(row)["input"]
            continue
        donor = ALPACA[int(row["meta"]["injected_row"].partition("[")[2][:-1])]
        assert donor["instruction"] != original(row)["instruction"]
        asked = donor["instruction"]
        injected = f"{QUESTION_PREFIX}{asked}" if asked.endswith("?") else f"{asked} {donor['input']}"
        assert row["meta"]["payload"] == {"text": injected, "witness": donor["output"], "kind": "row"}
        start, end = original(row)["input"] + ".", injected
        assert text_of(row, "data").startswith(start)
        assert text_of(row, "data").endswith(end)
        between = text_of(row, "data")[len(start) : -len(end)]
        if row["meta"]["condition"] == "naive":
            assert between == " "
        else:
            response, forged, instruction = between.partition(original(row)["output"])
            assert forged
            assert response in frames
            assert instruction in frames


def test_questions_are_announced(source: str) -> None:
    payloads = [row["meta"]["payload"]["text"] for row in build([source], seed=2).rows if "payload" in row["meta"]]
    questions = [text for text in payloads if text.endswith("?")]
    assert questions
    assert all(text.startswith("Please answer the question that follows. What is ") for text in questions)


def test_an_extra_instruction_is_another_one(tmp_path: Path) -> None:
    rows = [{"instruction": f"do {n % 3}", "input": f"in-{n}", "output": f"out-{n}"} for n in range(60)]
    for row in build([write(tmp_path / "x.json", rows)], twins=True).rows:
        if row["meta"]["condition"] != "clean":
            own = rows[int(row["meta"]["id"].partition("[")[2][:-1])]["instruction"]
            assert not row["meta"]["payload"]["text"].startswith(own)


def test_clean_and_adversarial_have_the_same_rows_in_the_same_order(source: str) -> None:
    for options in ({}, {"max_rows": 30}, {"max_per_source": 25, "only_with_input": True}):
        ids = [
            [row["meta"]["id"] for row in build([source], variant=variant, seed=5, **options).rows]
            for variant in ("clean", "adversarial")
        ]
        twinned = build([source], seed=5, twins=True, **options).rows
        assert ids[0] == ids[1] == [row["meta"]["id"] for row in twinned if row["meta"]["condition"] != "twin"]


def test_a_twin_has_the_same_extra_instruction_in_the_user_turn(source: str) -> None:
    rows = build([source], seed=3, twins=True).rows
    pairs = {row["meta"]["pair"]: row for row in rows if row["meta"]["condition"] in ("naive", "completion_other")}
    twins = [row for row in rows if row["meta"]["condition"] == "twin"]
    assert len(pairs) == len(twins) == 20
    both = 0
    for twin in twins:
        partner = pairs[twin["meta"]["pair"]]
        payload = partner["meta"]["payload"]
        assert twin["meta"]["payload"] == payload
        assert payload["text"] in text_of(partner, "data")
        assert payload["text"] not in text_of(partner, "user")
        assert text_of(twin, "user") == f"{original(twin)['instruction']} {payload['text']}"
        assert text_of(twin, "assistant") == f"{original(twin)['output']}\n\n{payload['witness']}"
        assert text_of(partner, "assistant") == original(partner)["output"]
        assert payload["text"] not in text_of(twin, "data")
        both += text_of(twin, "data") != original(twin)["input"]
    assert 0 < both < 2 * BOTH_SHARE * len(twins)  # some have yet another instruction in their data


def test_positions_and_forged_answers(source: str, tmp_path: Path) -> None:
    ends = build([source], seed=4)
    anywhere = build([source], seed=4, position="random")
    places = [Counter(i["position"] for row in d.rows for i in row["meta"]["injections"]) for d in (ends, anywhere)]
    assert set(places[0]) == {"end"}
    assert set(places[1]) == {"begin", "end"}  # a single sentence has no middle
    two = write(tmp_path / "two.json", [{**row, "input": f"{row['input']}. More."} for row in ALPACA if row["input"]])
    rows = build([two], seed=4, position="random").rows
    assert {i["position"] for row in rows for i in row["meta"]["injections"]} == {"begin", "middle", "end"}
    forged = build([source], seed=4, forged="other").rows
    for row in forged:
        if row["meta"]["condition"] == "completion_other":
            assert original(row)["output"] not in text_of(row, "data")
            assert "out-" in text_of(row, "data") or "sum-" in text_of(row, "data")


# --- what is left out --------------------------------------------------------------------------------------


def test_a_bad_test_row_is_not_passed_over(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It might be one of the training rows."""
    test = write(tmp_path / "test.json", [{**ALPACA[2], "output": ""}, {"instruction": 3, "input": "", "output": ""}])
    said = f'{test}[1]: "instruction" must be text'
    with pytest.raises(ValueError, match=re.escape(said)):
        build([source], drop_test=[test])
    dataset = build([source], drop_test=[test], skip_bad=True)
    assert (dataset.counts["bad test rows"], dataset.counts["bad"], dataset.counts["in the test set"]) == (1, 0, 1)
    assert [one.startswith(said) for one in dataset.problems] == [True]
    command = ["data", "structured-query", "--source", source, "--drop-test", test, "-o", str(tmp_path / "out.jsonl")]
    assert cli.main(command) == 2
    assert said in capsys.readouterr().err
    assert cli.main([*command, "--skip-bad"]) == 0
    told = capsys.readouterr().err
    assert f"skipped {said}" in told
    assert re.search(r"bad test rows +1\n", told)


def test_duplicates_test_rows_and_lengths_are_counted(tmp_path: Path, source: str) -> None:
    again = write(
        tmp_path / "again.json",
        [{**ALPACA[0], "instruction": "count  the LETTERS of word 0.", "output": "other"}, {**ALPACA[1], "output": ""}],
    )
    test = write(tmp_path / "test.json", [{**ALPACA[2], "output": ""}, {**ALPACA[3], "input": "another input"}])
    dataset = build([source, again], drop_test=[test], skip_bad=True, only_with_input=True, max_rows=10)
    assert dataset.counts["read"] == 62
    assert dataset.counts["bad"] == 1
    assert dataset.problems == [f'{again}[1]: "output" is empty']
    assert dataset.counts["duplicate"] == 1
    assert dataset.counts["in the test set"] == 1
    assert dataset.counts["without input"] == 20
    assert dataset.counts["over the maximum"] == 29
    assert dataset.counts["written"] == 10
    everything = build([source, again], drop_test=[test], skip_bad=True)
    ids = {row["meta"]["id"] for row in everything.rows}
    assert "alpaca.json[2]" not in ids
    assert {"alpaca.json[0]", "alpaca.json[3]"} <= ids
    assert "again.json[0]" not in ids
    for seed in range(15):  # nor is it injected into others
        assert "word-2 is" not in json.dumps(build([source, again], drop_test=[test], skip_bad=True, seed=seed).rows)
    kept = build([source, again], skip_bad=True, deduplicate=False)
    assert kept.counts["duplicate"] == 0
    with pytest.raises(ValueError, match=r"again.json\[1\]"):
        build([source, again])


def test_lengths(tmp_path: Path) -> None:
    rows = [{"instruction": f"do {n}", "input": "x" * n, "output": "y"} for n in range(1, 30)]
    path = write(tmp_path / "x.json", rows)
    chosen = build([path], variant="clean", min_data_chars=10, max_data_chars=20).rows
    assert sorted(len(text_of(row, "data")) for row in chosen) == list(range(10, 21))
    sizes = [
        sum(len(m["content"]) for m in row["messages"]) for row in build([path], variant="clean", max_chars=15).rows
    ]
    assert sizes
    assert max(sizes) <= 15
    injected = build([path], max_injected_chars=12).rows
    assert max(len(row["meta"]["payload"]["text"]) for row in injected if "payload" in row["meta"]) <= 13


def test_sources_are_balanced_and_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = write(tmp_path / "a.json", ALPACA)
    two = write(
        tmp_path / "other" / "a.json", [{**row, "instruction": "B: " + row["instruction"]} for row in ALPACA[:10]]
    )
    rows = build([one, two], max_per_source=8).rows
    assert Counter(row["meta"]["id"].partition("[")[0] for row in rows) == {"a.json": 8, "a.json#2": 8}
    assert str(tmp_path) not in json.dumps(rows)


def test_settings_are_checked(source: str, tmp_path: Path) -> None:
    for options, message in (
        ({"variant": "adversial"}, "variant='adversial' must be one of 'clean', 'adversarial'"),
        ({"position": "begin"}, "position='begin' must be one of 'end', 'random'"),
        ({"max_rows": 0}, "max_rows=0 must be at least 1"),
        ({"min_chars": 5, "max_chars": 4}, "min_chars=5 must be between 0 and the maximum"),
        ({"variant": "clean", "twins": True}, "clean rows have nothing to swap"),
        ({"min_chars": 10_000}, r"no row is left \(read: 60, too short or long: 60\)"),
        (
            {"max_injected_chars": 1},
            "only 0 different instructions can .*; name more .* raise the limit max_injected_chars=1",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            build([source], **options)  # type: ignore[arg-type]
    same = write(tmp_path / "same.json", [{"instruction": "do", "input": str(n), "output": "x"} for n in range(9)])
    with pytest.raises(ValueError, match=r"only 1 different instruction can .* or make clean rows"):
        build([same])


# --- the command -------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    return cli.main(["data", "structured-query", *arguments])


def test_the_command_writes_the_rows_and_prints_the_counts(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    assert run("--source", source, "-o", str(out), "--twins", "--seed", "7", "--max-rows", "50") == 0
    said = capsys.readouterr().err
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows == build([source], twins=True, seed=7, max_rows=50).rows
    counts = dict(Counter(row["meta"]["condition"] for row in rows))
    for name, count in counts.items():
        assert any(line.split() == [name, str(count)] for line in said.splitlines())
    assert f"rows in {out}" in said


def test_several_sources_and_tests_may_be_named(source: str, tmp_path: Path) -> None:
    two = write(tmp_path / "b.json", [{**row, "instruction": "B: " + row["instruction"]} for row in ALPACA[:10]])
    three = write(tmp_path / "c.json", [{**row, "instruction": "C: " + row["instruction"]} for row in ALPACA[:10]])
    out = tmp_path / "out.jsonl"
    assert (
        run("--source", source, two, "--source", three, "--drop-test", two, "--variant", "clean", "-o", str(out)) == 0
    )
    assert len(out.read_text(encoding="utf-8").splitlines()) == 70


def test_errors_of_the_command(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    for arguments, message in (
        (["data"], "name a data set: structured-query"),
        (["data", "structured-qery"], "did you mean 'structured-query'"),
        (["data", "structured-query", "-o", str(out)], "no source|exists"),
        (["data", "structured-query", "--source", source, "-o", str(out)], "exists; name another file"),
        (["data", "structured-query", "--source", source, "-o", str(tmp_path)], "is a directory"),
        (["data", "structured-query", "--source", source, "-o", str(out / "x")], "is a file, so .* cannot be under it"),
        (["data", "structured-query", "--source", source, "-o", ""], "-o is empty"),
        (["data", "structured-query", "--source", source, "-o", "-"], "-o - is no file"),
        (["data", "structured-query", "--source", source, "-o", source, "--overwrite"], "is an input"),
        (
            ["data", "structured-query", "--source", "x.json", "--drop-test", source, "-o", source, "--overwrite"],
            "is an input",
        ),
        (["data", "structured-query", "--source", source, "-o", "x", "--variant", "dirty"], "variant"),
    ):
        assert cli.main(arguments) == 2
        assert re.search(message, capsys.readouterr().err), arguments
    assert out.read_text() == "mine"
    assert run("--source", source, "-o", str(out), "--overwrite") == 0
    assert json.loads(Path(source).read_text(encoding="utf-8")) == ALPACA
    assert run("--source", source, "-o", str(tmp_path / "new" / "er" / "x.jsonl")) == 0
    assert (tmp_path / "new" / "er" / "x.jsonl").read_bytes() == out.read_bytes()


def test_the_same_seed_gives_the_same_bytes_in_any_process(source: str, tmp_path: Path) -> None:
    written: list[bytes] = []
    for number, environment in enumerate(
        ({"PYTHONHASHSEED": "1", "LC_ALL": "C"}, {"PYTHONHASHSEED": "77", "LC_ALL": "C.UTF-8"})
    ):
        out = tmp_path / f"{number}.jsonl"
        code = "import sys; from rolewise.cli import main; sys.exit(main())"
        options = ["--source", source, "--twins", "--position", "random", "--forged", "other", "-o", str(out)]
        subprocess.run(
            [sys.executable, "-c", code, "data", "structured-query", *options],
            check=True, env={**os.environ, **environment}, cwd=tmp_path, capture_output=True,
        )  # fmt: skip
        written.append(out.read_bytes())
    assert written[0] == written[1]
    # Should this change, every run that is to be compared must be made anew.
    assert hashlib.sha256(written[0]).hexdigest()[:16] == DIGEST
    other = build([source], seed=1, twins=True, position="random", forged="other").rows
    assert other != [json.loads(line) for line in written[0].decode().splitlines()]


def test_real_corpora(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"no corpora at {SHARED}")
    sources = [
        str(SHARED / "sft" / name)
        for name in ("alpaca_5000.json", "dolly_3k.json", "llms_from_scratch_1100.json", "self_instruct_seed_175.jsonl")
    ]
    sources += sorted(map(str, (SHARED / "sft" / "superni").glob("*.json")))
    test = str(SHARED / "eval" / "alpacaeval805_davinci003.json")
    out = tmp_path / "rows.jsonl"
    assert (
        run(
            "--source",
            *sources,
            "--drop-test",
            test,
            "--twins",
            "--skip-bad",
            "--max-per-source",
            "400",
            "-o",
            str(out),
        )
        == 0
    )
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    counts = Counter(row["meta"]["condition"] for row in rows)
    assert len(rows) - counts["twin"] == 175 + 400 * 7 + 338 + 160
    assert counts["naive"] + counts["completion_other"] == counts["twin"]
    tested = {example.key for example in read_examples(test, answered=False) if isinstance(example, Example)}
    clean = [row for row in rows if row["meta"]["condition"] == "clean"]
    assert not tested & {
        (" ".join(text_of(row, "user").casefold().split()), " ".join(text_of(row, "data").casefold().split()))
        for row in clean
    }
    for row in rows[:500]:
        parse_row(row, place="here")


@pytest.mark.parametrize("arm", ["text", "delimiter-ise"])
def test_the_recipes_take_what_their_headers_make(
    arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands as written, but for the corpus; nothing is trained."""
    if not SHARED.is_dir():
        pytest.skip(f"no corpora at {SHARED}")
    from rolewise.modeling import load_tokenizer
    from rolewise.rendering import prepare_tokenizer
    from rolewise.training.config import load_recipe
    from rolewise.training.prepare import prepare_data

    recipe = Path(__file__).parents[1] / "recipes" / "smollm2" / "structured-query" / f"{arm}.yaml"
    header = re.sub(r"\\\n#\s+", "", recipe.read_text(encoding="utf-8"))
    command = next(line for line in header.splitlines() if "rolewise data " in line).split()[2:]
    shutil.copy(SHARED / "sft" / "alpaca_en_demo.json", tmp_path / "alpaca.json")
    monkeypatch.chdir(tmp_path)
    assert cli.main(command) == 0
    config = load_recipe(recipe)
    tokenizer: Any = load_tokenizer(config.model)
    prepare_tokenizer(tokenizer, config.template)
    prepared = prepare_data(config, tokenizer)
    rows = Path("data/structured-query.jsonl").read_text(encoding="utf-8").count("\n")
    assert prepared.dataset.num_rows + prepared.too_long == rows
    assert prepared.too_long < rows * 0.01
