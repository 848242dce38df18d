"""A bound on what an engine may answer, counted where the bytes come in.

Below HTTP, since each layer above reads some part without a bound of its own: a body without a length, a
chunk's size line, an interim answer after the other, a message that never ends.
"""

import socket
from typing import Any

# A list of 4,000 containers; what is parsed from it may take ten times as much.
SHORT_ANSWER_BYTES = 8 * 1024 * 1024

# The messages of a long build or a large pull are a few MiB.
LONG_ANSWER_BYTES = 64 * 1024 * 1024


class AnswerTooLong(Exception):  # it never leaves the gateway
    """The engine sent more than ``limit`` bytes in one answer.

    Not an ``OSError``: HTTP libraries would take it for a broken connection and read on or try again.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"an answer of more than {limit} bytes")


class Meter:
    """Counts one answer at a time; shared by the connections of one client."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit

    def begin(self) -> None:
        """A new answer is due."""
        self._left = self._limit

    def count(self, size: int) -> None:
        """Take in ``size`` bytes.

        Raises:
            AnswerTooLong: they are more than is left.
        """
        self._left -= size
        if self._left < 0:
            raise AnswerTooLong(self._limit)


class MeteredSocket(socket.socket):
    """What is read through :meth:`makefile` is counted, and so all that HTTP reads; a bare ``recv`` is not."""

    meter: Meter | None = None

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        size = super().recv_into(*args, **kwargs)
        if self.meter is not None:
            self.meter.count(size)
        return size


def metered(sock: socket.socket, meter: Meter) -> MeteredSocket:
    """The same connection as ``sock``, which must not be used any more, with its time-out."""
    seconds = sock.gettimeout()
    counted = MeteredSocket(sock.family, sock.type, sock.proto, fileno=sock.detach())
    counted.settimeout(seconds)
    counted.meter = meter
    return counted
