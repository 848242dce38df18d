"""The byte stream of one container's runner, read and written on the event loop."""

import contextlib
import socket
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from python_exec_sandbox.drivers.docker.demux import Demultiplexer, MalformedStream, Source

RECEIVE_BYTES = 64 * 1024

# Enough for a traceback of the runner.
DIAGNOSIS_BYTES = 4 * 1024


@dataclass(frozen=True, slots=True)
class RawStream:
    """A connection taken over from HTTP: its socket, and what arrived together with the headers."""

    sock: socket.socket
    early: bytes


async def receive_some(sock: socket.socket) -> bytes:
    """The next bytes of a non-blocking socket; ``b""`` at its end. A cancelled call loses nothing.

    Raises:
        anyio.ClosedResourceError: closed meanwhile.
        OSError: the connection broke.
    """
    await anyio.lowlevel.checkpoint()  # before, not after: bytes in hand must not meet a cancellation
    while True:
        try:
            return sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            await anyio.wait_readable(sock)


def close_socket(sock: socket.socket) -> None:
    """Close at once and wake whoever waits for the socket; the other side is told."""
    if sock.fileno() == -1:
        return
    anyio.notify_closing(sock)
    with contextlib.suppress(OSError):  # the other side may have ended it first
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


class AttachedChannel:
    """A :class:`~python_exec_sandbox.drivers.attached.ByteChannel` over an attached container.

    What the runner wrote to its standard error is kept (the last 4 KiB) in :attr:`diagnosis`.
    """

    def __init__(self, stream: RawStream) -> None:
        self._sock = stream.sock
        self._sock.setblocking(False)
        self._demux = Demultiplexer()
        self._diagnosis = bytearray()
        self._closed = False
        self._early = stream.early

    @property
    def diagnosis(self) -> str:
        """The end of what the runner, or the engine in its place, had to say beside the protocol."""
        return self._diagnosis.decode("utf-8", "replace").strip()

    async def receive(self) -> bytes:
        """As the protocol promises; after :meth:`close`, ``b""``."""
        while data := await self._read():
            if spoken := self._sort(data):
                return spoken
        if not self._closed and not self._demux.between_frames:
            raise MalformedStream("the attached stream ended in the middle of a frame")
        return b""

    async def _read(self) -> bytes:
        if self._early:
            early, self._early = self._early, b""
            return early
        try:
            return await receive_some(self._sock)
        except anyio.ClosedResourceError:
            return b""
        except OSError:
            if self._closed:
                return b""
            raise

    def _sort(self, data: bytes) -> bytes:
        """Keep what is diagnosis, return what is protocol."""
        spoken = bytearray()
        for source, piece in self._demux.feed(data):
            if source is Source.STDOUT:
                spoken += piece
            elif source is not Source.STDIN:
                self._diagnosis += piece
                del self._diagnosis[:-DIAGNOSIS_BYTES]
        return bytes(spoken)

    def send_now(self, data: bytes) -> int:
        """As the protocol promises; after :meth:`close` a ``BrokenPipeError``."""
        if not data:
            return 0
        if self._closed:
            raise BrokenPipeError("the channel to the sandbox is closed")
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    async def send(self, data: bytes) -> None:
        """As the protocol promises; after :meth:`close` a ``BrokenPipeError``."""
        await anyio.lowlevel.checkpoint()
        view = memoryview(data)
        while view:
            if self._closed:
                raise BrokenPipeError("the channel to the sandbox is closed")
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                try:
                    await anyio.wait_writable(self._sock)
                except anyio.ClosedResourceError:
                    raise BrokenPipeError("the channel to the sandbox was closed") from None

    def close(self) -> None:
        """End both directions; the runner sees its input end."""
        self._closed = True
        self._early = b""
        close_socket(self._sock)
