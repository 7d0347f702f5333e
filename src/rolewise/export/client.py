"""A client of a stock vLLM server that serves a folded model: messages in, prompt embeddings over the wire."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import shlex
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rolewise.export.prompts import CHECKED_TOKENS, PromptEmbeddings

if TYPE_CHECKING:
    from openai.types import Completion

_REFUSED = {
    "prompt": "a prompt of text or ids has no roles; pass messages",
    "prompt_embeds": "the client makes the embeddings itself; pass messages",
    "messages": "pass the messages first, without a name",
    "stream": "use client.stream(...)",
    "echo": "the engine does not know the prompt's text",
    "suffix": "a suffix has no roles",
    "repetition_penalty": "the engine does not know the prompt's tokens; use frequency_penalty or presence_penalty",
    "prompt_logprobs": "the engine does not know the prompt's tokens",
}
_SAME_ENGINE = 0.02
"""How far a log-probability may lie from that of another request to the same engine, in spreads of the logits."""
_OTHER_ENGINE = 0.1
"""The same, from what the model said when it was exported: in fp32, by other kernels."""


@dataclass(frozen=True)
class _Answer:
    tokens: list[int]
    likeliest: list[dict[int, float]]
    """At each place, the likeliest tokens with their log-probabilities."""


class FoldedClient:
    """Asks a folded model that a stock vLLM serves with `--enable-prompt-embeds`.

    Roles come from the messages' structure, as everywhere in Rolewise. Before the first answer it asks the server a
    known prompt, and refuses a server that has another model or treats embeddings in another way.

    Args:
        directory: the folded model; the folder `client` and the token embeddings of it are read.
        base_url: of the server's API, such as "http://127.0.0.1:8000/v1".
        model: the model's name there; by default the first that the server names.
        api_key: for the server, if it wants one.
        timeout: seconds for a request.
        max_retries: how often the SDK sends a request again that failed on the way.
        http_client: as the SDK takes it, for proxies and certificates of your own.

    Raises:
        FileNotFoundError: when `directory` is no folded model.
        ImportError: when the openai SDK is not installed.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 600.0,
        max_retries: int = 2,
        http_client: Any = None,
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise ImportError("FoldedClient needs the openai SDK; pip install openai") from error
        self.prompts = PromptEmbeddings(directory)
        self._model = model
        self._openai = openai.OpenAI(
            base_url=base_url,
            api_key=api_key or "none",  # the SDK wants one, whether or not the server does
            timeout=timeout,
            max_retries=max_retries,
            http_client=http_client,
        )
        self._no_connection = openai.APIConnectionError
        self._checked = False
        self._lock = threading.Lock()

    def complete(
        self, messages: Sequence[Mapping[str, Any]], *, rendering: Mapping[str, Any] | None = None, **options: Any
    ) -> Completion:
        """The assistant's next message, in `.choices[0].text`.

        Args:
            messages: as everywhere in Rolewise (see `rolewise.messages.parse_messages`).
            rendering: options of `rolewise.render`, such as `tools` and `documents`, and arguments of the template.
            options: of `completions.create` of the openai SDK, such as `max_tokens`, `temperature`, `stop` and `n`;
                `extra_body` holds what only vLLM knows.

        Raises:
            ValueError: when a message or an option cannot be used, or the server is the wrong one (see `check`).
            ConnectionError: when nothing answers at the address; it names what to start there.
            openai.APIError: when the server refuses.
        """
        request = self.request(messages, rendering=rendering, **options)
        self._require_checked()
        with self._connected():
            return self._openai.completions.create(**request, model=self.model)

    def stream(
        self, messages: Sequence[Mapping[str, Any]], *, rendering: Mapping[str, Any] | None = None, **options: Any
    ) -> Iterator[Completion]:
        """The answer as it comes, part by part, each with new text in `.choices[0].text`; see `complete`."""
        request = self.request(messages, rendering=rendering, **options)
        self._require_checked()
        with self._connected(), self._openai.completions.create(**request, model=self.model, stream=True) as parts:
            yield from parts

    def request(
        self, messages: Sequence[Mapping[str, Any]], *, rendering: Mapping[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        """What `complete` sends, without the model's name: for `completions.create` of `AsyncOpenAI`, for example.

        Raises:
            ValueError: when a message or an option cannot be used.
        """
        extra: dict[str, Any] = dict(options.pop("extra_body", None) or {})
        for name in (*options, *extra):
            if name in _REFUSED:
                raise ValueError(f"{name} cannot be used here: {_REFUSED[name]}")
        encoding = self.prompts.render(messages, **(rendering or {}))
        return {**options, **self._prompt(encoding.input_ids, encoding.segment_ids, extra)}

    @property
    def model(self) -> str:
        """The model's name at the server.

        Raises:
            ValueError: when the server names none.
            ConnectionError: when nothing answers at the address.
        """
        if self._model is None:
            with self._connected():
                served = [one.id for one in self._openai.models.list().data]
            if not served:
                raise ValueError(f"the server at {self._openai.base_url} names no model; pass model=")
            self._model = served[0]
        return self._model

    def check(self) -> None:
        """See that the server has this very model, and makes the same of embeddings as of tokens.

        Raises:
            ValueError: when it has not, or does not.
            ConnectionError: when nothing answers at the address.
            openai.APIError: when the server refuses.
        """
        with self._connected():
            self._check()

    def _check(self) -> None:
        known: Mapping[str, Any] = self.prompts.check
        ids: list[int] = known["input_ids"]
        spread, count = float(known["spread"]), len(known["answer"])
        by_tokens = self._probe({"prompt": ids}, count)
        output = [self.prompts.scheme.output] * len(ids)
        by_embeddings = self._probe(self._prompt(ids, output, {}), count)
        if not _agree(by_embeddings, by_tokens, _SAME_ENGINE * spread):
            raise ValueError(
                f"the server at {self._openai.base_url} does not make the same of prompt embeddings as of tokens: it "
                f"serves another model than {str(self.prompts.directory)!r}, or its engine scales embeddings otherwise"
            )
        found = self._probe(self._prompt(ids, known["segment_ids"], {}), count)
        likeliest = [{int(token): value for token, value in place.items()} for place in known["likeliest"]]
        if not _agree(found, _Answer(known["answer"], likeliest), _OTHER_ENGINE * spread):
            raise ValueError(
                f"the server at {self._openai.base_url} does not answer as {str(self.prompts.directory)!r} did when it "
                "was exported: it serves another model, or its engine runs this architecture in another way (such as "
                "with a head that shares the embeddings); export it with --head tied, or use rolewise serve"
            )
        self._checked = True

    def close(self) -> None:
        """Close the connections to the server."""
        self._openai.close()

    @contextlib.contextmanager
    def _connected(self) -> Generator[None]:
        """Say of a connection that fails where it should have led, and what to start there."""
        try:
            yield
        except self._no_connection as error:
            command = f"vllm serve {shlex.quote(str(self.prompts.directory))} --enable-prompt-embeds"
            raise ConnectionError(
                f"nothing answers at {self._openai.base_url} ({error.__cause__ or error}); start the folded model "
                f"there with {command}, or pass another base_url"
            ) from error

    def _require_checked(self) -> None:
        with self._lock:
            if not self._checked:
                self.check()

    def _prompt(self, input_ids: Sequence[int], segment_ids: Sequence[int], extra: Mapping[str, Any]) -> dict[str, Any]:
        embeds = self.prompts.embed(input_ids, segment_ids)
        # A penalty among the model's defaults would count the prompt's tokens, which the engine does not know.
        return {"prompt": None, "extra_body": {"repetition_penalty": 1.0, **extra, "prompt_embeds": encoded(embeds)}}

    def _probe(self, prompt: Mapping[str, Any], count: int) -> _Answer:
        extra = {"return_tokens_as_token_ids": True, "ignore_eos": True, "repetition_penalty": 1.0}
        extra |= prompt.get("extra_body", {})
        request: dict[str, Any] = {
            **prompt, "extra_body": extra, "max_tokens": count, "temperature": 0.0, "seed": 0,
            "logprobs": CHECKED_TOKENS,
        }  # fmt: skip
        answer: Any = self._openai.completions.create(model=self.model, **request)
        given = answer.choices[0].logprobs
        try:
            tokens = [_token(name) for name in given.tokens]
            likeliest = [{_token(name): value for name, value in place.items()} for place in given.top_logprobs]
            return _Answer(tokens, likeliest)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"the server at {self._openai.base_url} does not answer as vLLM does (no log-probabilities of token "
                "ids), so it cannot be checked; serve the folded model with vLLM"
            ) from error


def encoded(embeds: torch.Tensor) -> str:
    """A tensor [seq, hidden] as vLLM takes it in `prompt_embeds`: saved by torch, in base64."""
    buffer = io.BytesIO()
    torch.save(embeds.contiguous(), buffer)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _token(name: str) -> int:
    return int(name.removeprefix("token_id:"))


def _agree(found: _Answer, expected: _Answer, tolerance: float) -> bool:
    """Whether two greedy answers are of the same model, but for rounding, which may decide between two tokens."""
    if not found.tokens or len(found.tokens) != len(expected.tokens):
        return False
    for place, token in enumerate(found.tokens):
        here, there = found.likeliest[place], expected.likeliest[place]
        if not (_covers(here, there, tolerance) and _covers(there, here, tolerance)):
            return False
        if token != expected.tokens[place]:  # nearly as likely as the other; from here on the answers differ
            break
    return True


def _covers(likeliest: Mapping[int, float], others: Mapping[int, float], tolerance: float) -> bool:
    """Whether each of `others` is as likely here; one that is not among the likeliest is less likely than these."""
    least = min(likeliest.values())
    return all(
        abs(likeliest[token] - value) <= tolerance if token in likeliest else value <= least + tolerance
        for token, value in others.items()
    )
