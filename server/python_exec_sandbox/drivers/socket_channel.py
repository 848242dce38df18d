"""The byte stream to whatever runs beside this process: a socket pair, read and written on the event loop."""

import contextlib
import socket

import anyio
import anyio.lowlevel

_RECEIVE_BYTES = 128 * 1024


class SocketChannel:
    """A :class:`~python_exec_sandbox.drivers.attached.ByteChannel` over our end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)

    async def receive(self) -> bytes:
        """As the protocol promises; after :meth:`close`, ``b""``."""
        await anyio.lowlevel.checkpoint()  # before, not after: bytes in hand must not meet a cancellation
        while self._sock.fileno() != -1:
            try:
                return self._sock.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                try:
                    await anyio.wait_readable(self._sock)
                except anyio.ClosedResourceError:
                    break
            except ConnectionResetError:  # it ended with bytes of ours unread
                break
        return b""

    def send_now(self, data: bytes) -> int:
        """As the protocol promises; after :meth:`close` a ``BrokenPipeError``."""
        if not data:
            return 0
        if self._sock.fileno() == -1:
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
            if self._sock.fileno() == -1:
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
        if self._sock.fileno() == -1:
            return
        anyio.notify_closing(self._sock)
        with contextlib.suppress(OSError):  # the other side may have ended it first
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
