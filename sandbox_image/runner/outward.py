"""The script's way out: a port on the sandbox's own loopback, whose connections travel as streams to the server.

What they say is the server's business; here bytes are carried, each connection within its credit. The script
can reach the port as often as it likes: only so many connections are taken at once, the others wait.
"""

import _socket  # socket itself takes milliseconds to import
import os
import select
import struct

from . import wire
from .link import BACKLOG_BYTES, Link

_READ_BYTES = 64 * 1024
_TAKEN_AT_ONCE = 16
_BACKLOG = 1024

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what is left unsent is thrown away, and the other side told so."""


class _Connection:
    """``out`` are bytes for the script, ``owed`` those it took and the server was not told of yet."""

    def __init__(self, stream: int, sock: "_socket.socket") -> None:
        self.stream = stream
        self.sock = sock
        self.fd = sock.fileno()
        self.credit = wire.CONNECTION_WINDOW_BYTES
        self.granted = wire.CONNECTION_WINDOW_BYTES
        self.out = bytearray()
        self.owed = 0
        self.sent_end = False
        self.got_end = False
        self.shut = False


class Outward:
    """The port and its connections. Nothing is taken before :meth:`open`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._by_fd: dict[int, _Connection] = {}
        self._by_stream: dict[int, _Connection] = {}
        self._next = wire.FIRST_CONNECTION
        self._is_open = False

    def open(self) -> None:
        """Take connections from now on."""
        self._is_open = True

    def close(self) -> None:
        """Take none any more, and end those there are."""
        self._is_open = False
        self._listener.close()
        for connection in self._by_fd.values():
            connection.sock.close()
        self._by_fd.clear()
        self._by_stream.clear()

    def register(self, poll: select.poll) -> None:
        """What is worth waking up for."""
        if not self._is_open:
            return
        if len(self._by_fd) < wire.MAX_OPEN_CONNECTIONS:
            poll.register(self._listener.fileno(), select.POLLIN)
        for connection in self._by_fd.values():
            events = select.POLLOUT if connection.out else 0
            if self._may_read(connection):
                events |= select.POLLIN
            if events:
                poll.register(connection.fd, events)

    def on_event(self, fd: int, events: int) -> bool:
        """Go on with what a poll has found; whether it was ours."""
        if not self._is_open:
            return False
        if fd == self._listener.fileno():
            self._take()
            return True
        connection = self._by_fd.get(fd)
        if connection is None:
            return False
        try:
            if connection.out:
                self._write(connection)
            is_there = self._by_fd.get(fd) is connection
            if is_there and events & ~select.POLLOUT and self._may_read(connection):
                self._read(connection)
        except OSError:
            self._give_up(connection)
        return True

    def on_frame(self, kind: int, stream: int, payload: bytes) -> None:
        """The server's news of a connection. Raises ``ValueError`` for bytes beyond the window."""
        connection = self._by_stream.get(stream)
        if connection is None:
            return  # given up, or over, while this was under way
        if kind == wire.CREDIT:
            connection.credit += wire.decode_credit(payload)
            return
        connection.granted -= len(payload)
        if connection.granted < 0:
            raise ValueError(f"bytes on connection {stream} that were not granted")
        connection.out += payload
        if kind == wire.END:
            connection.got_end = True
        try:
            self._write(connection)
        except OSError:
            self._give_up(connection)

    def on_abort(self, stream: int) -> None:
        """The server gives it up."""
        connection = self._by_stream.get(stream)
        if connection is not None:
            self._reset(connection)

    def _may_read(self, connection: _Connection) -> bool:
        return not connection.sent_end and connection.credit > 0 and self._link.backlog < BACKLOG_BYTES

    def _take(self) -> None:
        for _ in range(_TAKEN_AT_ONCE):
            if len(self._by_fd) >= wire.MAX_OPEN_CONNECTIONS:
                return
            try:
                fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - the socket module's own way
            except OSError:
                return  # nobody any more, or no descriptor left: it waits
            if self._next >= wire.FIRST_CONNECTION + wire.MAX_CONNECTIONS:
                os.close(fd)
                continue
            os.set_inheritable(fd, False)
            sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM, 0, fd)
            sock.setblocking(False)
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            connection = _Connection(self._next, sock)
            self._next += 1
            self._by_fd[fd] = self._by_stream[connection.stream] = connection
            self._link.control(type="open", stream=connection.stream)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(min(_READ_BYTES, connection.credit))
        except BlockingIOError:
            return
        if data:
            connection.credit -= len(data)
            self._link.data(connection.stream, data)
            return
        connection.sent_end = True
        self._link.end(connection.stream)
        self._forget_if_over(connection)

    def _write(self, connection: _Connection) -> None:
        while connection.out:
            try:
                count = connection.sock.send(connection.out)
            except BlockingIOError:
                return
            del connection.out[:count]
            connection.owed += count
        if connection.owed >= wire.CONNECTION_WINDOW_BYTES // 2 and not connection.got_end:
            connection.granted += connection.owed
            self._link.credit(connection.stream, connection.owed)
            connection.owed = 0
        if connection.got_end and not connection.shut:
            connection.sock.shutdown(_socket.SHUT_WR)
            connection.shut = True
            self._forget_if_over(connection)

    def _forget_if_over(self, connection: _Connection) -> None:
        if connection.sent_end and connection.shut:
            self._forget(connection)

    def _give_up(self, connection: _Connection) -> None:
        self._link.control(type="abort", stream=connection.stream)
        self._reset(connection)

    def _reset(self, connection: _Connection) -> None:
        connection.sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _RESET)
        self._forget(connection)

    def _forget(self, connection: _Connection) -> None:
        del self._by_fd[connection.fd]
        del self._by_stream[connection.stream]
        connection.sock.close()
