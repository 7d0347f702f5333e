"""What a server allows, and how long it waits: every limit has a name, a default and a check."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Literal

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a server, whatever models it serves.

    Raises:
        ValueError: when a limit is not positive, or an API key is empty or no plain ASCII.
    """

    host: str = "127.0.0.1"
    """The address that the server is bound to; a loopback address makes it check the Host header."""
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Keys, one of which a request must bring; empty asks for none. /health is always open."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides those of the loopback under which the server may be addressed; with another address, when empty,
    any name will do."""
    playground: bool | None = None
    """Whether there is a page at /; None for where the address is a loopback one."""
    tools_role: Literal["system", "data"] = "system"
    """The role of tool descriptions; "data" for tools of third parties."""
    tool_format: Literal["auto", "plain"] = "auto"
    """How models are told of tools (see `rolewise.tools.format`)."""
    max_body_bytes: int = 4 * MIB
    """The largest body of a request."""
    max_messages: int = 1024
    """The most messages of a conversation."""
    max_parts: int = 4096
    """The most parts of contents, and calls of tools, in a conversation."""
    max_tools: int = 128
    """The most tools that are offered."""
    max_values: int = 100_000
    """The most values in a request's JSON, the arguments of calls included."""
    max_depth: int = 64
    """How deep JSON may be nested."""
    max_prompt_tokens: int = 131_072
    """The most tokens of a prompt; the model's positions hold besides."""
    max_completion_tokens: int = 4096
    """The most tokens that may be asked for, and what an answer gets that asks for no number."""
    max_choices: int = 8
    """The largest `n`."""
    max_requests: int = 256
    """Answers under way or waiting, over all models; what comes on top is refused with 429."""
    max_connections: int = 1024
    """Open connections; further ones are closed at once."""
    render_workers: int = 2
    """Threads that render conversations; large ones have one of their own besides."""
    log_requests: bool = False
    """Whether a line is logged for each request; never what is in it."""
    request_timeout: float = 600.0
    """Seconds from a request's last byte to its answer's last."""
    read_timeout: float = 20.0
    """Seconds in which a request's headers must come, and then its body; a client that does not read its answer for
    three times as long is cut off."""
    keep_alive: float = 15.0
    """Seconds for which an idle connection stays open."""
    shutdown_timeout: float = 30.0
    """Seconds for which a server that is stopped finishes what it has begun."""

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_messages", "max_parts", "max_tools", "max_values",
                     "max_depth", "max_prompt_tokens", "max_completion_tokens",
                     "max_choices", "max_requests", "max_connections", "render_workers", "request_timeout",
                     "read_timeout", "keep_alive", "shutdown_timeout"):  # fmt: skip
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        if self.max_depth > 100:
            raise ValueError(f"max_depth={self.max_depth} must be at most 100; no template takes more")
        for number, key in enumerate(self.api_keys, start=1):
            if not key.isascii() or not key.isprintable() or not key or " " in key:  # the key itself is never shown
                raise ValueError(f"API key {number} of {len(self.api_keys)} must be visible ASCII without spaces")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def has_playground(self) -> bool:
        """Whether the page at / is wanted."""
        return self.loopback if self.playground is None else self.playground


def is_loopback(host: str) -> bool:
    """Whether a host is a name or an address of the loopback."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
