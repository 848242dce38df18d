"""The attached stream over a socket pair, the engine's end played by the test."""

import socket
from collections.abc import Iterator

import anyio
import pytest

from python_exec_sandbox.drivers.docker.channel import DIAGNOSIS_BYTES, AttachedChannel, RawStream
from tests.support.fake_engine import frame

pytestmark = pytest.mark.anyio


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def test_bytes_that_came_with_the_headers_come_first(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    whole = frame(1, b"early") + frame(1, b"later")
    channel = AttachedChannel(RawStream(ours, whole[:10]))
    theirs.sendall(whole[10:])
    theirs.shutdown(socket.SHUT_WR)
    with anyio.fail_after(5):
        received = b""
        while data := await channel.receive():
            received += data
    assert received == b"earlylater"
    channel.close()


async def test_what_the_runner_says_beside_the_protocol_is_kept_at_its_end(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = AttachedChannel(RawStream(ours, b""))
    theirs.sendall(frame(2, b"x" * 5000) + frame(2, b"Traceback: the end\n") + frame(1, b"!"))
    with anyio.fail_after(5):
        assert await channel.receive() == b"!"
    assert len(channel.diagnosis) <= DIAGNOSIS_BYTES
    assert channel.diagnosis.endswith("xTraceback: the end")
    channel.close()


async def test_an_end_in_the_middle_of_a_frame_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    channel = AttachedChannel(RawStream(ours, b""))
    theirs.sendall(frame(1, b"whole")[:-2])
    theirs.close()
    with anyio.fail_after(5):
        assert await channel.receive() == b"who"
        with pytest.raises(OSError, match="middle of a frame"):
            await channel.receive()
    channel.close()


async def test_close_wakes_a_pending_receive_and_tells_the_other_side(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = AttachedChannel(RawStream(ours, b""))
    got: list[bytes] = []

    async def receive() -> None:
        got.append(await channel.receive())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            channel.close()
            channel.close()
    assert got == [b""]
    theirs.settimeout(5)
    assert await anyio.to_thread.run_sync(theirs.recv, 1) == b""
    assert await channel.receive() == b""


async def test_a_send_larger_than_the_socket_arrives_whole_and_the_loop_stays_free(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = AttachedChannel(RawStream(ours, b""))
    data = bytes(range(256)) * 16 * 1024

    def read() -> bytes:
        read = bytearray()
        while len(read) < len(data):
            read += theirs.recv(65536)
        return bytes(read)

    async def send() -> None:
        await channel.send(data)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()  # the send waits for room; the loop is ours
            assert await anyio.to_thread.run_sync(read) == data
    channel.close()


async def test_close_ends_a_pending_send_with_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    channel = AttachedChannel(RawStream(ours, b""))
    failed: list[OSError] = []

    async def send() -> None:
        try:
            await channel.send(bytes(64 * 1024 * 1024))
        except OSError as error:
            failed.append(error)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            channel.close()
    assert len(failed) == 1
    with pytest.raises(BrokenPipeError):
        await channel.send(b"x")


async def test_a_cancelled_receive_loses_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    channel = AttachedChannel(RawStream(ours, b""))
    with anyio.CancelScope() as scope:
        scope.cancel()
        theirs.sendall(frame(1, b"kept"))
        await channel.receive()
    with anyio.fail_after(5):
        assert await channel.receive() == b"kept"
    channel.close()
