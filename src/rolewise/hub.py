"""Whether the model hub can be asked at all: its client tries for half a minute before it says that it cannot."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies


def unreachable() -> str | None:
    """Why no hub can be asked, such as `huggingface.co: Name or service not known`; None when it may answer.

    That is so where its host has no address, for certain: a failure that may pass is no reason, a proxy finds
    addresses of its own, and in offline mode the client refuses at once by itself.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or getproxies():
        return None
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, None)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            return f"{host}: {error.strerror}"
    return None
