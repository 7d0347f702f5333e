"""Many clients at once: is every request answered, with its own answer, and how soon?

python -m benchmarks.serving_load --write                      # 200 clients for 60 s on a tiny model
python -m benchmarks.serving_load --clients 20 --seconds 5     # a short look
python -m benchmarks.serving_load --url http://localhost:8000 --model NAME --clients 16

A server of its own is started as a process (`rolewise serve`). Every prompt's greedy answer is asked for first, alone;
under load each answer must be that one, whether streamed or not. An answer that belongs to another prompt is mixed up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

RESULTS = Path(__file__).parent / "results"
WORDS = ("red", "green", "blue", "cat", "dog", "tree", "copy", "count", "the", "last", "first", "word", "of")
URL = re.compile(r"at (http://\S+?)(?: |;)")


@dataclass
class Outcome:
    """What came of the requests."""

    latencies: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    """Seconds to the first text of a streamed answer."""
    counts: Counter[str] = field(default_factory=Counter)
    """right, mixed_up, different, refused (429), failed (another status), lost (no answer)."""
    tokens: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        done = sorted(self.latencies)
        return {
            **{name: self.counts[name] for name in ("right", "mixed_up", "different", "refused", "failed", "lost")},
            "requests": sum(self.counts.values()),
            "requests_per_second": round(len(done) / self.seconds, 2),
            "tokens_per_second": round(self.tokens / self.seconds, 1),
            "p50_seconds": _quantile(done, 0.5),
            "p99_seconds": _quantile(done, 0.99),
            "slowest_seconds": _quantile(done, 1.0),
            "p50_first_text_seconds": _quantile(sorted(self.first), 0.5),
            "p99_first_text_seconds": _quantile(sorted(self.first), 0.99),
            "examples": self.examples[:5],
        }


def _quantile(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4) if ordered else None


def prompts(count: int, seed: int = 0) -> list[list[dict[str, Any]]]:
    """Different conversations, many of which begin alike, and some of which are alike but for the roles."""
    rng = random.Random(seed)
    found: list[list[dict[str, Any]]] = []
    for number in range(count):
        words = " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 24)))
        system = {"role": "system", "content": rng.choice(("copy", "count the words"))}
        if number % 3 == 2:  # the text of the one before, in another role
            before, text = found[-1][:2]
            found.append([before, {**text, "role": "data"}, {"role": "user", "content": "the last word"}])
            continue
        found.append([system, {"role": "user", "content": words}, {"role": "data", "content": f"{words} {number}"}])
    return found


async def ask(
    client: httpx.AsyncClient, model: str, messages: Any, tokens: int, stream: bool
) -> tuple[int, str, float]:
    """(status, text, seconds to the first text)."""
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": tokens, "stream": stream}
    began = time.perf_counter()
    if not stream:
        reply = await client.post("/v1/chat/completions", json=body)
        text = reply.json()["choices"][0]["message"]["content"] if reply.status_code == 200 else reply.text
        return reply.status_code, text, time.perf_counter() - began
    text, first, done = "", 0.0, False
    async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            return reply.status_code, (await reply.aread()).decode(), 0.0
        async for line in reply.aiter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    return 500, json.dumps(event), first
                text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
                first = first or (time.perf_counter() - began if text else 0.0)
    if not done:
        raise httpx.RemoteProtocolError("the stream ended without [DONE]")
    return 200, text, first


async def load(url: str, model: str, *, clients: int, seconds: float, tokens: int, different: int, key: str) -> Outcome:
    """Ask from so many clients for so long."""
    asked = prompts(different)
    outcome = Outcome()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits, headers=headers, trust_env=False) as client:
        expected = [(await ask(client, model, one, tokens, False))[1] for one in asked]
        began = time.perf_counter()

        async def one_client(number: int) -> None:
            rng = random.Random(number)
            while time.perf_counter() - began < seconds:
                which, stream = rng.randrange(different), rng.random() < 0.5
                start = time.perf_counter()
                try:
                    status, text, first = await ask(client, model, asked[which], tokens, stream)
                except (httpx.HTTPError, ValueError, KeyError) as error:
                    outcome.counts["lost"] += 1
                    outcome.examples.append(f"{type(error).__name__}: {error}")
                    continue
                if status == 429:
                    outcome.counts["refused"] += 1
                    await asyncio.sleep(0.5)
                    continue
                outcome.latencies.append(time.perf_counter() - start)
                kind = "failed" if status != 200 else _kind(text, which, expected)
                outcome.counts[kind] += 1
                outcome.tokens += tokens
                if stream and first:
                    outcome.first.append(first)
                if kind != "right":
                    outcome.examples.append(f"{kind}: {text[:200]!r} for {expected[which][:200]!r}")

        await asyncio.gather(*(one_client(number) for number in range(clients)))
        outcome.seconds = time.perf_counter() - began
    return outcome


def _kind(text: str, which: int, expected: list[str]) -> str:
    if text == expected[which]:
        return "right"
    return "mixed_up" if text in expected else "different"


def save_tiny(directory: Path) -> Path:
    """A segmented model of two layers with a chat template, random, whose answers depend on what it reads."""
    from tests.models import tiny_model
    from tests.training_model import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tiny_model("qwen3", vocab=len(tokenizer)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@contextlib.contextmanager
def server(*arguments: str) -> Generator[str]:
    """The URL of `rolewise serve` with these arguments, in a process of its own."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "rolewise", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := URL.search(line):
                yield found[1]
                break
        else:
            raise RuntimeError("the server did not start:\n" + "".join(said))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(clients: int, seconds: float, *, tokens: int = 16, different: int = 60) -> dict[str, Any]:
    """Load a server of our own, and say what came of it."""
    room = str(2 * clients + 16)
    with (
        tempfile.TemporaryDirectory() as folder,
        server(f"tiny={save_tiny(Path(folder))}", "--max-waiting", room, "--max-requests", room,
               "--max-connections", room) as url,
    ):  # fmt: skip
        outcome = asyncio.run(
            load(url, "tiny", clients=clients, seconds=seconds, tokens=tokens, different=different, key="")
        )
        metrics = httpx.get(f"{url}/metrics", trust_env=False).text
    left = re.findall(r"^rolewise_answers_(?:running|waiting)\S* (\S+)$", metrics, re.MULTILINE)
    return {"clients": clients, "seconds": seconds, "tokens": tokens, "different_prompts": different,
            **outcome.summary(), "left_behind": sum(map(float, left))}  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """The table of a run."""
    rows = [
        ("clients at a time", result["clients"]), ("seconds", result["seconds"]),
        ("tokens an answer", result["tokens"]), ("requests", result["requests"]), ("right", result["right"]),
        ("mixed up with another's", result["mixed_up"]), ("different from the answer alone", result["different"]),
        ("failed", result["failed"]), ("refused (429)", result["refused"]), ("lost", result["lost"]),
        ("requests a second", result["requests_per_second"]), ("tokens a second", result["tokens_per_second"]),
        ("p50, seconds", result["p50_seconds"]), ("p99, seconds", result["p99_seconds"]),
        ("p50 to the first text, seconds", result["p50_first_text_seconds"]),
        ("p99 to the first text, seconds", result["p99_first_text_seconds"]),
    ]  # fmt: skip
    return "\n".join(["| under load | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tokens", type=int, default=16, help="of each answer")
    parser.add_argument("--prompts", type=int, default=60, help="different ones")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--model", default="tiny", help="its name there")
    parser.add_argument("--key", default=os.environ.get("OPENAI_API_KEY", ""), help="an API key")
    parser.add_argument("--write", action="store_true", help="into benchmarks/results/")
    options = parser.parse_args()
    if options.url:
        outcome = asyncio.run(
            load(options.url, options.model, clients=options.clients, seconds=options.seconds, tokens=options.tokens,
                 different=options.prompts, key=options.key)
        )  # fmt: skip
        result = {"clients": options.clients, "seconds": options.seconds, "tokens": options.tokens,
                  "different_prompts": options.prompts, **outcome.summary()}  # fmt: skip
    else:
        result = run(options.clients, options.seconds, tokens=options.tokens, different=options.prompts)
    print(markdown(result))
    print(json.dumps(result, indent=2))
    if options.write:
        from benchmarks.measure import machine

        command = "python -m benchmarks.serving_load --write"
        record = {"command": command, "date": time.strftime("%Y-%m-%d"), "machine": machine(), **result}
        (RESULTS / "serving_load.json").write_text(json.dumps(record, indent=2) + "\n")
        (RESULTS / "serving_load.md").write_text(markdown(result))


if __name__ == "__main__":
    main()
