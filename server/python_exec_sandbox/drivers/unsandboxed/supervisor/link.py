"""The supervisor's end of the runner protocol: frames over a socket to the server."""

import json
import socket

from python_exec_sandbox.stream.frames import Frame, FrameDecoder, Kind, encode, encode_credit

BACKLOG_BYTES = 256 * 1024
"""With more than this unsent, the script's output is left in its pipe."""

_READ_BYTES = 256 * 1024


class ServerGone(Exception):
    """The server closed its end: nothing here has a purpose any more."""


class Link:
    """Sends are queued and leave when :meth:`flush` is called and the socket has room."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._decoder = FrameDecoder()
        self._out = bytearray()

    @property
    def fd(self) -> int:
        return self._sock.fileno()

    @property
    def backlog(self) -> int:
        """Bytes queued and not sent yet."""
        return len(self._out)

    def receive(self) -> list[Frame]:
        """Frames that have arrived; never waits. Raises :class:`ServerGone` at the end."""
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ServerGone from error
        if not data:
            raise ServerGone
        return self._decoder.feed(data)

    def control(self, **message: object) -> None:
        self._out += encode(Kind.CONTROL, 0, json.dumps(message, separators=(",", ":")).encode())

    def data(self, stream: int, data: bytes) -> None:
        self._out += encode(Kind.DATA, stream, data)

    def end(self, stream: int) -> None:
        self._out += encode(Kind.END, stream)

    def credit(self, stream: int, count: int) -> None:
        self._out += encode_credit(stream, count)

    def flush(self) -> None:
        """Send what the socket takes now. Raises :class:`ServerGone` when nobody reads it."""
        while self._out:
            try:
                sent = self._sock.send(self._out)
            except BlockingIOError:
                return
            except OSError as error:
                raise ServerGone from error
            del self._out[:sent]
