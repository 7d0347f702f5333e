"""The client of a folded model: what it sends, what it refuses, and which servers it does not trust."""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import rolewise as rw
from rolewise.export import FoldedClient, export_model
from tests.export_models import MESSAGES, save_model

pytest.importorskip("openai")


class Engine:
    """As much of vLLM's text completions as the client uses, on a stock model of transformers."""

    def __init__(self, directory: Path) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.bodies: list[dict[str, Any]] = []
        self.embeddings_times = 1.0
        self.failures = 0

    @torch.no_grad()
    def complete(self, body: dict[str, Any]) -> tuple[list[int], list[tuple[float, dict[str, float]]]]:
        self.bodies.append(body)
        embedding = self.model.get_input_embeddings()
        if body.get("prompt_embeds"):
            loaded = torch.load(io.BytesIO(base64.b64decode(body["prompt_embeds"], validate=True)), weights_only=True)
            embeds = loaded.float()[None] * self.embeddings_times
        else:
            embeds = embedding(torch.tensor([body["prompt"]]))
        tokens: list[int] = []
        chances: list[tuple[float, dict[str, float]]] = []
        for _ in range(body["max_tokens"]):
            row = self.model(inputs_embeds=embeds).logits[0, -1].log_softmax(-1)
            best = row.topk(5)
            tokens.append(int(best.indices[0]))
            top = {f"token_id:{token}": float(row[token]) for token in best.indices.tolist()}
            chances.append((float(best.values[0]), top))
            embeds = torch.cat([embeds, embedding(torch.tensor([[tokens[-1]]]))], dim=1)
        return tokens, chances


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("folded")
    save_model(root / "model")
    export_model(root / "model", root / "folded", to="folded")
    return root / "folded"


@pytest.fixture
def engine(folded: Path) -> Engine:
    return Engine(folded)


@pytest.fixture
def url(engine: Engine) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

        def do_GET(self) -> None:
            self.answer({"object": "list", "data": [{"id": "served", "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if engine.failures:
                engine.failures -= 1
                self.send_response(503)
                self.end_headers()
                return
            tokens, chances = engine.complete(body)
            if body.get("stream"):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for token in tokens:
                    self.wfile.write(f"data: {json.dumps(self.choice(f'<{token}>'))}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")
                return
            named = [f"token_id:{token}" for token in tokens]
            logprobs = {
                "tokens": named, "token_logprobs": [one for one, _ in chances],
                "top_logprobs": [top for _, top in chances], "text_offset": [0] * len(tokens),
            }  # fmt: skip
            self.answer(self.choice("".join(f"<{token}>" for token in tokens), logprobs))

        def choice(self, text: str, logprobs: Any = None) -> dict[str, Any]:
            choice = {"index": 0, "text": text, "finish_reason": "length", "logprobs": logprobs}
            return {"id": "1", "object": "text_completion", "created": 0, "model": "served", "choices": [choice]}

        def answer(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_answers_are_those_of_the_model_itself(folded: Path, url: str, engine: Engine) -> None:
    client = FoldedClient(folded, url)
    answer = client.complete(MESSAGES, max_tokens=6, temperature=0)
    model, tokenizer = rw.load(folded.parent / "model")
    batch = rw.encode(tokenizer, MESSAGES, add_generation_prompt=True, return_tensors="pt")
    made = model.eval().generate(**batch, max_new_tokens=6, do_sample=False, pad_token_id=0)
    tokens = made[0, batch["input_ids"].shape[1] :].tolist()
    assert answer.choices[0].text == "".join(f"<{token}>" for token in tokens)
    assert engine.bodies[-1]["model"] == "served"
    assert engine.bodies[-1]["prompt"] is None
    assert "".join(part.choices[0].text for part in client.stream(MESSAGES, max_tokens=6)) == answer.choices[0].text
    # The server is asked the known prompt three times, once for all.
    assert len(engine.bodies) == 3 + 2
    client.close()


def test_roles_reach_the_server(folded: Path, url: str, engine: Engine) -> None:
    client = FoldedClient(folded, url, model="mine")
    as_data = [{"role": "user", "content": "copy"}, {"role": "data", "content": "red cat"}]
    as_user = [{"role": "user", "content": [{"type": "text", "text": "copy"}, {"type": "data", "text": "x"}]}]
    for messages in (as_data, as_user):
        client.complete(messages, max_tokens=1)
        sent = torch.load(io.BytesIO(base64.b64decode(engine.bodies[-1]["prompt_embeds"])), weights_only=True)
        encoding = client.prompts.render(messages)
        assert {1, 2} <= set(encoding.segment_ids)
        assert torch.equal(sent, client.prompts.embed(encoding.input_ids, encoding.segment_ids))
    assert engine.bodies[-1]["model"] == "mine"


def test_a_server_with_another_model_is_refused(folded: Path, url: str, engine: Engine) -> None:
    rw.register("llama")
    engine.model = Engine(folded).model
    with torch.no_grad():  # the base model, as it was before OUTPUT's row came in
        row = rw.load_model(folded.parent / "model").segment_embedding.weight[3]
        engine.model.get_input_embeddings().weight.sub_(row)
    with pytest.raises(ValueError, match="serves another model than"):
        FoldedClient(folded, url).complete(MESSAGES, max_tokens=2)
    assert len(engine.bodies) == 2  # none of the user's text was sent


def test_a_server_that_scales_embeddings_is_refused(folded: Path, url: str, engine: Engine) -> None:
    engine.embeddings_times = 1.3
    with pytest.raises(ValueError, match="does not make the same of prompt embeddings"):
        FoldedClient(folded, url).check()


def test_a_server_whose_head_differs_is_refused(folded: Path, url: str, engine: Engine) -> None:
    with torch.no_grad():
        engine.model.lm_head.weight.copy_(engine.model.lm_head.weight.roll(1, 0))
    with pytest.raises(ValueError, match=r"does not answer as .* when it was exported"):
        FoldedClient(folded, url).complete(MESSAGES, max_tokens=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt": "hi"}, "prompt cannot be used here: .*no roles; pass messages"),
        ({"extra_body": {"prompt": "hi"}}, "prompt cannot be used"),
        ({"extra_body": {"prompt_embeds": "aGk="}}, "prompt_embeds cannot be used"),
        ({"suffix": "hi"}, "suffix cannot"),
        ({"echo": True}, "echo cannot"),
        ({"stream": True}, "client.stream"),
        ({"extra_body": {"repetition_penalty": 1.2}}, "does not know the prompt's tokens"),
    ],
)
def test_options_without_roles_are_refused(options: Any, said: str, folded: Path, url: str, engine: Engine) -> None:
    with pytest.raises(ValueError, match=said):
        FoldedClient(folded, url).complete(MESSAGES, **options)
    assert not engine.bodies


def test_messages_are_checked_before_the_server_is_asked(folded: Path, url: str, engine: Engine) -> None:
    with pytest.raises(ValueError, match="role"):
        FoldedClient(folded, url).complete([{"role": "boss", "content": "hi"}])
    assert not engine.bodies


def test_a_failure_on_the_way_is_tried_again_and_told(folded: Path, url: str, engine: Engine) -> None:
    import openai

    client = FoldedClient(folded, url)
    client.check()
    engine.failures = 1
    assert client.complete(MESSAGES, max_tokens=1).choices
    engine.failures = 9
    with pytest.raises(openai.APIStatusError):
        FoldedClient(folded, url, max_retries=0).complete(MESSAGES, max_tokens=1)


def test_where_nothing_answers_the_address_and_what_to_start_are_named(folded: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        client = FoldedClient(folded, nobody, max_retries=0)
        for ask in (
            client.check,
            lambda: client.model,
            lambda: client.complete(MESSAGES, max_tokens=1),
            lambda: list(client.stream(MESSAGES, max_tokens=1)),
        ):
            with pytest.raises(ConnectionError, match=f"nothing answers at {nobody}/.*vllm serve .*folded --enable-"):
                ask()
