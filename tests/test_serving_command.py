"""`rolewise serve` as a process: what it says, how it ends; and under load."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.serving_load import markdown, run, save_tiny

from rolewise import cli
from rolewise.commands.serve import ServeConfig, model_names, settings_of, upstreams_of
from rolewise.serving.app import create_app
from rolewise.serving.backend import UnavailableError
from rolewise.serving.server import bound_socket, running
from rolewise.serving.settings import ServerSettings

from .serving_fakes import ScriptedBackend, asked


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def process(model: Path) -> Generator[Any]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> tuple[subprocess.Popen[str], str, str]:
        command = [sys.executable, "-m", "rolewise", "serve", *arguments, "--port", "0"]
        env = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
        one = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        started.append(one)
        assert one.stderr is not None
        said = ""
        for line in one.stderr:
            said += line
            if found := re.search(r"at (http://\S+?)(?: |;)", line):
                return one, found[1], said
        raise AssertionError(said)

    yield start
    for one in started:
        one.kill()
        one.wait()


def test_it_serves_and_ctrl_c_ends_it(process: Any, model: Path) -> None:
    one, url, said = process(str(model))
    assert f"loading {model}" in said
    assert "serving tiny at http://127.0.0.1:" in said
    assert "warning" not in said
    reply = httpx.post(f"{url}/v1/chat/completions", json=asked(max_tokens=5), trust_env=False, timeout=60)
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == "tiny"
    assert httpx.get(url, trust_env=False).status_code == 200, "the playground"
    one.send_signal(signal.SIGINT)
    assert one.wait(30) == 0
    rest = one.stderr.read()
    assert "Traceback" not in rest
    assert "stopping" in rest


def test_keys_from_a_file_and_the_environment(process: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# ours\nfile-key\n")
    one, url, said = process(f"m={model}", "--host", "0.0.0.0", "--api-key-file", str(tmp_path / "keys"),
                             "--no-playground", ROLEWISE_API_KEYS="env-key, other-key")  # fmt: skip
    assert "serving m at" in said
    assert "no API keys" not in said
    for key, status in (("file-key", 200), ("env-key", 200), ("other-key", 200), ("x", 401)):
        reply = httpx.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}, trust_env=False)
        assert reply.status_code == status
    one.send_signal(signal.SIGTERM)
    assert one.wait(30) == 0
    assert "-key" not in said + one.stderr.read()


def test_names() -> None:
    assert model_names(["a/b", "x=runs/y"]) == {"a/b": "a/b", "x": "runs/y"}
    assert model_names([str(Path(__file__).parent)]) == {"tests": str(Path(__file__).parent)}
    for wrong in (["a", "a"], [], ["=x"], ["x="]):
        with pytest.raises(ValueError, match=r"NAME=|name a model|must be MODEL"):
            model_names(wrong)


def test_upstreams() -> None:
    assert upstreams_of(["http://a:1", "http://b:1?x=y"], ["m"]) == {"m": ["http://a:1", "http://b:1?x=y"]}
    assert upstreams_of(["m=http://a:1", "n=http://b:1"], ["m", "n"]) == {"m": ["http://a:1"], "n": ["http://b:1"]}
    with pytest.raises(ValueError, match="NAME=URL"):
        upstreams_of(["http://a:1"], ["m", "n"])


def test_every_limit_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import fields

    monkeypatch.delenv("ROLEWISE_API_KEYS", raising=False)
    plain = settings_of(ServeConfig(models=("m",)))
    assert plain == ServerSettings(), "the same defaults"
    options = {field.name for field in fields(ServeConfig)}
    assert {field.name for field in fields(ServerSettings)} - options == {"api_keys", "allowed_hosts", "render_workers"}
    changed = settings_of(ServeConfig(models=("m",), max_choices=2, read_timeout=3.0, allowed_host=("API.example",)))
    assert (changed.max_choices, changed.read_timeout, changed.allowed_hosts) == (2, 3.0, ("api.example",))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a model"),
        (["m", "--port", "70000"], "--port 70000"),
        (["m", "--max-choices", "0"], "--max-choices 0"),
        (["m", "--max-running", "0"], "--max-running"),
        (["m", "n", "--upstream", "http://a"], "NAME=URL"),
        (["no/such/directory-here"], "no/such/directory-here"),
        (["m", "--api-key", "a b"], "API key 1 of 1"),
        (["m", "--api-key-file", "/dev/null"], "has no key"),
        (["m", "--api-key-file", "/no/file"], "No such file"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    port = [] if "--port" in arguments else ["--port", "0"]
    assert cli.main(["serve", *arguments, *port]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert "a b" not in error, "keys are not shown"


def test_a_port_in_use_is_said_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        assert cli.main(["serve", "no/such/model", "--port", str(one.getsockname()[1])]) == 2
    error = capsys.readouterr().err
    assert "--port 0 takes one that is" in error
    assert "loading" not in error


def test_an_upstream_that_is_not_there_is_one_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bound_socket("127.0.0.1", 0) as one:
        gone = f"http://127.0.0.1:{one.getsockname()[1]}"
    assert cli.main(["serve", str(model), "--upstream", gone, "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert gone in error
    assert "Traceback" not in error


def test_running_in_this_process() -> None:
    settings = ServerSettings()
    with running(create_app({"tiny": ScriptedBackend()}, settings), settings) as url:
        assert httpx.get(f"{url}/health", trust_env=False).json()["status"] == "ok"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health", trust_env=False)


def test_an_engine_that_cannot_start_is_an_error() -> None:
    class Gone(ScriptedBackend):
        async def start(self) -> None:
            raise UnavailableError("http://gpu1:8001 is not there")

    settings = ServerSettings()
    app = create_app({"tiny": Gone()}, settings)
    with pytest.raises(RuntimeError, match="gpu1:8001 is not there"), running(app, settings):
        pass


def test_no_model_and_no_template() -> None:
    from .training_model import tiny_tokenizer

    with pytest.raises(ValueError, match="needs a model"):
        create_app({}, ServerSettings())
    with pytest.raises(ValueError, match="no chat template"):
        create_app({"tiny": ScriptedBackend(tokenizer=tiny_tokenizer(chat=False))}, ServerSettings())


def test_under_load() -> None:
    result = run(12, 3.0, tokens=6, different=12)
    assert result["right"] > 12
    assert result["right"] == result["requests"], json.dumps(result, indent=2)
    assert result["left_behind"] == 0
    assert "| lost | 0 |" in markdown(result)


@pytest.mark.slow
def test_under_load_and_killed_clients(process: Any, model: Path) -> None:
    """Clients that hang up in the middle take nothing from others, and leave nothing behind."""
    _, url, _ = process(str(model), "--max-running", "4")
    port = int(url.rpartition(":")[2])
    body = json.dumps(asked(max_tokens=400, stream=True)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    alone = httpx.post(f"{url}/v1/chat/completions", json=asked(max_tokens=9), trust_env=False, timeout=60).json()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            one.recv(100)
    again = httpx.post(f"{url}/v1/chat/completions", json=asked(max_tokens=9), trust_env=False, timeout=60).json()
    assert again["choices"] == alone["choices"]
    end = time.monotonic() + 20
    while 'answers_running{model="tiny"} 0.0' not in httpx.get(f"{url}/metrics", trust_env=False).text:
        assert time.monotonic() < end
        time.sleep(0.1)
