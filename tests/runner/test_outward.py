"""The sandbox's end of connections: real sockets on one side, frames on the other."""

import contextlib
import json
import os
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from runner import wire
from runner.link import Link
from runner.outward import Outward

PATIENCE = 1000
"""Looks at the sockets; each waits a moment where there is nothing to do."""


class Sandbox:
    """An :class:`Outward` with a server that takes all it says and a script that calls."""

    def __init__(self) -> None:
        self._ends = socket.socketpair()
        for end in self._ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        ours, theirs = self._ends
        ours.setblocking(False)
        self._server = ours
        fd = theirs.detach()
        self._fds = (fd, os.dup(fd))
        self.link = Link(*self._fds)
        self.outward = Outward(self.link)
        self.outward.open()
        self._decoder = wire.Decoder()
        self.frames: list[tuple[int, int, bytes]] = []

    def close(self) -> None:
        self.outward.close()
        self._server.close()
        for fd in self._fds:
            os.close(fd)

    def call(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.outward.port))
        sock.setblocking(False)
        return sock

    def turn(self) -> None:
        """One round of the runner's loop."""
        poll = select.poll()
        self.outward.register(poll)
        for fd, events in poll.poll(2):
            self.outward.on_event(fd, events)
        self.link.flush()
        try:
            self.frames += self._decoder.feed(self._server.recv(1 << 20))
        except BlockingIOError:
            return

    def until(self, found: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            if found():
                return
            self.turn()
        raise AssertionError("it did not come")

    def settle(self, rounds: int = 20) -> None:
        for _ in range(rounds):
            self.turn()

    def data(self, stream: int) -> bytes:
        return b"".join(p for kind, number, p in self.frames if kind == wire.DATA and number == stream)

    def has(self, kind: int, stream: int) -> bool:
        return any(frame[:2] == (kind, stream) for frame in self.frames)

    def told(self, word: str) -> list[int]:
        messages = [json.loads(payload) for kind, _, payload in self.frames if kind == wire.CONTROL]
        return [message["stream"] for message in messages if message["type"] == word]


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox()
    yield made
    made.close()


A = wire.FIRST_CONNECTION


def opened(sandbox: Sandbox) -> socket.socket:
    sock = sandbox.call()
    sandbox.until(lambda: sandbox.told("open") == [A])
    return sock


def test_bytes_go_both_ways_and_each_end_by_itself(sandbox: Sandbox) -> None:
    with opened(sandbox) as sock:
        sock.send(b"question")
        sock.shutdown(socket.SHUT_WR)
        sandbox.until(lambda: sandbox.has(wire.END, A))
        assert sandbox.data(A) == b"question"
        sandbox.outward.on_frame(wire.DATA, A, b"answer")
        sandbox.outward.on_frame(wire.END, A, b"")
        sock.setblocking(True)
        assert sock.recv(100) == b"answer"
        assert sock.recv(100) == b""
    assert not sandbox.told("abort")


def test_a_script_that_sends_more_than_the_server_takes_waits(sandbox: Sandbox) -> None:
    with opened(sandbox) as sock:
        sent = 0
        for _ in range(200):
            try:
                sent += sock.send(b"x" * 65536)
            except BlockingIOError:
                sandbox.turn()
        assert len(sandbox.data(A)) == wire.CONNECTION_WINDOW_BYTES
        assert sent > wire.CONNECTION_WINDOW_BYTES
        sandbox.outward.on_frame(wire.CREDIT, A, (1000).to_bytes(4, "big"))
        sandbox.until(lambda: len(sandbox.data(A)) == wire.CONNECTION_WINDOW_BYTES + 1000)


def test_what_a_script_does_not_read_is_not_granted_again(sandbox: Sandbox) -> None:
    with opened(sandbox) as sock:
        given = 0
        allowed = wire.CONNECTION_WINDOW_BYTES
        while given + 65536 <= allowed and given < 64 * 1024 * 1024:
            sandbox.outward.on_frame(wire.DATA, A, b"y" * 65536)
            given += 65536
            sandbox.settle(3)
            grants = [
                payload for kind, stream, payload in sandbox.frames if (kind, stream) == (wire.CREDIT, A)
            ]
            allowed = wire.CONNECTION_WINDOW_BYTES + sum(map(wire.decode_credit, grants))
        assert given < 64 * 1024 * 1024
        got = 0

        def read() -> bool:
            nonlocal got
            with contextlib.suppress(BlockingIOError):
                got += len(sock.recv(1 << 20))
            return got == given

        sandbox.until(read)


def test_bytes_beyond_the_window_are_an_error_of_the_servers(sandbox: Sandbox) -> None:
    with opened(sandbox), pytest.raises(ValueError, match="not granted"):
        flood(sandbox)


def flood(sandbox: Sandbox) -> None:
    for _ in range(1000):
        sandbox.outward.on_frame(wire.DATA, A, b"z" * 65536)


def test_an_abort_resets_the_script_and_late_frames_are_dropped(sandbox: Sandbox) -> None:
    with opened(sandbox) as sock:
        sandbox.outward.on_abort(A)
        sock.setblocking(True)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        sandbox.outward.on_frame(wire.DATA, A, b"late")
        sandbox.outward.on_abort(A)
    assert not sandbox.told("abort")


def test_a_script_that_hangs_up_hard_is_reported_once(sandbox: Sandbox) -> None:
    sock = opened(sandbox)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
    sandbox.until(lambda: bool(sandbox.told("abort")))
    sandbox.outward.on_frame(wire.DATA, A, b"late")
    sandbox.settle()
    assert sandbox.told("abort") == [A]


def test_only_so_many_are_taken_at_once_and_the_others_wait(sandbox: Sandbox) -> None:
    socks = [sandbox.call() for _ in range(wire.MAX_OPEN_CONNECTIONS + 30)]
    sandbox.settle(60)
    assert sandbox.told("open") == list(range(A, A + wire.MAX_OPEN_CONNECTIONS))
    sandbox.outward.on_abort(A)
    sandbox.until(lambda: len(sandbox.told("open")) == wire.MAX_OPEN_CONNECTIONS + 1)
    for sock in socks:
        sock.close()


def test_nothing_is_taken_before_it_is_opened_nor_after_the_end() -> None:
    made = Sandbox()
    made.outward._is_open = False
    with made.call() as sock:
        made.settle()
        assert not made.frames
        made.outward.open()
        made.until(lambda: made.told("open") == [A])
        made.outward.close()
        sock.setblocking(True)
        assert sock.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            made.call()
    made.close()


def test_its_numbers_are_the_servers() -> None:
    from python_exec_sandbox.stream import connections, protocol

    ours = (
        wire.FIRST_CONNECTION,
        wire.CONNECTION_WINDOW_BYTES,
        wire.MAX_OPEN_CONNECTIONS,
        wire.MAX_CONNECTIONS,
    )
    assert ours == (
        connections.FIRST_CONNECTION,
        connections.CONNECTION_WINDOW_BYTES,
        connections.MAX_OPEN_CONNECTIONS,
        connections.MAX_CONNECTIONS,
    )
    assert wire.PROTOCOL_VERSION == protocol.PROTOCOL_VERSION
