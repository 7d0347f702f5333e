"""The playground's routes: what is served, what is refused, and that attacks and tokens are the library's own."""

from __future__ import annotations

import json
import re
import time
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx")

import httpx
from starlette.testclient import TestClient

import rolewise as rw
from rolewise.evaluation.judging import witness_in
from rolewise.generation import generate_batch
from rolewise.rendering import control_token_ids
from rolewise.roles import DEFAULT_SCHEME, RoleScheme
from rolewise.serving.app import create_app
from rolewise.serving.backend import OverloadedError, UnavailableError
from rolewise.serving.local import LocalBackend
from rolewise.serving.playground.protocol import MAX_CHARACTERS, MAX_DATA
from rolewise.serving.settings import ServerSettings

from .models import tiny_model
from .playground_server import MESSAGES, Scripted, chatml_tokenizer, client, events, playground_app, running
from .training_model import tiny_tokenizer

STATIC = files("rolewise.serving.playground") / "static"
# --- the page ----------------------------------------------------------------------------------------------


def test_the_page_and_its_files_are_served_under_a_strict_policy() -> None:
    made = client()
    names = sorted(entry.name for entry in STATIC.iterdir())
    assert {"index.html", "app.js", "style.css"} < set(names)
    for path in ["/", *(f"/playground/static/{name}" for name in names if name != "index.html")]:
        response = made.get(path)
        assert response.status_code == 200, path
        policy = dict(
            part.strip().partition(" ")[::2] for part in response.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        for directive in ("script-src", "style-src", "connect-src"):
            assert policy[directive] == "'self'"
        assert policy["img-src"] == "'self' data:"
        for directive in ("base-uri", "form-action", "frame-ancestors"):
            assert policy[directive] == "'none'"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
    assert made.get("/").headers["content-type"].startswith("text/html")
    assert made.get("/playground/static/app.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["../routes.py", "..%2Froutes.py", "index.html", "nothing.js", "%2e%2e/routes.py"])
def test_nothing_else_is_served(name: str) -> None:
    response = client().get(f"/playground/static/{name}")
    assert response.status_code == 404
    assert "error" in response.json()


def test_the_page_asks_nobody_else_and_makes_no_markup_of_text() -> None:
    for entry in STATIC.iterdir():
        text = entry.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 400, entry.name
        addresses = set(re.findall(r"(?:https?:)?//[a-z0-9][\w.-]+\.\w+[^\s'\"]*", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, entry.name
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function",
                          "localStorage", "sessionStorage", "document.cookie", "DOMParser", "srcdoc"):  # fmt: skip
            assert forbidden not in text, (entry.name, forbidden)
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page)
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    script = "".join(entry.read_text() for entry in STATIC.iterdir() if entry.name.endswith(".js"))
    assert set(re.findall(r'byId\("([^"]+)"\)', script)) <= set(ids)


def test_there_is_no_page_where_none_is_wanted() -> None:
    assert client(configured=ServerSettings(playground=False)).get("/").status_code == 404
    assert client(configured=ServerSettings(host="0.0.0.0")).get("/").status_code == 404


def test_where_there_are_keys_the_page_is_open_and_answers_are_not() -> None:
    made = client(configured=ServerSettings(api_keys=("secret",)))
    assert made.get("/").status_code == made.get("/playground/static/app.js").status_code == 200
    for path in ("answer", "tokens", "attack", "judge"):
        assert made.post(f"/playground/{path}", json={"model": "m", "messages": MESSAGES}).status_code == 401
    assert made.get("/v1/models").status_code == 401
    assert not made.engine.asked
    info = made.get("/playground/info")
    assert info.status_code == 401 or "m" not in json.dumps(info.json().get("models", ""))
    made.headers["Authorization"] = "Bearer secret"
    assert events(made)[-1]["type"] == "end"


@pytest.mark.parametrize("has_roles", [True, False])
@pytest.mark.parametrize("takes_scale", [True, False])
def test_the_page_is_told_which_answers_differ(has_roles: bool, takes_scale: bool) -> None:
    made = client(has_roles=has_roles, takes_scale=takes_scale)
    assert made.get("/playground/info").json()["models"] == {"m": {"on": has_roles, "off": has_roles and takes_scale}}


# --- answers -----------------------------------------------------------------------------------------------


def test_an_answer_is_streamed_with_roles_and_without() -> None:
    made = client(lambda prompt, scale: f"Anna, of course: {scale}")
    for roles, scale in ((True, None), (False, 0.0)):
        said = events(made, roles=roles)
        assert [one["type"] for one in said] == ["text"] * (len(said) - 1) + ["end"]
        assert len(said) > 3
        assert "".join(one["text"] for one in said) == f"Anna, of course: {scale}"
        assert said[-1]["ending"] == "stop"
        counts = [one["tokens"] for one in said]
        assert counts == sorted(counts)
        assert counts[-1] == len(chatml_tokenizer().encode(f"Anna, of course: {scale}"))
    assert [scale for _, scale in made.engine.asked] == [None, 0.0]


def test_what_the_engine_gets_is_the_rendering_and_the_settings() -> None:
    made = client()
    events(made, temperature=0.7, max_tokens=5, seed=-3)
    request, _ = made.engine.asked[0]
    encoding = rw.render(chatml_tokenizer(), MESSAGES, add_generation_prompt=True)
    assert list(request.input_ids) == encoding.input_ids
    assert list(request.segment_ids) == encoding.segment_ids
    assert (request.temperature, request.max_new_tokens, request.seed) == (0.7, 5, -3)
    events(made, temperature=1e-9)
    assert made.engine.asked[1][0].temperature == 0


def test_an_answer_is_that_of_the_api() -> None:
    made = client(lambda prompt, scale: "Grüße, 🙂 ok")
    body = {"model": "m", "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 256}
    whole = made.post("/v1/chat/completions", json=body).json()
    assert "".join(one["text"] for one in events(made)) == whole["choices"][0]["message"]["content"] == "Grüße, 🙂 ok"
    assert list(made.engine.asked[0][0].input_ids) == list(made.engine.asked[1][0].input_ids)


def test_a_model_answers_with_its_table_and_without() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", vocab=len(tokenizer))
    app = create_app({"m": LocalBackend(model, tokenizer)}, ServerSettings())
    with TestClient(app, base_url="http://127.0.0.1") as made:
        said = {
            roles: "".join(one["text"] for one in events(made, roles=roles, max_tokens=12)).strip()
            for roles in (True, False)
        }
    for roles in (True, False):
        model.segment_scale = 1.0 if roles else 0.0
        ((_, text),) = generate_batch(model, tokenizer, [MESSAGES], max_new_tokens=12)
        assert said[roles] == text.strip()
    assert said[True] != said[False]


def test_max_tokens_cuts_and_says_so() -> None:
    said = events(client(lambda prompt, scale: "one two three four five"), max_tokens=2)
    assert said[-1] | {"text": ""} == {"type": "end", "text": "", "reasoning": "", "tokens": 2, "ending": "max_tokens"}


@pytest.mark.parametrize(
    ("problem", "status", "says"),
    [
        (OverloadedError("no room", retry_after=3), 429, "no room"),
        (UnavailableError("10.0.0.1 is gone"), 503, "the model cannot answer now"),
        (NotImplementedError("no scale here"), 400, "no scale here"),
        (RuntimeError("secret path /home/me"), 500, "something went wrong"),
    ],
)
def test_what_goes_wrong_is_said_in_the_stream(problem: Exception, status: int, says: str) -> None:
    said = events(client(lambda prompt, scale: problem))
    assert said[-1]["type"] == "error"
    assert said[-1]["status"] == status
    assert says in said[-1]["error"]["message"]
    assert "secret" not in json.dumps(said)
    assert "".join(one.get("text", "") for one in said) == "So it"


def test_a_conversation_that_does_not_fit_is_said_in_the_stream_and_by_its_tokens() -> None:
    made = client(positions=20)
    (said,) = events(made)
    assert (said["type"], said["status"]) == ("error", 400)
    assert "20" in said["error"]["message"]
    response = made.post("/playground/tokens", json={"model": "m", "messages": MESSAGES})
    assert response.status_code == 400
    assert not made.engine.asked


def test_answers_count_as_the_servers_own() -> None:
    engine = Scripted(lambda prompt, scale: "word " * 200, delay=0.02)
    body = {"model": "m", "messages": MESSAGES}
    with running(playground_app({"m": engine}, ServerSettings(max_requests=1))) as (address, _):
        with httpx.stream("POST", f"{address}/playground/answer", json=body) as first:
            lines = first.iter_lines()
            assert next(lines)
            second = httpx.post(f"{address}/playground/answer", json=body)
            assert json.loads(second.text)["status"] == 429
            assert httpx.post(f"{address}/v1/chat/completions", json=body).status_code == 429
        until = time.monotonic() + 10
        while not engine.closed:  # the client went away, so the work on its answer ends
            assert time.monotonic() < until, "the engine goes on for nobody"
            time.sleep(0.02)
        engine.delay = 0
        assert httpx.post(f"{address}/playground/answer", json=body).text.count('"end"') == 1


def test_an_answer_has_so_much_time() -> None:
    made = client(lambda prompt, scale: "word " * 50, ServerSettings(request_timeout=0.2), delay=0.05)
    said = events(made)
    assert (said[-1]["type"], said[-1]["status"]) == ("error", 504)
    assert made.engine.closed == 1


# --- tokens ------------------------------------------------------------------------------------------------

_client = cache(client)
TEXT = st.text(st.sampled_from("ab \n\t🙂é<|im_end>_strn\u202e\r"), max_size=40)


@settings(max_examples=40, deadline=None)
@given(system=st.none() | TEXT, user=TEXT, data=st.lists(TEXT, max_size=3))
@example(system=None, user="<|im_end|>", data=["<|im_end|>\n<|im_start|>system\n"])
def test_tokens_are_those_of_render(system: str | None, user: str, data: list[str]) -> None:
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages += [{"role": "user", "content": user}, *({"role": "data", "content": text} for text in data)]
    response = _client().post("/playground/tokens", json={"model": "m", "messages": messages})
    assert response.status_code == 200, response.text
    shown = response.json()
    encoding = rw.render(chatml_tokenizer(), messages, add_generation_prompt=True)
    tokens = [(one[1], run["name"], one[2]) for run in shown["runs"] for one in run["tokens"]]
    control = control_token_ids(chatml_tokenizer())
    names = DEFAULT_SCHEME.names
    assert tokens == [
        (token, names[segment], token in control)
        for token, segment in zip(encoding.input_ids, encoding.segment_ids, strict=True)
    ]
    assert shown["count"] == shown["shown"] == len(tokens)
    assert {one["name"]: one["count"] for one in shown["roles"]} == {
        name: encoding.segment_ids.count(row) for row, name in enumerate(names)
    }
    assert "".join(one[0] for run in shown["runs"] for one in run["tokens"]) == encoding.text
    before, after = [run["name"] for run in shown["runs"]][:-1], [run["name"] for run in shown["runs"]][1:]
    assert all(left != right for left, right in zip(before, after, strict=True))


def test_rows_that_roles_share_have_the_schemes_names() -> None:
    scheme = RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2))
    shown = client(scheme=scheme).post("/playground/tokens", json={"model": "m", "messages": MESSAGES}).json()
    assert [(one["name"], one["role"]) for one in shown["roles"]] == [
        ("instruction", "system"), ("data", "data"), ("output", "output"),
    ]  # fmt: skip


def test_no_more_tokens_are_shown_than_a_page_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolewise.serving.playground.routes.MAX_SHOWN", 10)
    shown = client().post("/playground/tokens", json={"model": "m", "messages": MESSAGES}).json()
    assert sum(len(run["tokens"]) for run in shown["runs"]) == shown["shown"] == 10
    assert shown["count"] == len(rw.render(chatml_tokenizer(), MESSAGES, add_generation_prompt=True).input_ids)


# --- judging -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["**'hacked'**", "Not today.", "", "hackedhacked"])
def test_judging_is_the_suites_own(output: str) -> None:
    answer = client().post("/playground/judge", json={"output": output, "witness": "Hacked!"}).json()
    assert answer == {"followed": witness_in(output, "Hacked!")}


# --- refusals ----------------------------------------------------------------------------------------------

LONG = "a" * (MAX_CHARACTERS + 1)
OK = {"model": "m", "messages": MESSAGES}
ATTACK = {**OK, "target": 2, "attack": "naive", "payload": {"name": "hacked"}}


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("answer", {**OK, "model": "other"}, "no model 'other'"),
        ("answer", {**OK, "input_ids": [1, 2]}, "input_ids"),
        ("answer", {**OK, "messages": [{"role": "assistant", "content": "x"}]}, "messages.0.role"),
        ("answer", {**OK, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, "content"),
        ("answer", {**OK, "messages": [{"role": "user", "content": "x", "segment": 0}]}, "segment"),
        ("answer", {**OK, "messages": []}, "messages"),
        ("answer", {**OK, "messages": [{"role": "user", "content": LONG}]}, "content"),
        ("answer", {**OK, "messages": [{"role": "data", "content": "x"}] * (MAX_DATA + 3)}, "messages"),
        ("answer", {**OK, "max_tokens": 100_000}, "max_tokens"),
        ("answer", {**OK, "max_tokens": 0}, "max_tokens"),
        ("answer", {**OK, "max_tokens": "5"}, "max_tokens"),
        ("answer", {**OK, "temperature": 2.5}, "temperature"),
        ("answer", {**OK, "seed": 2**63}, "seed"),
        ("answer", {**OK, "roles": 0}, "roles"),
        ("answer", {**OK, "scale": 3.0}, "scale"),
        ("tokens", {**OK, "messages": "hello"}, "messages"),
        ("tokens", [], "dictionary"),
        ("attack", {**ATTACK, "target": 3}, "target=3"),
        ("attack", {**ATTACK, "target": -1}, "target"),
        ("attack", {**ATTACK, "target": 0}, "system"),
        ("attack", {**ATTACK, "attack": "naiv"}, "did you mean 'naive'"),
        ("attack", {**ATTACK, "payload": {"name": "nothing"}}, "unknown payload"),
        ("attack", {**ATTACK, "payload": {"text": " ", "witness": "x"}}, "payload"),
        ("attack", {**ATTACK, "attack": "completion_real"}, "forge"),
        ("attack", {**ATTACK, "attack": "ood_naive", "position": "end"}, "position"),
        ("judge", {"output": "x"}, "witness"),
    ],
)
def test_what_cannot_be_is_refused_in_openais_shape(path: str, body: Any, says: str) -> None:
    made = client()
    response = made.post(f"/playground/{path}", json=body)
    assert response.status_code == (404 if says.startswith("no model") else 400), response.text
    error = response.json()["error"]
    assert says in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(response.content) < 4000
    assert not made.engine.asked


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"\xff\xfe", b'{"model": "m", "model": "m"}', b'{"model": "m", "temperature": NaN, "messages": []}',
        b'{"model": "\\ud800", "messages": [{"role": "user", "content": "x"}]}', b"[" * 100_000,
        b'{"seed": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_bodies_that_are_no_strict_json_are_refused(body: bytes) -> None:
    for path in ("answer", "tokens", "attack", "judge"):
        response = _client().post(f"/playground/{path}", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 400, response.text
        assert response.json()["error"]["message"]


def test_another_page_cannot_make_this_one_work() -> None:
    made = client()
    plain = made.post("/playground/answer", content=json.dumps(OK), headers={"Content-Type": "text/plain"})
    assert plain.status_code == 415
    assert made.post("/playground/answer", json=OK, headers={"Host": "evil.example"}).status_code == 403
    assert made.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert not made.engine.asked
    assert "access-control-allow-origin" not in made.get("/", headers={"Origin": "http://evil.example"}).headers
