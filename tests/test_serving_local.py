"""The engine behind the front: streams fed from its thread, limits, ends of all kinds."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch

from rolewise.engine.decoding import PromptTooLongError, Request
from rolewise.modeling import SegmentedCausalLM
from rolewise.serving.backend import Delta, OverloadedError, UnavailableError
from rolewise.serving.local import LocalBackend
from tests.engine_rows import alone, asked, prompt_of
from tests.models import tiny_model
from tests.training_model import save_tiny_model

LONG = 400


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(work(), 60)

    return asyncio.run(bounded())


@contextlib.asynccontextmanager
async def started(model: SegmentedCausalLM, tokenizer: Any, **options: Any) -> AsyncGenerator[LocalBackend]:
    backend = LocalBackend(model, tokenizer, **options)
    backend._engine.reader.stops = []  # so that answers are as long as they are asked for
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()
    assert not [one for one in threading.enumerate() if one.name == "rolewise-engine"]


async def all_of(backend: LocalBackend, request: Request, scale: float | None = None) -> tuple[list[int], list[Delta]]:
    deltas = [delta async for delta in backend.stream(request, scale=scale)]
    assert [delta.ending is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert not any(delta.cached_tokens for delta in deltas[1:])
    return [token for delta in deltas for token in delta.token_ids], deltas


def test_many_at_a_time_each_get_their_own_answer(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    rng = random.Random(0)
    prompts = [prompt_of(rng, rng.randrange(1, 60)) for _ in range(20)]

    async def work() -> None:
        async with started(llama, tokenizer, max_running=6) as backend:
            assert await backend.healthy()
            assert (backend.tokenizer, backend.positions) == (tokenizer, 512)
            assert backend.scheme == llama.role_scheme
            got = await asyncio.gather(*(all_of(backend, asked(prompt, logprobs=0)) for prompt in prompts))
            again, deltas = await all_of(backend, asked(prompts[0], max_new_tokens=3, stop=("e", "a")))
        for (tokens, parts), prompt in zip(got, prompts, strict=True):
            assert tokens == alone(llama, prompt, [])
            assert [token for part in parts for token, _, _ in part.logprobs or []] == tokens
        assert again == got[0][0][:3], "stop strings are the front's business"
        assert deltas[0].cached_tokens == len(prompts[0][0]) // 32 * 32
        assert not backend._streams

    run(work)


def test_a_scale_of_ones_own(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    prompt = prompt_of(random.Random(1), 40)

    async def work() -> None:
        async with started(llama, tokenizer) as backend:
            (own, _), (bare, _), (one, _) = await asyncio.gather(
                *(all_of(backend, asked(prompt), scale) for scale in (None, 0.0, 1.0))
            )
        assert own == one == alone(llama, prompt, [])
        assert bare != own

    run(work)
    assert llama.segment_scale == 1.0


def test_too_many_are_turned_away_and_may_come_again(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    prompt = prompt_of(random.Random(2), 10)

    async def work() -> None:
        async with started(llama, tokenizer, max_running=1, max_waiting=2) as backend:
            streams = [backend.stream(asked(prompt, max_new_tokens=LONG)) for _ in range(3)]
            first = [asyncio.ensure_future(anext(stream)) for stream in streams]
            await first[0]
            with pytest.raises(OverloadedError, match="3 requests are running or waiting"):
                await anext(backend.stream(asked(prompt)))
            for task in first[1:]:
                task.cancel()
            await asyncio.gather(*first[1:], return_exceptions=True)
            await streams[0].aclose()
            assert (await all_of(backend, asked(prompt)))[0] == alone(llama, prompt, [])

    run(work)


def test_whoever_leaves_frees_the_engine(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    prompt = prompt_of(random.Random(3), 10)

    async def work() -> None:
        async with started(llama, tokenizer, max_running=1) as backend:
            stream = backend.stream(asked(prompt, max_new_tokens=LONG))
            await anext(stream)
            await stream.aclose()
            before = backend._engine.reader.computed_tokens
            await all_of(backend, asked(prompt_of(random.Random(4), 5), max_new_tokens=2))
            assert backend._engine.reader.computed_tokens - before < 50, "the first answer went on"

    run(work)


def test_what_does_not_fit_is_refused(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    async def work() -> None:
        async with started(llama, tokenizer) as backend:
            with pytest.raises(PromptTooLongError):
                await anext(backend.stream(asked(([5] * 512, [0] * 512))))
            with pytest.raises(ValueError, match=r"segment_ids\[0\] is 4"):
                await anext(backend.stream(asked(([5], [4]))))
            assert not backend._streams

    run(work)
    assert LocalBackend(llama, tokenizer, kv_tokens=100).positions == 100
    with pytest.raises(ValueError, match="max_waiting=-1"):
        LocalBackend(llama, tokenizer, max_waiting=-1)


def test_closing_ends_what_is_under_way_at_once(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    prompt = prompt_of(random.Random(5), 10)

    async def work() -> None:
        backend = LocalBackend(llama, tokenizer, max_running=1)
        with pytest.raises(UnavailableError, match="not started"):
            await anext(backend.stream(asked(prompt)))
        assert not await backend.healthy()
        async with started(llama, tokenizer, max_running=1) as backend:
            running = asyncio.ensure_future(all_of(backend, asked(prompt, max_new_tokens=LONG)))
            waiting = asyncio.ensure_future(all_of(backend, asked(prompt, max_new_tokens=LONG)))
            while not backend._engine.running:
                await asyncio.sleep(0.01)
            await backend.close()
            for one in (running, waiting):
                with pytest.raises(UnavailableError, match="closed"):
                    await one
            assert not await backend.healthy()
            with pytest.raises(UnavailableError, match="closed"):
                await anext(backend.stream(asked(prompt)))
            with pytest.raises(UnavailableError, match="closed"):
                await backend.start()

    run(work)


def test_a_crash_is_told_to_all(tokenizer: Any) -> None:
    prompt = prompt_of(random.Random(6), 10)
    model = tiny_model("llama", vocab=len(tokenizer))

    async def work() -> None:
        async with started(model, tokenizer, max_running=1) as backend:
            tasks = [asyncio.ensure_future(all_of(backend, asked(prompt, max_new_tokens=LONG))) for _ in range(3)]
            while not backend._engine.running:
                await asyncio.sleep(0.01)

            def crash(*_: Any, **__: Any) -> None:
                raise MemoryError("no memory left")

            model.register_forward_pre_hook(crash, with_kwargs=True)
            for task in tasks:
                with pytest.raises(UnavailableError, match="the engine has failed: no memory left"):
                    await task
            assert not await backend.healthy()
            with pytest.raises(UnavailableError, match="no memory left"):
                await anext(backend.stream(asked(prompt)))

    run(work)


def test_one_answer_fails_and_others_go_on(llama: SegmentedCausalLM, tokenizer: Any) -> None:
    def broken(text: str) -> bool:
        raise KeyError("no such judge")

    prompt = prompt_of(random.Random(7), 10)

    async def work() -> None:
        async with started(llama, tokenizer) as backend:
            bad, good = await asyncio.gather(
                all_of(backend, asked(prompt, settled=broken)), all_of(backend, asked(prompt)), return_exceptions=True
            )
            assert isinstance(bad, RuntimeError)
            assert "no such judge" in str(bad)
            assert not isinstance(good, BaseException)
            assert good[0] == alone(llama, prompt, [])
            assert await backend.healthy()

    run(work)


def test_a_model_without_a_table_is_run_bare(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = save_tiny_model(tmp_path)
    backend = LocalBackend.load(str(directory), max_running=2, dtype="float32")
    assert "no segment table, so it is run as the bare model" in caplog.text
    assert backend.model.segment_scale == 0.0
    assert backend.model.dtype == torch.float32
    with pytest.raises(ValueError, match=r"no segment table that scale=1\.0 could be about"):
        LocalBackend.load(str(directory), scale=1.0)

    async def work() -> None:
        await backend.start()
        prompt = prompt_of(random.Random(8), 10)
        with pytest.raises(NotImplementedError, match="can only be run at scale 0"):
            await anext(backend.stream(asked(prompt), scale=1.0))
        assert (await all_of(backend, asked(prompt)))[0] == (await all_of(backend, asked(prompt), 0.0))[0]
        await backend.close()

    run(work)


@pytest.mark.parametrize("damaged", ["the head", "a role's row of the table"])
def test_a_damaged_model_is_refused_before_it_serves(damaged: str, tokenizer: Any, tmp_path: Path) -> None:
    model = tiny_model("qwen3", vocab=len(tokenizer))
    head: Any = model.get_output_embeddings() if damaged == "the head" else model.segment_embedding
    with torch.no_grad():
        head.weight[2] = float("nan")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"cannot be served: the model's logits are nan: its weights are damaged"):
        LocalBackend.load(str(tmp_path), device="cpu")


_UNFINISHED = """
import asyncio, sys
from rolewise.engine.decoding import Request
from rolewise.serving.local import LocalBackend

async def main():
    backend = LocalBackend.load(sys.argv[1])
    await backend.start()
    async for _ in backend.stream(Request(input_ids=[5] * 40, segment_ids=[1] * 40, max_new_tokens=400)):
        print("begun")
        if sys.argv[2] == "in loop":
            sys.exit(7)
        return backend

backend = asyncio.run(main())
sys.exit(7)
"""


@pytest.mark.parametrize("where", ["in loop", "after it"])
def test_a_process_may_end_while_the_engine_works(where: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _UNFINISHED, str(save_tiny_model(tmp_path)), where],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.stdout == "begun\n"
    assert ended.returncode == 7, ended.stderr
    assert "Traceback" not in ended.stderr
