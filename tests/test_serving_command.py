"""`rolewise serve` as a process: what it says, how it ends; and under load."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
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
from rolewise.serving.server import bound_socket, others_find_at, running, url_of
from rolewise.serving.settings import ServerSettings

from .serving_fakes import ScriptedBackend, asked, until


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


def streaming(url: str, clients: int = 3) -> tuple[list[str], list[threading.Thread]]:
    """What clients have got so far of answers that take long, and the clients."""
    got: list[str] = []

    def ask() -> None:
        body = asked(max_tokens=4000, n=4, stream=True, logprobs=True)
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream("POST", f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=60) as reply,
        ):
            for text in reply.iter_text():
                got.append(text)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for one in threads:
        one.start()
    until(lambda: len(got) > 10)
    assert '"delta"' in got[-1], got[-1]
    return got, threads


@pytest.mark.parametrize("times", [1, 5])
def test_a_second_ctrl_c_ends_it_at_once_and_without_a_traceback(process: Any, model: Path, times: int) -> None:
    one, url, _ = process(f"tiny={model}")
    got, clients = streaming(url)
    one.send_signal(signal.SIGINT)
    said = one.stderr.readline()  # two signals that come together are one
    assert "Ctrl-C again ends it at once" in said
    for _ in range(times):
        one.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert one.wait(20) == 0, "and not after the 30 s of --shutdown-timeout"
    for client in clients:
        client.join()
    said += one.stderr.read()
    assert "Traceback" not in said
    assert "Error" not in said
    assert "data: [DONE]" not in "".join(got), "it was cut off"


def test_a_request_to_end_lets_streams_end_or_tells_them(process: Any, model: Path) -> None:
    one, url, _ = process(f"tiny={model}", "--shutdown-timeout", "1")
    got, clients = streaming(url)
    one.send_signal(signal.SIGTERM)
    assert one.wait(25) == 0
    for client in clients:
        client.join()
    said = one.stderr.read()
    assert "stopping: what has begun is finished" in said
    assert "Traceback" not in said
    assert "".join(got).count("the server is shutting down") == len(clients), "each stream says why it ends"


def test_two_servers_on_one_port(process: Any, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, url, _ = process(str(model))
    assert cli.main(["serve", str(model), "--port", url.rpartition(":")[2]]) == 2
    error = capsys.readouterr().err
    assert "a server may be running there" in error
    assert "another --port" in error


@pytest.mark.parametrize("host", ["198.51.100.7", "no.such.host.invalid"])
def test_only_a_port_that_is_taken_asks_for_another(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "no/such/model", "--host", host, "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "this machine has no such address" in error
    assert "--port" not in error


@pytest.mark.parametrize(
    ("host", "others"),
    [("0.0.0.0", r"http://\d+\.\d+\.\d+\.\d+:8|"), ("::", r"http://\[[0-9a-f:]+\]:8|"), ("[::]", "http.*|"),
     ("127.0.0.1", None), ("::1", None), ("10.0.0.1", None)],
)  # fmt: skip
def test_where_others_find_it(host: str, others: str | None) -> None:
    found = others_find_at(host, 8)
    assert found is None if others is None else re.fullmatch(others, found or "")
    assert url_of(host, 8).count("[") == (":" in host)


def test_a_server_for_others_says_where_it_is(process: Any, model: Path) -> None:
    one, url, said = process(str(model), "--host", "0.0.0.0", "--log-requests")
    assert "listening on all addresses of this machine" in said
    assert "there are no API keys" in said
    assert "/v1" not in httpx.get(f"{url}/health?key=secret", trust_env=False).text
    one.send_signal(signal.SIGTERM)
    assert one.wait(30) == 0
    rest = one.stderr.read()
    assert re.search(r"^rolewise: \S+Z GET /health 200, \d\.\d{3} s, 0 \+ 0 tokens, req-\w{20}$", rest, re.MULTILINE)
    assert "secret" not in rest


def test_a_folded_model_is_not_said_to_be_bare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from .training_model import save_tiny_model

    config = save_tiny_model(tmp_path / "folded") / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "rolewise_folded": 1}))
    assert cli.main(["serve", str(tmp_path / "folded"), "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "was exported folded" in error
    assert "bare model;" not in error.partition("rolewise: error")[0]


def test_help_is_in_groups_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--help"]) == 0
    said = capsys.readouterr().out
    for group in ("access options", "engine options", "limit options", "timeout options"):
        assert group in said
    assert "rolewise serve smollm2-135m\n" in said
    assert not re.search(r"--(?:access|engine|limit|timeout)[.-]", said), "groups are no part of the options' names"


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
        (["m", "--api-key-file", "/dev/null"], "--api-key-file /dev/null has no key"),
        (["m", "--api-key-file", "/no/file"], "--api-key-file /no/file cannot be read: No such file"),
        (["m", "--api-key-file", "/"], "--api-key-file / cannot be read: Is a directory"),
        (["m", "--api-key-file", sys.executable], "is no text in UTF-8"),
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
    assert "--port 0 takes a free one" in error
    assert "loading" not in error


def test_an_upstream_that_is_not_there_is_one_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bound_socket("127.0.0.1", 0) as one:
        gone = f"http://127.0.0.1:{one.getsockname()[1]}"
    assert cli.main(["serve", str(model), "--upstream", gone, "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert error.count(gone) == 1
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
