"""From an answered HTTP request to the bare connection behind it."""

import contextlib
import socket
from typing import Any

import requests

from python_exec_sandbox.drivers.docker.channel import RawStream
from python_exec_sandbox.drivers.docker.failure import EngineRefused, quote
from python_exec_sandbox.errors import EngineUnreachable

# More than the reader of the headers ever holds.
_EARLY_BYTES = 64 * 1024


def take_over(response: requests.Response, doing: str) -> RawStream:
    """The connection behind an answered request, and the bytes that came with the headers.

    The reader that parsed the headers has read ahead: what it holds belongs to the stream, and would be
    lost by whoever goes on with the bare socket.
    """
    with contextlib.closing(response):
        if response.status_code >= 400:
            raise EngineRefused(doing, response.status_code, _reason(response))
        raw: Any = response.raw
        reader = raw._fp.fp  # noqa: SLF001  # no public way leads from a response to its socket
        sock = getattr(reader.raw, "_sock", None)
        if not isinstance(sock, socket.socket):
            raise EngineUnreachable(
                f"The engine's connection is of a kind that can't be taken over to {doing}."
            )
        taken = sock.dup()
        # Without blocking, so that an empty reader doesn't wait for the first byte.
        sock.settimeout(0)
        return RawStream(taken, reader.read1(_EARLY_BYTES) or b"")


def _reason(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return quote(response.text)
