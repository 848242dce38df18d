"""The connection to the server: frames over two non-blocking descriptors."""

import json
import os

from . import wire

BACKLOG_BYTES = 256 * 1024
"""With more than this unsent, the script's output is left in its pipe."""

_READ_BYTES = 256 * 1024

_to_json = json.JSONEncoder(
    separators=(",", ":")
).encode  # `json.dumps` would make an encoder for each message


class ServerGone(Exception):
    """The server closed its end: nothing here has a purpose any more."""


class Link:
    """Sends are queued and leave when :meth:`flush` is called and the pipe has room."""

    def __init__(self, fd_in: int, fd_out: int) -> None:
        self.fd_in = fd_in
        self.fd_out = fd_out
        os.set_blocking(fd_in, False)
        os.set_blocking(fd_out, False)
        self._decoder = wire.Decoder()
        self._out = bytearray()

    @property
    def backlog(self) -> int:
        """Bytes queued and not sent yet."""
        return len(self._out)

    def receive(self) -> list[tuple[int, int, bytes]]:
        """Frames that have arrived; never waits. Raises :class:`ServerGone` at the end."""
        try:
            data = os.read(self.fd_in, _READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ServerGone from error
        if not data:
            raise ServerGone
        return self._decoder.feed(data)

    def control(self, **message: object) -> None:
        self._out += wire.encode(wire.CONTROL, 0, _to_json(message).encode())

    def data(self, stream: int, data: bytes) -> None:
        self._out += wire.encode(wire.DATA, stream, data)

    def end(self, stream: int) -> None:
        self._out += wire.encode(wire.END, stream)

    def credit(self, stream: int, count: int) -> None:
        self._out += wire.encode_credit(stream, count)

    def flush(self) -> None:
        """Send what the pipe takes now. Raises :class:`ServerGone` when nobody reads it."""
        while self._out:
            try:
                sent = os.write(self.fd_out, self._out)
            except BlockingIOError:
                return
            except OSError as error:
                raise ServerGone from error
            del self._out[:sent]
