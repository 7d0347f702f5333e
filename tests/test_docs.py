"""What the documentation says must be true: its code runs, its links lead somewhere, its commands exist."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import rolewise as rw

from .chat import smollm2_tokenizer

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
LOG = DOCS / "log.md"  # a diary: what it quotes was true on its day

FENCE = re.compile(r"^(?P<marks>`{3,})(?P<kind>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=marks)\s*$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S[^\n]* -->\s*$")
LINK = re.compile(r"(?<!\\)\[[^\]\n]*(?:\n[^\]\n]*)?\]\((?P<target>[^)\s]+)\)")


# peft and trl themselves use names that the newest transformers has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated:FutureWarning")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, kind: str) -> Iterator[tuple[str, bool]]:
    """Fenced blocks of one kind, and whether a comment before them says that they can't be run."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        if found["kind"] == kind:
            yield found["body"], NOT_RUN.search(text[: found.start()]) is not None


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


# --- code --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which "smollm2-135m" is a tiny random model with SmolLM2's tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    tokenizer = smollm2_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=2048, tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    cache_directory = tmp_path_factory.mktemp("cache")
    AutoModelForCausalLM.from_config(config).save_pretrained(cache_directory / "smollm2-135m")
    tokenizer.save_pretrained(cache_directory / "smollm2-135m")
    return cache_directory


def run_page(page: Path) -> None:
    """Run the page's Python blocks one after the other, in one namespace."""
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for body, not_run in blocks(page, "python"):
        code = compile(body, name_of(page), "exec")
        if not not_run:
            exec(code, namespace)


PAGES_WITH_CODE = [page for page in PAGES if page != LOG and any(True for _ in blocks(page, "python"))]


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name_of)
def test_python_blocks_run(page: Path, stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("trl", "peft"):
        if re.search(rf"^(?:from|import) {module}\b", page.read_text(encoding="utf-8"), re.MULTILINE):
            pytest.importorskip(module)
    monkeypatch.setenv("ROLEWISE_CACHE", str(stand_in))
    monkeypatch.chdir(tmp_path)
    if page.name == "tutorial.md":  # its last block loads what a command of the page has trained
        model, _ = rw.load("smollm2-135m")
        model.save_pretrained("runs/mine")
    run_page(page)


@pytest.mark.smollm2
@pytest.mark.slow
def test_readme_runs_on_the_real_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smollm2_tokenizer()  # skips where the package is missing
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / "README.md")
    rw.register("llama")
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained("my-model")
    assert loaded.segment_embedding.weight.shape == (4, loaded.config.hidden_size)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_yaml_and_json_blocks_parse(page: Path) -> None:
    import json

    import yaml

    from rolewise.training.config import TrainConfig

    for body, _ in blocks(page, "yaml"):
        assert set(yaml.safe_load(body)) <= set(TrainConfig.__dataclass_fields__), body
    for body, _ in blocks(page, "json"):
        json.loads(body)


# --- links -------------------------------------------------------------------------------------------------


def slug(heading: str) -> str:
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


@cache
def anchors(page: Path) -> frozenset[str]:
    text = prose(page)
    headings = {slug(found) for found in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    return frozenset(headings | set(re.findall(r"^::: (\S+)", text, re.MULTILINE)))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_internal_links_lead_somewhere(page: Path) -> None:
    for target in (found["target"] for found in LINK.finditer(prose(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), f"{name_of(page)} links to {target}"
        if DOCS in page.parents:
            assert DOCS in to.parents, f"{name_of(page)} links to {target}, which is not on the site"
        if anchor:
            assert anchor in anchors(to), f"{name_of(page)} links to {target}; there are {sorted(anchors(to))}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_snippets_and_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r'^--8<-- "([^"]+)"$', text, re.MULTILINE):
        assert (ROOT / path).is_file(), f"{name_of(page)} includes {path}; make bench writes it"
    for path in re.findall(r"(?:recipes|tests|src|benchmarks|docs)/[\w./-]+\.(?:yaml|py|md|svg)", text):
        assert (ROOT / path).exists(), f"{name_of(page)} names {path}"


def nav_pages(entries: Any) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else nav_pages(value)


def test_every_page_is_in_the_navigation_once() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    listed = list(nav_pages(config["project"]["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


# --- commands ----------------------------------------------------------------------------------------------


def commands(page: Path) -> Iterator[list[str]]:
    """The `rolewise …` command lines in shell blocks, in inline code, and in the comments of recipes."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":
        lines = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    else:
        lines = [line for kind in ("bash", "console") for body, _ in blocks(page, kind) for line in body.splitlines()]
        lines += re.findall(r"`(rolewise [^`\n]+)`", FENCE.sub("", text))
    for line in lines:
        found = re.search(r"(?:^|\| |\$ |-m )rolewise(?= )(?P<rest>[^|#]*)", line)
        if found and not re.match(r" (?:→|\W*$)", found["rest"]):
            yield found["rest"].replace("…", "").replace("...", "").split()


@cache
def help_of(*command: str) -> str:
    code = "import sys; from rolewise.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True, check=False,
        env={"PATH": "", "COLUMNS": "200", "HOME": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "recipes").rglob("*.yaml"))], ids=name_of)
def test_commands_exist_with_their_options(page: Path) -> None:
    from rolewise.cli import COMMANDS
    from rolewise.commands.data import DATASETS

    for words in commands(page):
        if words[0] in ("--help", "--version", "--debug", "COMMAND"):
            continue
        assert words[0] in COMMANDS, f"{name_of(page)}: rolewise {' '.join(words)}"
        for option in (word.partition("=")[0] for word in words[1:] if word.startswith("-") and word != "-"):
            pattern = rf"(?<![\w-]){re.escape(option)}(?![\w-])"
            command = words[:2] if words[0] == "data" and words[1] in DATASETS else words[:1]
            assert re.search(pattern, help_of(*command)), (
                f"{name_of(page)}: rolewise {' '.join(command)} has no {option}"
            )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shell = "\n".join(body for body, _ in blocks(page, "bash"))
    for target in [*re.findall(r"^make ([\w-]+)", shell, re.MULTILINE), *re.findall(r"`make ([\w-]+)", prose(page))]:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{name_of(page)}: make {target}"


# --- reference and figures ---------------------------------------------------------------------------------


def documented() -> set[str]:
    return {
        name for page in (DOCS / "reference").glob("*.md") for name in anchors(page) if name.startswith("rolewise.")
    }


def test_the_reference_names_what_exists() -> None:
    for name in documented():
        module, _, attribute = name.rpartition(".")
        found = importlib.import_module(module)
        value = getattr(found, attribute) if hasattr(found, attribute) else importlib.import_module(name)
        assert (value.__doc__ or "").strip(), f"{name} has no docstring"


def test_every_public_name_is_in_the_reference() -> None:
    names = {name.rpartition(".")[2] for name in documented()}
    assert {name for name in rw.__all__ if not name.startswith("__")} <= names


def test_the_figure_is_what_its_script_draws() -> None:
    script = runpy.run_path(str(DOCS / "figures" / "input.py"))
    drawn = script["draw"]()
    assert (DOCS / "figures" / "input.svg").read_text(encoding="utf-8") == drawn
    assert "<title" in drawn
    assert "<desc" in drawn
