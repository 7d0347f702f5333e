"""What serving costs and gains: interleaved in one process, ratios with intervals.

python -m benchmarks.serving --write              # everything, about 10 minutes on 2 free cores
python -m benchmarks.serving --only batching      # one part: batching, roles, first-token, front
python -m benchmarks.serving --model tiny         # one model
python -m benchmarks.serving --vllm FILE --write  # take in what benchmarks.serving_vllm measured

Chats have 128 tokens and get 64. Each measurement has prompts of its own, so that nothing is found in a cache.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import gc
import itertools
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import rolewise as rw
from benchmarks.measure import bootstrap_median, machine
from rolewise.engine.continuous import ContinuousEngine
from rolewise.engine.decoding import Request
from rolewise.modeling.loading import resolve_source
from rolewise.roles import DEFAULT_SCHEME
from rolewise.serving.backend import Delta
from rolewise.serving.local import LocalBackend

RESULTS = Path(__file__).parent / "results"
CHATS, PROMPT, NEW = 16, 128, 64
PAIRS = {"batching": {"smollm2-135m": 5, "tiny": 10}, "roles": {"smollm2-135m": 8, "tiny": 20},
         "first-token": {"smollm2-135m": 20, "tiny": 40}}  # fmt: skip
_ALONE = 3
"""Chats of which the time one after the other is taken; all sixteen would take minutes."""
_FRONT_REQUESTS = 200
_SERVERS = 5
"""Server processes, each with a bare model loaded anew: how fast the same weights are read depends on where they lie in
memory, by a fifth."""
_seeds = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Two ways to do one work, compared pair by pair."""

    work: str
    model: str
    what: str
    """Of what the ratio is."""
    ratio: float
    low: float
    """95 % bootstrap interval of the median, lower end."""
    high: float
    n: int
    ours: float
    other: float
    unit: str
    target: str
    met: bool | None
    """None where it is shown only."""


def models(name: str) -> tuple[Any, Any, Any]:
    """Ours, the bare model with the same weights, and the tokenizer."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    if name == "tiny":
        from tests.training_model import tiny_tokenizer

        tokenizer = tiny_tokenizer()
        torch.manual_seed(0)
        bare = AutoModelForCausalLM.from_config(
            LlamaConfig(vocab_size=1024, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, eos_token_id=None)
        )  # fmt: skip
        return rw.attach(copy.deepcopy(bare).eval()), bare.eval(), tokenizer
    ours, tokenizer = rw.load(name)
    ours.segment_scale = 1.0  # the table is random, but its work is done
    bare = AutoModelForCausalLM.from_pretrained(str(resolve_source(name)), dtype=ours.dtype)
    return ours.eval(), bare.eval(), tokenizer


class Roleless:
    """The bare model where the engine expects one with roles."""

    segment_scale, num_segments, role_scheme = 0.0, 4, DEFAULT_SCHEME

    def __init__(self, bare: Any) -> None:
        self._bare = bare

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bare, name)

    def __call__(self, segment_ids: torch.Tensor, **options: Any) -> Any:
        return self._bare(**options)


def request(model: Any, new: int = NEW) -> Request:
    rng = random.Random(next(_seeds))
    ids = [rng.randrange(5, 200 if model.config.vocab_size < 2000 else 40_000) for _ in range(PROMPT)]
    return Request(input_ids=ids, segment_ids=[0] * 40 + [1] * 40 + [2] * 44 + [3] * 4, max_new_tokens=new)


def engine(model: Any, tokenizer: Any, **options: Any) -> ContinuousEngine:
    made = ContinuousEngine(model, tokenizer, cache_tokens=0, **options)
    made.reader.stops = []  # every answer has its full length
    return made


def rate(engine: ContinuousEngine, chats: int) -> float:
    """Written tokens a second of so many chats that come together."""
    rows = [engine.row(request(engine.model)) for _ in range(chats)]
    for row in rows:
        engine.submit(row)
    start = time.perf_counter()
    while engine.busy:
        for _ in engine.step():
            pass
    seconds = time.perf_counter() - start
    written = sum(len(row.growing.tokens) for row in rows)
    assert written == chats * NEW, f"{written} tokens for {chats} chats of {NEW}"
    return written / seconds


def pairs(ours: Callable[[], float], other: Callable[[], float], count: int) -> list[tuple[float, float]]:
    """Both in turn, who goes first alternating; the first pair is thrown away."""
    found: list[tuple[float, float]] = []
    for turn in range(count + 1):
        gc.collect()
        if turn % 2:
            theirs = other()
            mine = ours()
        else:
            mine = ours()
            theirs = other()
        found.append((mine, theirs))
    return found[1:]


def finding(found: list[tuple[float, float]], met: Callable[[float], bool] | None, **what: Any) -> Finding:
    ratios = [ours / other for ours, other in found]
    low, high = bootstrap_median(ratios)
    ratio = statistics.median(ratios)
    return Finding(
        ratio=ratio, low=low, high=high, n=len(found), ours=statistics.median(ours for ours, _ in found),
        other=statistics.median(other for _, other in found), met=None if met is None else met(ratio), **what,
    )  # fmt: skip


def batching(name: str) -> Iterator[Finding]:
    ours, _, tokenizer = models(name)
    together, alone = engine(ours, tokenizer), engine(ours, tokenizer, max_running=1)
    count = PAIRS["batching"][name]
    yield finding(
        pairs(lambda: rate(together, CHATS), lambda: rate(alone, _ALONE), count), lambda ratio: ratio >= 3.5,
        work=f"{CHATS} chats of {PROMPT} + {NEW} tokens together", model=name,
        what="throughput, to one request at a time", unit="tokens/s", target="at least 3.5",
    )  # fmt: skip


def roles(name: str) -> Iterator[Finding]:
    ours, bare, tokenizer = models(name)
    with_roles, without = engine(ours, tokenizer), engine(Roleless(bare), tokenizer)
    yield finding(
        pairs(lambda: rate(with_roles, CHATS), lambda: rate(without, CHATS), PAIRS["roles"][name]),
        lambda ratio: ratio >= 0.95,
        work=f"{CHATS} chats of {PROMPT} + {NEW} tokens together", model=name,
        what="throughput, to the bare model in the same engine", unit="tokens/s", target="at least 0.95",
    )  # fmt: skip


def first_token(name: str) -> Iterator[Finding]:
    ours, bare, tokenizer = models(name)
    count = PAIRS["first-token"][name]
    with running_engine(ours, tokenizer) as (backend, loop):

        async def first(asked: Request) -> float:
            start = time.perf_counter()
            stream = backend.stream(asked)
            delta = await anext(stream)
            seconds = time.perf_counter() - start
            assert delta.token_ids
            await stream.aclose()
            return seconds

        def through_engine() -> float:
            return asyncio.run_coroutine_threadsafe(first(request(ours)), loop).result()

        limits = {"target": "at most 1.1, and 5 ms", "unit": "s", "model": name,
                  "what": "time to the first token, to a bare `generate` of one"}  # fmt: skip
        found = pairs(through_engine, lambda: generate_one(bare, request(ours).input_ids), count)
        yield finding(found, _first_met(found), work=f"a prompt of {PROMPT} tokens, engine", **limits)
    found = []
    for _ in range(_SERVERS):
        with served_apart(name) as url:
            found += through_http(url, models(name)[1], tokenizer, count // _SERVERS)
    yield finding(found, _first_met(found), work=f"a prompt of about {PROMPT} tokens, HTTP", **limits)


def _first_met(found: list[tuple[float, float]]) -> Callable[[float], bool]:
    excess = statistics.median(ours - 1.1 * bare for ours, bare in found)
    return lambda _: excess <= 0.005


def generate_one(bare: Any, ids: Any) -> float:
    given = torch.tensor([list(ids)])
    start = time.perf_counter()
    with torch.inference_mode():
        bare.generate(input_ids=given, attention_mask=torch.ones_like(given), max_new_tokens=1, do_sample=False,
                      pad_token_id=0)  # fmt: skip
    return time.perf_counter() - start


def through_http(url: str, bare: Any, tokenizer: Any, count: int) -> Iterator[tuple[float, float]]:
    """A streamed answer of one token, until that has come, against a bare `generate` of the same ids and one token.

    Of one, because white space is held back for as long as a thought may begin after it, and a random model writes it.
    """
    import httpx

    words = ("red", "green", "blue", "cat", "dog", "tree", "copy", "count", "the", "last", "first", "word", "of")
    rng = random.Random("http")

    def messages() -> list[dict[str, str]]:
        said: list[str] = []
        while True:
            said.append(rng.choice(words))
            given = [{"role": "system", "content": "copy"}, {"role": "user", "content": " ".join(said)}]
            if len(rw.encode(tokenizer, given, add_generation_prompt=True)["input_ids"]) >= PROMPT:
                return given

    with httpx.Client(trust_env=False, timeout=60) as client:

        def streamed(given: list[dict[str, str]]) -> float:
            body = {"model": "m", "messages": given, "stream": True, "temperature": 0, "max_completion_tokens": 1}
            start = time.perf_counter()
            with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
                assert response.status_code == 200, response.read()
                for line in response.iter_lines():
                    event = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {"choices": []}
                    if any(one["delta"].get("content") or one["finish_reason"] for one in event["choices"]):
                        return time.perf_counter() - start
            raise AssertionError("the answer ended without an end")

        for turn in range(count + 1):
            given = messages()
            ids = rw.encode(tokenizer, given, add_generation_prompt=True)["input_ids"]
            if turn % 2:
                theirs, mine = generate_one(bare, ids), streamed(given)
            else:
                mine, theirs = streamed(given), generate_one(bare, ids)
            if turn:
                yield mine, theirs


class NullBackend:
    """Writes at once, to see what the front takes itself."""

    scheme, positions = DEFAULT_SCHEME, 8192

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._ids = tokenizer.encode("the cat ", add_special_tokens=False)

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def healthy(self) -> bool:
        return True

    async def stream(self, request: Request, *, scale: float | None = None) -> AsyncIterator[Delta]:
        ids = (self._ids * NEW)[:NEW]
        for at in range(0, NEW, 8):  # as an upstream's events come
            yield Delta(token_ids=ids[at : at + 8], ending="max_tokens" if at + 8 >= NEW else None)


def front(name: str) -> Iterator[Finding]:
    """A request of about 128 tokens with an answer of 64, over a connection that stays open, against GET /health."""
    import httpx

    tokenizer = models(name)[2] if name == "tiny" else rw.modeling.load_tokenizer(name)
    with http(NullBackend(tokenizer)) as url, httpx.Client(trust_env=False, timeout=60) as client:
        said = " ".join(["copy the last word of the first tree"] * 13)
        body = {"model": "m", "messages": [{"role": "user", "content": said}], "max_completion_tokens": NEW}

        def answered() -> float:
            start = time.perf_counter()
            response = client.post(f"{url}/v1/chat/completions", json=body)
            assert response.status_code == 200, response.text
            return 1000 * (time.perf_counter() - start)

        def looked_at() -> float:
            start = time.perf_counter()
            client.get(f"{url}/health")
            return 1000 * (time.perf_counter() - start)

        found = pairs(answered, looked_at, _FRONT_REQUESTS)
        taken = statistics.median(ours for ours, _ in found)
        yield finding(
            found, lambda _: taken < 5, work=f"the front alone, {NEW} tokens in 8 pieces", model=name,
            what="time of a request, to GET /health", unit="ms", target="below 5 ms",
        )  # fmt: skip


def http(backend: Any) -> contextlib.AbstractContextManager[str]:
    """A real server on a free port; its URL."""
    from rolewise.serving import ServerSettings, create_app, running

    settings = ServerSettings(playground=False)
    return running(create_app({"m": backend}, settings), settings)


@contextlib.contextmanager
def running_engine(model: Any, tokenizer: Any) -> Generator[tuple[LocalBackend, asyncio.AbstractEventLoop]]:
    """A backend in an event loop of its own thread."""
    backend = LocalBackend(model, tokenizer, cache_tokens=0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(backend.start(), loop).result()
    try:
        yield backend, loop
    finally:
        asyncio.run_coroutine_threadsafe(backend.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextlib.contextmanager
def served_apart(name: str) -> Generator[str]:
    """The model behind `rolewise serve`; its URL."""
    with tempfile.TemporaryDirectory() as folder:
        ours, _, tokenizer = models(name)
        ours.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        command = [sys.executable, "-m", "rolewise", "serve", f"m={folder}", "--port", "0", "--cache-tokens", "0"]
        with subprocess.Popen([*command, "--dtype", "float32"], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said = ""
            try:
                while (found := re.search(r"serving m at (\S+?:\d+)", said)) is None:
                    if not (line := process.stderr.readline()):
                        raise RuntimeError(f"the server did not start: {said}")
                    said += line
                threading.Thread(target=process.stderr.read, daemon=True).start()  # lest a full pipe stop it
                yield found[1]
            finally:
                process.terminate()


PARTS = {"batching": batching, "roles": roles, "first-token": first_token, "front": front}


def write(findings: list[Finding]) -> None:
    """Keep these with what was found before, and make the table of all."""
    keep([asdict(one) | {"date": time.strftime("%Y-%m-%d"), "machine": machine()} for one in findings])


def keep(new: list[dict[str, Any]]) -> None:
    """As `write`, for rows that know when and where they were measured."""
    file = RESULTS / "serving.json"
    kept = json.loads(file.read_text()) if file.exists() else []
    keys = {_key(one) for one in new}
    rows = [one for one in kept if _key(one) not in keys] + new
    file.write_text(json.dumps(rows, indent=2) + "\n")
    (RESULTS / "serving.md").write_text(table(rows))


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["work"], row["model"], row["what"]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| work | model | ratio of | ratio (95 % interval) | target | met | n | ours | other |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        met = "shown only" if row["met"] is None else "yes" if row["met"] else "**no**"
        lines.append(
            f"| {row['work']} | {row['model']} | {row['what']} | {row['ratio']:.3f} ({row['low']:.3f} to "
            f"{row['high']:.3f}) | {row['target']} | {met} | {row['n']} | {row['ours']:.4g} {row['unit']} "
            f"| {row['other']:.4g} {row['unit']} |"
        )
    settings = dict.fromkeys(
        f"{row['date']}; " + ", ".join(f"{key} {value}" for key, value in row["machine"].items())
        for row in rows
        if row["machine"]
    )
    lines += [
        "",
        "Both are run in turn in one process, who goes first alternating. The ratio is the median over pairs, its "
        "interval a bootstrap over pairs. `python -m benchmarks.serving --write`",
        "",
        *(f"- {one}" for one in settings),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(PARTS))
    parser.add_argument("--model", choices=("smollm2-135m", "tiny"))
    parser.add_argument("--vllm", type=Path, help="a JSON list of rows of the same form, to take in")
    parser.add_argument("--write", action="store_true", help="write results/serving.json and .md, part by part")
    given = parser.parse_args()
    if given.vllm is not None:
        rows = json.loads(given.vllm.read_text())
        print(table(rows))
        if given.write:
            keep(rows)
        return
    for name in (given.model,) if given.model else ("tiny", "smollm2-135m"):
        for part in (given.only,) if given.only else PARTS:
            for one in PARTS[part](name):
                print(
                    f"{name}, {one.work}: {one.what} {one.ratio:.3f} ({one.low:.3f} to {one.high:.3f}), "
                    f"{one.ours:.4g} against {one.other:.4g} {one.unit}; {one.target}, met: {one.met}",
                    flush=True,
                )
                if given.write:
                    write([one])


if __name__ == "__main__":
    main()
