"""The byte stream of one supervisor: a connected pair of sockets, read and written on the event loop."""

import contextlib
import socket

import anyio
import anyio.lowlevel

RECEIVE_BYTES = 256 * 1024


class SocketChannel:
    """A :class:`~python_exec_sandbox.drivers.attached.ByteChannel` over one end of a pair of sockets."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)

    async def receive(self) -> bytes:
        await anyio.lowlevel.checkpoint()  # before, not after: bytes in hand must not meet a cancellation
        while self._sock.fileno() != -1:
            try:
                return self._sock.recv(RECEIVE_BYTES)
            except BlockingIOError:
                try:
                    await anyio.wait_readable(self._sock)
                except anyio.ClosedResourceError:
                    break
        return b""

    def send_now(self, data: bytes) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if sent := self.send_now(bytes(rest[:RECEIVE_BYTES])):
                rest = rest[sent:]
                continue
            try:
                await anyio.wait_writable(self._sock)
            except anyio.ClosedResourceError as error:
                raise OSError("closed") from error

    def close(self) -> None:
        if self._sock.fileno() == -1:
            return
        anyio.notify_closing(self._sock)
        with contextlib.suppress(OSError):  # the other side may have ended it first
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
