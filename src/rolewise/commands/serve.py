"""`rolewise serve`: models behind OpenAI's chat API."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from rolewise.commands.arguments import parse
from rolewise.serving.settings import ServerSettings

if TYPE_CHECKING:
    from rolewise.serving.backend import Backend

TEACH = """Serve models behind the API that OpenAI's clients speak: /v1/chat/completions.

Roles are rendered here, from the structure of the messages. What nobody in a conversation wrote (documents, pages,
results of tools) goes into a message of the role "data" or "tool", or into a {"type": "data", "text": ...} part of a
user message. The server listens on this machine alone, unless --host says otherwise; a page to try it is at /.
/metrics is for Prometheus, /health for whoever watches over it. Ctrl-C finishes what has begun.

NAME=MODEL serves MODEL under that name; without it, a directory is known by its last part.

examples:
  rolewise serve smollm2-135m
  rolewise serve ise=runs/ise base=smollm2-135m --port 8080
  rolewise serve runs/ise --host 0.0.0.0 --api-key-file keys.txt
  rolewise serve runs/ise --upstream http://gpu1:8001 --upstream http://gpu2:8001    # vLLM with our plugin
  curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' -d '{"model": "smollm2-135m",
    "messages": [{"role": "user", "content": "Translate."}, {"role": "data", "content": "Hola"}]}'
"""

KEYS = "ROLEWISE_API_KEYS"
"""The variable that may have API keys, separated by commas or white space."""

_Number = Annotated[int, tyro.conf.arg(metavar="N")]
_Seconds = Annotated[float, tyro.conf.arg(metavar="S")]


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who can reach the server, and what it says."""

    host: str = ServerSettings.host
    """The address to listen on; any but this machine's own lets others in, so set API keys."""
    port: Annotated[int, tyro.conf.arg(metavar="PORT")] = 8000
    """The port; 0 takes a free one, and prints it."""
    api_key: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="KEY")] = ()
    """A key that clients must send; may be repeated. Everybody on this machine can see it: better --api-key-file."""
    api_key_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A file of keys, one a line; so does the variable ROLEWISE_API_KEYS, separated by commas."""
    allowed_host: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME")] = ()
    """A name under which clients address the server (behind a proxy, say); may be repeated."""
    playground: bool | None = None
    """Whether there is a page at /; by default where only this machine can reach it."""
    log_requests: bool = ServerSettings.log_requests
    """Write a line to stderr for each request: time, path, status, seconds, tokens, id; never what is in it."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How models are run, and told of tools."""

    upstream: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="URL")] = ()
    """A vLLM server with our plugin that serves MODEL, of which the tokenizer alone is loaded here; may be repeated.
    With several models, NAME=URL says whose it is."""
    scale: float | None = None
    """Factor on the segment table, in place of the models' own; 0 is the bare model without roles."""
    device: str | None = None
    """Where models run: "cpu", "cuda:1"; by default an accelerator if there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the weights."""
    max_running: _Number = 16
    """Answers that a model here writes at a time."""
    max_waiting: _Number = 64
    """Answers that may wait for it; more are refused with 429."""
    kv_tokens: _Number = 32_768
    """Positions that a model here computes with at a time, of all prompts and answers under way; what does not fit
    waits."""
    cache_tokens: _Number = 16_384
    """Positions that it keeps of earlier prompts and answers, to begin the next ones with; 0 keeps none."""
    tools_role: Literal["system", "data"] = ServerSettings.tools_role
    """The role of tool descriptions; data for tools of third parties."""
    tool_format: Literal["auto", "plain"] = ServerSettings.tool_format
    """How models are told of tools: as their chat template has it, or in plain text."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a request may ask for; beyond it is refused."""

    max_requests: _Number = ServerSettings.max_requests
    """Answers under way or waiting, over all models; more are refused with 429."""
    max_connections: _Number = ServerSettings.max_connections
    """Open connections."""
    max_completion_tokens: _Number = ServerSettings.max_completion_tokens
    """The most tokens of an answer, and what one gets that asks for no number."""
    max_prompt_tokens: _Number = ServerSettings.max_prompt_tokens
    """The most tokens of a prompt."""
    max_choices: _Number = ServerSettings.max_choices
    """The largest n."""
    max_messages: _Number = ServerSettings.max_messages
    """The most messages of a conversation."""
    max_parts: _Number = ServerSettings.max_parts
    """The most parts of contents, and calls of tools, in a conversation."""
    max_tools: _Number = ServerSettings.max_tools
    """The most tools that are offered."""
    max_body_bytes: _Number = ServerSettings.max_body_bytes
    """The largest request."""
    max_values: _Number = ServerSettings.max_values
    """The most values in a request's JSON."""
    max_depth: _Number = ServerSettings.max_depth
    """How deep a request's JSON may be nested."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long the server waits."""

    request_timeout: _Seconds = ServerSettings.request_timeout
    """Seconds that an answer may take."""
    read_timeout: _Seconds = ServerSettings.read_timeout
    """Seconds in which a request must have come: its headers, and then its body."""
    keep_alive: _Seconds = ServerSettings.keep_alive
    """Seconds for which an idle connection stays open."""
    shutdown_timeout: _Seconds = ServerSettings.shutdown_timeout
    """Seconds to finish what has begun, once the server is stopped."""


_Models = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL...")]


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The options, in the groups in which --help shows them."""

    models: _Models
    """"smollm2-135m", hub ids, directories or .gguf files; NAME=MODEL gives one a name."""
    access: tyro.conf.OmitArgPrefixes[Access] = Access()
    engine: tyro.conf.OmitArgPrefixes[Engine] = Engine()
    limit: tyro.conf.OmitArgPrefixes[Limits] = Limits()
    timeout: tyro.conf.OmitArgPrefixes[Timeouts] = Timeouts()


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Access, Engine, Limits, Timeouts):
    """What `rolewise serve` does."""

    models: tuple[str, ...]
    """As on the command line."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ValueError(f"--port {self.port} must be from 0 to 65535")
        for name, least in (("max_running", 1), ("max_waiting", 0), ("kv_tokens", 2), ("cache_tokens", 0)):
            if (given := getattr(self, name)) < least:
                raise ValueError(f"--{name.replace('_', '-')} {given} must be at least {least}")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    from rolewise.commands.arguments import named_as_options
    from rolewise.commands.models import quiet_libraries, say

    options = parse(_Options, arguments, command="serve", teach=TEACH)
    config = ServeConfig(
        models=options.models, **vars(options.access), **vars(options.engine), **vars(options.limit),
        **vars(options.timeout),
    )  # fmt: skip
    names = model_names(config.models)
    upstreams = upstreams_of(config.upstream, list(names))
    with named_as_options(ServeConfig):
        settings = settings_of(config)
    try:
        from rolewise.serving.app import create_app
        from rolewise.serving.server import Server, bound_socket, others_find_at, url_of
    except ImportError as error:
        raise ImportError(f"the server needs {error.name}: in your clone, pip install -e '.[serve]'") from error
    logging.basicConfig(format="rolewise: %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("rolewise.serving.access").setLevel(logging.INFO)

    # OpenMP's threads sleep at once where a second pool of them might want the processor; then most of them sleep and
    # wake some hundred times in a pass (docs/log.md). To be set before PyTorch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "300000")
    one = bound_socket(config.host, config.port)  # before minutes of loading
    try:
        quiet_libraries()
        backends = {name: _backend(model, upstreams.get(name, ()), config, say) for name, model in names.items()}
        app = create_app(backends, settings)
        url = url_of(config.host, one.getsockname()[1])
        others = others_find_at(config.host, one.getsockname()[1])
        server = Server(app, settings, lambda: _tell(url, others, settings, list(names), say))
        # What keeps a server from starting comes out below, without a traceback.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        # What uvicorn puts back at its end, when there is nothing left that a further Ctrl-C could end.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            server.run(sockets=[one])
        except BaseException as error:
            signal.signal(signal.SIGINT, before)
            if not isinstance(error, SystemExit) or app.state.failed is None:
                raise
            raise ConnectionError(str(app.state.failed)) from app.state.failed
    finally:
        one.close()
    return 0


def model_names(given: Sequence[str]) -> dict[str, str]:
    """The models by the names under which they are served.

    Raises:
        ValueError: when there is none, or a name stands for two.
    """
    if not given:
        raise ValueError("name a model to serve, such as smollm2-135m")
    names: dict[str, str] = {}
    for one in given:
        name, named, model = one.partition("=")
        if not named or os.path.exists(one):
            model = one
            # A path tells clients more than they need to know.
            name = Path(one).resolve().name if os.path.exists(one) else one
        if not name or not model:
            raise ValueError(f"{one!r} must be MODEL or NAME=MODEL")
        if name in names:
            raise ValueError(f"two models would be served as {name!r}; name one of them: NAME={model}")
        names[name] = model
    return names


def upstreams_of(given: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """The URLs of each model's vLLM servers.

    Raises:
        ValueError: when it is not clear whose a URL is.
    """
    found: dict[str, list[str]] = {}
    for one in given:
        name, named, url = one.partition("=")
        if not named or name not in names:
            if len(names) > 1:
                raise ValueError(f"--upstream {one}: say whose it is, NAME=URL with one of {', '.join(names)}")
            name, url = names[0], one
        found.setdefault(name, []).append(url)
    return found


def settings_of(config: ServeConfig) -> ServerSettings:
    """The server's settings.

    Raises:
        ValueError: when a limit or a key cannot be used, or the file of keys has none.
    """
    from dataclasses import fields

    same = {field.name for field in fields(ServerSettings)} & {field.name for field in fields(ServeConfig)}
    chosen: dict[str, Any] = {name: getattr(config, name) for name in same}
    allowed = tuple(name.lower() for name in config.allowed_host)
    return ServerSettings(**chosen, api_keys=_keys(config), allowed_hosts=allowed)


def _keys(config: ServeConfig) -> tuple[str, ...]:
    keys = [*config.api_key, *os.environ.get(KEYS, "").replace(",", " ").split()]
    if config.api_key_file is not None:
        try:
            lines = config.api_key_file.expanduser().read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise ValueError(f"--api-key-file {config.api_key_file} is no text in UTF-8") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ValueError(f"--api-key-file {config.api_key_file} cannot be read: {why}") from None
        found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not found:
            raise ValueError(f"--api-key-file {config.api_key_file} has no key; write one a line")
        keys += found
    return tuple(dict.fromkeys(keys))


def _backend(model: str, upstreams: Sequence[str], config: ServeConfig, say: Callable[[str], None]) -> Backend:
    if upstreams:
        from rolewise.serving.upstream import UpstreamBackend

        if config.scale is not None:
            raise ValueError("--scale belongs to models that run here; start the vLLM server with it instead")
        say(f"loading the tokenizer of {model} …")
        return UpstreamBackend(model, upstreams)
    from rolewise.serving.local import LocalBackend

    say(f"loading {model} …")
    # In a thread that ends: the pool of OpenMP threads that loading leaves behind would slow the engine's by a fifth.
    with ThreadPoolExecutor(1) as loader:
        return loader.submit(
            LocalBackend.load,
            model,
            scale=config.scale,
            max_running=config.max_running,
            max_waiting=config.max_waiting,
            kv_tokens=config.kv_tokens,
            cache_tokens=config.cache_tokens,
            device=config.device,
            dtype=config.dtype,
        ).result()


def _tell(url: str, others: str | None, settings: ServerSettings, names: list[str], say: Callable[[str], None]) -> None:
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    if others is not None:
        say(f"listening on all addresses of this machine{others and f'; others find it at {others}'}")
    if not settings.loopback and not settings.api_keys:
        say(f"warning: {settings.host} can be reached by others, and there are no API keys: whoever finds the server "
            f"can use it. --api-key-file FILE or {KEYS} sets them")  # fmt: skip
    page = " (a page to try it: open it in a browser)" if settings.has_playground else ""
    say(f"serving {', '.join(names)} at {url}{page}; the API is at {url}/v1, Ctrl-C stops it")
