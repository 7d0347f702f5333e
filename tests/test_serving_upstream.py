"""UpstreamBackend against servers that speak like vLLM: what it asks of them, and which it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse

import rolewise as rw
from rolewise.engine.decoding import PromptTooLongError
from rolewise.serving.backend import UnavailableError
from rolewise.serving.packed import PackedIds
from rolewise.serving.upstream import UpstreamBackend
from tests.fake_vllm import (
    FakeVllm,
    backend,
    chunk,
    collect,
    dead,
    ids,
    request,
    save_model,
    starting,
    until,
)
from tests.models import plain_model
from tests.training_model import tiny_tokenizer


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def packed() -> PackedIds:
    return ids()


@pytest.fixture
def start() -> Iterator[Callable[..., FakeVllm]]:
    with starting() as make:
        yield make


def test_an_answer_and_what_is_asked_for(directory: Path, start: Callable[..., FakeVllm], packed: PackedIds) -> None:
    fake = start()

    async def run() -> None:
        async with backend(directory, fake, api_key="secret") as made:
            assert made.positions == 64, "the fewest of the model's and the server's"
            assert await made.healthy()
            tokens, deltas = await collect(
                made.stream(request(temperature=0.5, top_p=0.9, seed=3, presence_penalty=0.2))
            )
            assert tokens == [packed.pack([7], [0])[0] % 50 + place for place in range(4)]
            assert [delta.ending for delta in deltas] == [None, None, None, "max_tokens"]

    asyncio.run(run())
    (body,) = fake.bodies
    assert body["prompt"] == packed.pack([7, 8, 9], [0, 1, 3])
    sent = {
        key: body[key] for key in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "repetition_penalty")
    }
    assert sent == {
        "temperature": 0.5, "top_p": 0.9, "top_k": 0, "seed": 3, "presence_penalty": 0.2, "repetition_penalty": 1.0,
    }  # fmt: skip
    assert body["stop_token_ids"], "the model's own ends"
    assert set(fake.keys) == {"Bearer secret"}


def test_log_probabilities_are_of_token_ids(directory: Path, start: Callable[..., FakeVllm]) -> None:
    fake = start()

    async def run() -> None:
        async with backend(directory, fake) as made:
            tokens, deltas = await collect(made.stream(request(logprobs=2)))
            rows = [row for delta in deltas for row in delta.logprobs or ()]
            assert [row[0] for row in rows] == tokens
            assert rows[0][1:] == (-5.0, [(200, -0.1), (201, -0.2)])
            _, deltas = await collect(made.stream(request(logprobs=0)))
            assert [row[2] for delta in deltas for row in delta.logprobs or ()] == [[]] * 4

    asyncio.run(run())


def test_the_token_that_ended_the_turn_is_left_out(directory: Path, start: Callable[..., FakeVllm]) -> None:
    fake, end = start(), tiny_tokenizer().eos_token_id

    async def ends(http: HttpRequest, body: dict[str, Any]) -> Response:
        text = chunk([5], None, body.get("logprobs")) + chunk([6, end], "stop", body.get("logprobs"))
        return Response(text, media_type="text/event-stream")

    fake.misbehave = ends

    async def run() -> None:
        async with backend(directory, fake) as made:
            tokens, deltas = await collect(made.stream(request(logprobs=1)))
            assert (tokens, deltas[-1].ending) == ([5, 6], "stop")
            assert [len(delta.logprobs or ()) for delta in deltas] == [1, 1]

    asyncio.run(run())


def test_a_prompt_takes_its_room(directory: Path, start: Callable[..., FakeVllm]) -> None:
    fake = start()

    async def run() -> None:
        async with backend(directory, fake) as made:
            long = request(input_ids=[5] * 62, segment_ids=[0] * 62, max_new_tokens=9)
            tokens, deltas = await collect(made.stream(long))
            assert (len(tokens), deltas[-1].ending) == (2, "model_length")
            with pytest.raises(PromptTooLongError, match="64 positions"):
                await collect(made.stream(request(input_ids=[5] * 64, segment_ids=[0] * 64)))

    asyncio.run(run())


def test_what_vllm_cannot_do_is_refused_by_name(directory: Path, start: Callable[..., FakeVllm]) -> None:
    fake = start()

    async def run() -> None:
        async with backend(directory, fake) as made:
            with pytest.raises(NotImplementedError, match="segment_scale"):
                await collect(made.stream(request(), scale=0.0))
            with pytest.raises(NotImplementedError, match="settled"):
                await collect(made.stream(request(settled=lambda text: True)))

    asyncio.run(run())
    assert not fake.bodies


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"plugin": False}, "plugin is not on"),
        ({"packed": PackedIds(290, rw.RoleScheme())}, "plugin is not on"),
        ({"packed": PackedIds(310, rw.RoleScheme())}, "does not serve this model"),
        (
            {"packed": PackedIds(303, rw.RoleScheme(names=("instruction", "data", "output"), rows=(0, 0, 1, 2)))},
            "does not serve this model",
        ),
    ],
    ids=["no plugin", "smaller vocabulary", "larger vocabulary", "fewer segments"],
)
def test_another_model_is_refused_at_the_start(
    directory: Path, start: Callable[..., FakeVllm], packed: PackedIds, wrong: dict[str, Any], words: str
) -> None:
    if (other := wrong.get("packed")) and other.scheme.num_segments == 3:
        wrong = {"packed": PackedIds(packed.vocab_size, other.scheme)}
    fake, good = start(**wrong), start()

    async def run() -> None:
        with pytest.raises(UnavailableError, match=words):
            async with backend(directory, good, fake):
                raise AssertionError("it started")

    asyncio.run(run())


def test_none_there_at_the_start(directory: Path) -> None:
    url = dead()

    async def run() -> None:
        with pytest.raises(UnavailableError, match=url):
            async with backend(directory, url):
                raise AssertionError("it started")

    asyncio.run(run())


def test_it_starts_without_one_of_two_and_takes_it_in_later(
    directory: Path, start: Callable[..., FakeVllm], packed: PackedIds
) -> None:
    good, url = start(), dead()

    async def run() -> None:
        async with backend(directory, good, url) as made:
            await collect(made.stream(request()))
            late = start(port=int(url.rsplit(":", 1)[1]))
            await until(lambda: all(one.served for one in made._upstreams))
            await asyncio.gather(*(collect(made.stream(request(first))) for first in range(2, 30)))
            assert late.bodies, "it is used"

    asyncio.run(run())


def test_a_server_that_comes_back_as_another_model_stays_out(
    directory: Path, start: Callable[..., FakeVllm], packed: PackedIds
) -> None:
    fake = start()

    async def run() -> None:
        async with backend(directory, fake) as made:
            fake.kill()
            await until(lambda: not made._upstreams[0].served)
            assert not await made.healthy()
            other = start(port=fake.port, plugin=False)
            await until(lambda: "plugin is not on" in made._upstreams[0].problem)
            with pytest.raises(UnavailableError, match="plugin is not on"):
                await collect(made.stream(request()))
            other.kill()
            start(port=fake.port)
            await until(lambda: bool(made._upstreams[0].served))
            assert len((await collect(made.stream(request())))[0]) == 4

    asyncio.run(run())


def test_closing_an_answer_ends_the_work_on_it(directory: Path, start: Callable[..., FakeVllm]) -> None:
    fake = start()

    async def slow(http: HttpRequest, body: dict[str, Any]) -> Response:
        return StreamingResponse(fake.answer(body, delay=0.05), media_type="text/event-stream")

    fake.misbehave = slow

    async def run() -> None:
        async with backend(directory, fake) as made:
            stream = made.stream(request(max_new_tokens=50))
            await anext(stream)
            assert made._upstreams[0].busy == 1
            await stream.aclose()
            assert made._upstreams[0].busy == 0
            await until(lambda: fake.gone == 1)

    asyncio.run(run())


def test_close_ends_answers_under_way(directory: Path, start: Callable[..., FakeVllm]) -> None:
    fake = start()

    async def slow(http: HttpRequest, body: dict[str, Any]) -> Response:
        return StreamingResponse(fake.answer(body, delay=0.05), media_type="text/event-stream")

    fake.misbehave = slow

    async def run() -> None:
        async with backend(directory, fake) as made:
            task = asyncio.create_task(collect(made.stream(request(max_new_tokens=50))))
            await until(lambda: made._upstreams[0].busy == 1)
            await asyncio.sleep(0.2)
            await made.close()
            with pytest.raises(UnavailableError, match="ending"):
                await asyncio.wait_for(task, 5)
            with pytest.raises(UnavailableError):
                await collect(made.stream(request()))

    asyncio.run(run())


def test_equal_beginnings_go_to_one_server_until_it_is_busier(directory: Path, start: Callable[..., FakeVllm]) -> None:
    fakes = [start() for _ in range(3)]

    async def run() -> None:
        async with backend(directory, *fakes) as made:
            for _ in range(6):
                await collect(made.stream(request()))
            assert sorted(len(fake.bodies) for fake in fakes) == [0, 0, 6]
            streams = [made.stream(request()) for _ in range(18)]
            for stream in streams:
                await anext(stream)
            busy = [upstream.busy for upstream in made._upstreams]
            assert max(busy) - min(busy) <= 5
            for stream in streams:
                await stream.aclose()

    asyncio.run(run())


def test_the_key_is_read_from_the_environment(
    directory: Path, start: Callable[..., FakeVllm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLEWISE_UPSTREAM_API_KEY", "hidden")
    fake = start()

    async def run() -> None:
        async with backend(directory, fake) as made:
            assert "hidden" not in repr(made)

    asyncio.run(run())
    assert set(fake.keys) == {"Bearer hidden"}


@pytest.mark.parametrize("urls", [[], ["ftp://a"], ["localhost:8000"], ["http://user:key@host"], ["http://h/?q=1"]])
def test_urls_are_checked(directory: Path, urls: list[str]) -> None:
    with pytest.raises(ValueError, match=r"URL|upstream"):
        UpstreamBackend(str(directory), urls)


def test_a_model_without_a_table_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    plain_model("llama", vocab=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no segment table"):
        UpstreamBackend(str(tmp_path), ["http://127.0.0.1:1"])
