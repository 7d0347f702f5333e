"""Real vLLM servers, and what their answers are compared with."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig, Qwen2Config, SmolLM3Config

import rolewise as rw
from rolewise.roles import DEFAULT_SCHEME, RoleScheme
from rolewise.serving.packed import PackedIds
from tests.models import plain_model
from tests.training_model import tiny_tokenizer

HIDDEN = 128
"""vLLM's attention on CPUs has no heads of fewer than 32."""
PATIENCE = 1200


EXTRA = {"qwen2": Qwen2Config, "gemma2": Gemma2Config, "granite": GraniteConfig, "smollm3": SmolLM3Config}
"""Families that tests.models has not."""


def plain(family: str, vocab: int) -> Any:
    """A random model without roles."""
    if family not in EXTRA:
        return plain_model(family, vocab=vocab, hidden=HIDDEN)
    torch.manual_seed(0)
    config: Any = EXTRA[family](
        vocab_size=vocab, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=HIDDEN // 4, max_position_embeddings=512,
        # vLLM heeds this field wherever it stands, Transformers only where the family has it.
        **({"sliding_window": 16} if family == "gemma2" else {}),
        query_pre_attn_scalar=HIDDEN // 4, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5,
        pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4.0)  # as tests.models does, so that answers depend on what is read
    return model


def save_tiny(
    family: str, directory: Path, *, scheme: RoleScheme = DEFAULT_SCHEME, scale: float = 1.0, untied: bool = False
) -> Path:
    """A tiny segmented model with a table as large as its embeddings, in fp32, and its tokenizer."""
    tokenizer = tiny_tokenizer()
    base = plain(family, len(tokenizer) + 7)  # more rows than the tokenizer fills
    if untied:
        base.config.tie_word_embeddings = False
        base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().flip(0).clone())
    model = rw.attach(base, init_ratio=1.0, scheme=scheme)
    model.segment_scale = scale
    model.generation_config.eos_token_id = tokenizer.eos_token_id  # pyright: ignore
    model.rolewise_tokenizer = tokenizer
    model.save_pretrained(directory)
    return directory


@dataclass
class Server:
    """A vLLM server under way."""

    url: str
    model: str
    process: subprocess.Popen[bytes]
    log: Path

    def post(self, path: str, **body: Any) -> httpx.Response:
        """A request, whatever its answer."""
        return httpx.post(f"{self.url}{path}", json={"model": self.model, **body}, timeout=PATIENCE)

    def complete(self, prompt: Sequence[int] | Sequence[Sequence[int]], **body: Any) -> list[dict[str, Any]]:
        """The choices for packed prompts, greedy unless told otherwise."""
        options = {"temperature": 0, "max_tokens": 12, "return_token_ids": True, **body}
        response = self.post("/v1/completions", prompt=prompt, **options)
        assert response.status_code == 200, response.text
        return response.json()["choices"]

    def kill(self) -> None:
        """kill -9, with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def launch(
    model: Path, log: Path, *options: str, port: int | None = None, compiled: bool = False, **environment: str
) -> Server:
    """Start a server, and do not wait for it."""
    port = port or free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port),
        "--host", "127.0.0.1", "--served-model-name", "tested", "--dtype", "float32", "--max-num-seqs", "16",
        "--enable-scale-out", *(() if compiled else ("--enforce-eager",)), *options,
    ]  # fmt: skip
    environment = {
        **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
        # Left to itself, vLLM binds each server to the same core.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", **environment,
    }  # fmt: skip
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True, cwd=log.parent
        )
    return Server(f"http://127.0.0.1:{port}", "tested", process, log)


def wait(server: Server) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise RuntimeError(f"the server ended: {server.log.read_text()[-4000:]}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.5)
    raise RuntimeError(f"the server did not start: {server.log.read_text()[-4000:]}")


@contextlib.contextmanager
def running(
    model: Path, log: Path, *options: str, port: int | None = None, compiled: bool = False, **environment: str
) -> Iterator[Server]:
    """A server that answers, for as long as the block runs."""
    server = launch(model, log, *options, port=port, compiled=compiled, **environment)
    try:
        wait(server)
        yield server
    finally:
        server.kill()


@dataclass
class Expected:
    """What Transformers answers: tokens, and how sure each was."""

    tokens: list[int]
    logprobs: torch.Tensor
    """[tokens, vocabulary]"""

    def margin(self, place: int) -> float:
        """How far the likeliest token at a place is ahead of the next."""
        best = self.logprobs[place].topk(2).values
        return float(best[0] - best[1])


class Reference:
    """The same model in Transformers, from the same directory."""

    def __init__(self, directory: Path) -> None:
        model, self.tokenizer = rw.load(str(directory), dtype=torch.float32)
        self.model: Any = model.eval()
        self.packed = PackedIds(model.config.vocab_size, model.role_scheme)

    def encode(self, messages: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
        """A conversation as tokens and segments."""
        encoding = rw.encode(self.tokenizer, messages, add_generation_prompt=True)
        return list(encoding["input_ids"]), list(encoding["segment_ids"])

    def pack(self, messages: list[dict[str, Any]]) -> list[int]:
        """A conversation as packed ids."""
        return self.packed.pack(*self.encode(messages))

    @torch.no_grad()
    def answer(self, packed: Sequence[int], *, tokens: int = 12, **options: Any) -> Expected:
        """The greedy answer to a packed prompt."""
        ids, segments = (torch.tensor([part]) for part in self.packed.unpack(packed))
        made = self.model.generate(
            input_ids=ids, segment_ids=segments, attention_mask=torch.ones_like(ids), do_sample=False,
            max_new_tokens=tokens, output_logits=True, return_dict_in_generate=True, **options,
        )  # fmt: skip
        logprobs = torch.stack([step[0] for step in made.logits]).float().log_softmax(-1)
        return Expected(made.sequences[0, ids.shape[1] :].tolist(), logprobs)


class Ties:
    """Compares greedy answers, and counts where two tokens were too near for float arithmetic to tell.

    vLLM and Transformers add in another order, so that a difference below NEAR decides nothing. What follows such a
    place is another text and is not compared. Any difference elsewhere fails.
    """

    NEAR = 1e-3

    def __init__(self) -> None:
        self.compared, self.tied = 0, 0

    def compare(self, got: list[int], expected: Expected) -> None:
        """See that an answer is the expected one, up to a tie."""
        self.compared += 1
        if got == expected.tokens:
            return
        pairs = zip(got, expected.tokens, strict=False)
        place = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
        assert place is not None, f"{got} is shorter or longer than {expected.tokens}"
        difference = float(expected.logprobs[place].max() - expected.logprobs[place, got[place]])
        assert difference < self.NEAR, (
            f"token {place} is {got[place]} and should be {expected.tokens[place]}, by {difference:.4f}"
        )
        self.tied += 1

    def check(self) -> None:
        """Ties must be rare, or the comparison would show nothing."""
        assert self.tied <= 0.04 * self.compared, f"{self.tied} ties of {self.compared}"
