"""The page's files, and the headers under which a browser gets them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from starlette.responses import Response

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing from elsewhere, nothing inline, no frame around it, and no text that becomes markup."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def responses() -> Iterator[tuple[str, Response]]:
    """Each file with its name, read once."""
    for entry in (files("rolewise.serving.playground") / "static").iterdir():
        ending = entry.name.rpartition(".")[2]
        if ending in _TYPES:
            yield entry.name, Response(entry.read_bytes(), media_type=_TYPES[ending], headers=HEADERS)
