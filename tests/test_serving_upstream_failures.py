"""UpstreamBackend when servers die, hang, are full, or talk nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from rolewise.serving.backend import OverloadedError, UnavailableError
from rolewise.serving.packed import PackedIds
from tests.fake_vllm import (
    HASTY,
    PATIENT,
    FakeVllm,
    backend,
    chunk,
    collect,
    ids,
    request,
    save_model,
    starting,
    until,
)


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


def broken(kind: str, fake: FakeVllm) -> Callable[[HttpRequest, dict[str, Any]], Coroutine[Any, Any, Response]]:
    """Ways to fail before the first token."""

    async def misbehave(http: HttpRequest, body: dict[str, Any]) -> Response:
        match kind:
            case "hang":
                await asyncio.sleep(60)
            case "hang after the headers":
                return StreamingResponse(hang(), media_type="text/event-stream")
            case "status 500":
                return JSONResponse({"error": {"message": "died"}}, 500)
            case "status 503":
                return Response("no JSON", 503)
            case "garbage":
                return Response("data: {nonsense\n\n", media_type="text/event-stream")
            case "another kind of JSON":
                return Response('data: ["x"]\n\ndata: 7\n\n', media_type="text/event-stream")
            case "nothing":
                return Response("", media_type="text/event-stream")
            case "an error in the stream":
                return Response('data: {"error": {"message": "engine dead"}}\n\n', media_type="text/event-stream")
            case "an answer given up":
                return Response(chunk([], "abort"), media_type="text/event-stream")
            case "status 404":
                return JSONResponse({"error": {"message": "no such model"}}, 404)
        raise AssertionError(kind)

    async def hang() -> AsyncIterator[str]:
        yield ": waiting\n\n"
        await asyncio.sleep(60)

    return misbehave


FAILURES = [
    "hang", "hang after the headers", "status 500", "status 503", "garbage", "another kind of JSON", "nothing",
    "an error in the stream", "an answer given up", "status 404",
]  # fmt: skip


@pytest.mark.parametrize("kind", FAILURES)
def test_before_the_first_token_it_is_tried_elsewhere(
    directory: Path, start: Callable[..., FakeVllm], kind: str
) -> None:
    good, bad = start(), start()
    bad.misbehave = broken(kind, bad)

    async def run() -> None:
        async with backend(directory, good, bad, timeouts=HASTY if kind.startswith("hang") else PATIENT) as made:
            answers = await asyncio.gather(*(collect(made.stream(request(first))) for first in range(2, 22)))
            assert [len(tokens) for tokens, _ in answers] == [4] * 20
        assert bad.bodies, "it was tried"

    asyncio.run(run())


@pytest.mark.parametrize("kind", FAILURES)
def test_alone_it_fails_in_words(directory: Path, start: Callable[..., FakeVllm], kind: str) -> None:
    bad = start()
    bad.misbehave = broken(kind, bad)

    async def run() -> None:
        async with backend(directory, bad, timeouts=HASTY if kind.startswith("hang") else PATIENT) as made:
            with pytest.raises(UnavailableError, match=bad.url):
                await collect(made.stream(request()))
            bad.misbehave = None
            await until(lambda: bool(made._upstreams[0].served))
            assert len((await collect(made.stream(request())))[0]) == 4

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["breaks off", "ends", "hangs", "turns into garbage"])
def test_after_the_first_token_an_answer_is_never_begun_again(
    directory: Path, start: Callable[..., FakeVllm], kind: str
) -> None:
    fakes = [start(), start()]

    async def half(http: HttpRequest, body: dict[str, Any]) -> Response:
        async def parts() -> AsyncIterator[str]:
            yield chunk([5])
            await asyncio.sleep(0.05)
            match kind:
                case "breaks off":
                    raise RuntimeError("broken on purpose")
                case "hangs":
                    await asyncio.sleep(60)
                case "turns into garbage":
                    yield "data: }\n\n"
                case _:
                    return

        return StreamingResponse(parts(), media_type="text/event-stream")

    for fake in fakes:
        fake.misbehave = half

    async def run() -> None:
        async with backend(directory, *fakes, timeouts=HASTY if kind == "hangs" else PATIENT) as made:
            got: list[int] = []

            async def read() -> None:
                async for delta in made.stream(request()):
                    got.extend(delta.token_ids)

            with pytest.raises(UnavailableError, match="middle of the answer"):
                await read()
            assert got == [5]

    asyncio.run(run())
    assert sum(len(fake.bodies) for fake in fakes) == 1, "no second server was asked"


@pytest.mark.parametrize("kinds", [("429", "429"), ("503", "503"), ("429", "dead"), ("dead", "503")])
def test_full_servers_are_overload(directory: Path, start: Callable[..., FakeVllm], kinds: tuple[str, str]) -> None:
    def answering(kind: str) -> Callable[[HttpRequest, dict[str, Any]], Coroutine[Any, Any, Response]]:
        async def answer(http: HttpRequest, body: dict[str, Any]) -> Response:
            match kind:
                case "429":
                    return JSONResponse({"error": {"message": "queue"}}, 429, headers={"Retry-After": "7"})
                case "503":
                    said = "The engine is currently busy and cannot accept new requests."
                    return JSONResponse({"error": {"message": said}}, 503)
                case _:
                    return JSONResponse({"error": {"message": "no such model"}}, 404)

        return answer

    fakes = [start(), start()]
    for fake, kind in zip(fakes, kinds, strict=True):
        fake.misbehave = answering(kind)

    async def run() -> None:
        async with backend(directory, *fakes) as made:
            with pytest.raises(OverloadedError) as caught:
                await collect(made.stream(request()))
            assert caught.value.retry_after == (7.0 if "429" in kinds else 1.0)
            assert await made.healthy(), "full is not gone"
            fakes[0].misbehave = None
            await until(lambda: bool(made._upstreams[0].served))
            assert len((await collect(made.stream(request())))[0]) == 4

    asyncio.run(run())


def test_killed_under_load_every_request_is_answered_or_fails_in_words(
    directory: Path, start: Callable[..., FakeVllm]
) -> None:
    fakes = [start(), start()]
    for fake in fakes:

        async def slow(http: HttpRequest, body: dict[str, Any], fake: FakeVllm = fake) -> Response:
            return StreamingResponse(fake.answer(body, delay=0.02), media_type="text/event-stream")

        fake.misbehave = slow

    async def run() -> None:
        async with backend(directory, *fakes) as made:

            async def one(first: int) -> str:
                await asyncio.sleep(first * 0.02)
                try:
                    tokens, _ = await collect(made.stream(request(first, max_new_tokens=10)))
                except UnavailableError as error:
                    return str(error)
                assert tokens == [made._packed.pack([first], [0])[0] % 50 + place for place in range(10)]
                return "answered"

            tasks = [asyncio.create_task(one(first)) for first in range(50)]
            await until(lambda: all(fake.bodies for fake in fakes), within=60)
            await asyncio.to_thread(fakes[0].kill)
            ends = await asyncio.wait_for(asyncio.gather(*tasks), 60)
            assert ends.count("answered") >= 30
            assert all("middle of the answer" in end for end in ends if end != "answered")
            assert ends[-20:] == ["answered"] * 20, "what came after the kill went to the other"
            start(port=fakes[0].port)
            await until(lambda: all(upstream.served for upstream in made._upstreams))

    asyncio.run(run())
