"""The front's engine when one machine is not enough: any number of vLLM servers with our plugin.

    backend = UpstreamBackend("./my-model", ["http://10.0.0.1:8000", "http://10.0.0.2:8000"])

The front renders and packs, so it needs the model's tokenizer and configuration, and none of its weights. A server is
used once it was seen to serve the same model with roles (`VllmServer.inspect`), and again after each absence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import zlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx

from rolewise.engine.decoding import PromptTooLongError, Request
from rolewise.roles import RoleScheme
from rolewise.serving.backend import Delta, OverloadedError, UnavailableError
from rolewise.serving.packed import PackedIds
from rolewise.serving.vllm_api import Served, Timeouts, UnreachableError, VllmServer

logger = logging.getLogger(__name__)

API_KEY = "ROLEWISE_UPSTREAM_API_KEY"
SLACK = 4
"""How many more requests than the idlest server one may have, for the sake of a prefix that it has read before."""
PREFIX = 64
"""Tokens at a prompt's start that decide which server has read it before."""


@dataclass
class _Upstream:
    """A server, and how it is doing."""

    server: VllmServer
    served: Served | None = None
    """Set while it may be used."""
    busy: int = 0
    problem: str = "was not looked at yet"

    def leave(self, why: str) -> None:
        """Use it no more, until it was inspected again."""
        if self.served is not None:
            logger.warning("upstream %s is left out: %s", self.server.url, why)
        self.served, self.problem = None, why


class UpstreamBackend:
    """A backend over vLLM servers; see `Backend` for its methods.

    A request goes to the server that has read the start of its prompt before, unless that is busier than others. When
    a server dies before the first token, the request is sent to another; when it dies later, the answer fails with
    UnavailableError, for a second answer would not be the same.

    Args:
        model: the model that all of them serve; its tokenizer and configuration are read.
        urls: where they are.
        api_key: sent to all of them; by default the environment's ROLEWISE_UPSTREAM_API_KEY, if set.
        timeouts: how long to wait for them.
        check_every: seconds between two health checks.

    Raises:
        ValueError: when a URL is none, there is none, or the model has no segments.
    """

    def __init__(
        self,
        model: str,
        urls: Sequence[str],
        *,
        api_key: str | None = None,
        timeouts: Timeouts | None = None,
        check_every: float = 2.0,
    ) -> None:
        self._urls = list(dict.fromkeys(_checked(url) for url in urls))
        if not self._urls or not check_every > 0:
            raise ValueError(f"urls={list(urls)} needs one URL at least, and check_every={check_every} more than 0 s")
        self._tokenizer, self._packed, self._own_positions, self._stops = _read(model)
        self._key = os.environ.get(API_KEY) if api_key is None else api_key
        self._timeouts, self._check_every = timeouts or Timeouts(), check_every
        self._upstreams: list[_Upstream] = []
        self._client: httpx.AsyncClient | None = None
        self._watching: list[asyncio.Task[None]] = []

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def scheme(self) -> RoleScheme:
        """Which row each role takes."""
        return self._packed.scheme

    @property
    def positions(self) -> int | None:
        """The fewest that any of the servers has room for."""
        known = [one.served.positions for one in self._upstreams if one.served] + [self._own_positions]
        return min((number for number in known if number is not None), default=None)

    @property
    def has_roles(self) -> bool:
        """Whether roles change what it answers."""
        return True

    @property
    def takes_scale(self) -> bool:
        """Whether a request may choose its scale: vLLM keeps the table as it was loaded."""
        return False

    async def start(self) -> None:
        """Inspect all servers, and go on looking after them.

        Raises:
            UnavailableError: when none answers, or one serves something else.
        """
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        # Neither proxies nor .netrc: these are our own machines. The context heeds SSL_CERT_FILE.
        context = ssl.create_default_context()
        self._client = httpx.AsyncClient(headers=headers, limits=limits, trust_env=False, verify=context)
        self._upstreams = [
            _Upstream(VllmServer(url, self._packed, self._stops, self._client, self._timeouts)) for url in self._urls
        ]
        try:
            await asyncio.gather(*(self._inspect(one) for one in self._upstreams))
            if not any(one.served for one in self._upstreams):
                raise UnavailableError(self._why_none())
        except BaseException:
            await self.close()
            raise
        self._watching = [asyncio.create_task(self._watch(one)) for one in self._upstreams]

    async def close(self) -> None:
        """End; answers under way end with UnavailableError."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        self._watching = []
        for one in self._upstreams:
            one.leave("the front is ending")
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def healthy(self) -> bool:
        """Whether at least one server can be used."""
        return any(one.served for one in self._upstreams)

    async def stream(self, request: Request, *, scale: float | None = None) -> AsyncGenerator[Delta, None]:
        """One answer, a delta at a time; see `Backend.stream`."""
        if scale is not None:
            raise NotImplementedError(
                "vLLM keeps the segment table as it was loaded, so a request cannot choose its scale; start another "
                "vLLM server with --hf-overrides '{\"segment_scale\": 0}', or use the default engine"
            )
        if request.settled is not None:
            raise NotImplementedError("vLLM cannot be asked whether an outcome is settled; use the default engine")
        room = None if self.positions is None else self.positions - len(request.input_ids)
        if room is not None and room < 1:
            raise PromptTooLongError(len(request.input_ids), self.positions or 0)
        tried: list[_Upstream] = []
        failure: UnavailableError | OverloadedError | None = None
        full: OverloadedError | None = None
        while (one := self._choose(request, tried)) is not None:
            tried.append(one)
            begun = False
            one.busy += 1
            try:
                assert one.served is not None, "chosen because it may be used"
                async with contextlib.aclosing(one.server.stream(one.served.name, request, room)) as deltas:
                    async for delta in deltas:
                        begun = True
                        yield delta
                return
            except UnreachableError as error:
                one.leave(str(error))
                failure = error
            except UnavailableError as error:
                failure = error
            except OverloadedError as error:
                full = failure = error
            finally:
                one.busy -= 1
            if self._client is None:
                raise UnavailableError("the server is ending") from failure
            if begun:
                raise UnavailableError(
                    f"the engine was lost in the middle of the answer: {failure}",
                    told="the engine was lost in the middle of the answer; send the request again",
                ) from failure
            logger.warning("a request is tried again elsewhere: %s", failure)
        # One that is only full may take the request soon.
        raise full or failure or UnavailableError(self._why_none())

    def _choose(self, request: Request, tried: Sequence[_Upstream]) -> _Upstream | None:
        usable = [one for one in self._upstreams if one.served and one not in tried]
        if len(usable) < 2:
            return usable[0] if usable else None
        # Rendezvous hashing: when a server comes or goes, the others keep their prefixes.
        start = repr((request.input_ids[:PREFIX], request.segment_ids[:PREFIX])).encode()
        idlest = min(one.busy for one in usable)
        near = [one for one in usable if one.busy <= idlest + SLACK]
        return max(near, key=lambda one: zlib.crc32(one.server.url.encode(), zlib.crc32(start)))

    async def _inspect(self, one: _Upstream) -> None:
        try:
            one.served = await one.server.inspect()
        except UnreachableError as error:
            one.leave(str(error))
        except OverloadedError as error:
            one.leave(f"is too busy to be inspected ({error})")

    async def _watch(self, one: _Upstream) -> None:
        """Leave a server out while it is gone, and take it back when it serves our model again."""
        while True:
            await asyncio.sleep(self._check_every)
            try:
                if one.served is None:
                    await self._inspect(one)
                    if one.served is not None:
                        logger.warning("upstream %s is back", one.server.url)
                elif not await one.server.alive():
                    one.leave("fails its health check")
            except UnavailableError as error:  # it serves something else now
                one.leave(str(error))
            except Exception as error:  # whatever it says, it cannot be trusted with roles until it was inspected
                logger.exception("looking after upstream %s failed", one.server.url)
                one.leave(f"looking after it failed ({type(error).__name__})")

    def _why_none(self) -> str:
        problems = (
            one.problem if one.server.url in one.problem else f"{one.server.url} {one.problem}"
            for one in self._upstreams
        )  # fmt: skip
        return f"no engine can be used now: {'; '.join(problems)}"


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in url:
        shown = url if "@" not in url else "with a user or password in it"
        raise ValueError(f"upstream {shown!r} must be the root of a vLLM server, such as http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1")


def _read(model: str) -> tuple[Any, PackedIds, int | None, list[int]]:
    """The tokenizer of a model, how its ids are packed, its positions, and the tokens that end an answer."""
    from transformers import GenerationConfig, PreTrainedConfig

    from rolewise.commands.models import load_tokenizer_only
    from rolewise.generation import stop_token_ids
    from rolewise.modeling.loading import has_table, resolve_source

    if not has_table(model):
        raise ValueError(
            f"{model!r} has no segment table, so vLLM cannot serve it with roles; rolewise train makes one"
        )
    tokenizer, scheme = load_tokenizer_only(model)
    source = str(resolve_source(model))
    config, _ = PreTrainedConfig.get_config_dict(source)
    try:
        generation: Any = GenerationConfig.from_pretrained(source)
    except OSError:
        generation = SimpleNamespace(eos_token_id=config.get("eos_token_id"))
    stops = stop_token_ids(SimpleNamespace(generation_config=generation), tokenizer)  # pyright: ignore[reportArgumentType]
    return tokenizer, PackedIds(config["vocab_size"], scheme), config.get("max_position_embeddings"), stops
