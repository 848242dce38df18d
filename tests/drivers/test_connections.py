"""Connections of a run as the driver's side serves them, against a runner that is played."""

import json
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import pytest

from python_exec_sandbox.drivers.attached import AttachedSandbox
from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.errors import PoolUnavailable
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits
from python_exec_sandbox.model.result import Loss, OutputStream, Phase, RunReport, StopReason
from python_exec_sandbox.stream.connections import CONNECTION_WINDOW_BYTES, FIRST_CONNECTION
from python_exec_sandbox.stream.frames import Frame, FrameDecoder, Kind, encode, encode_credit
from tests.support.fake_driver import FakeDriver, Stage, play

pytestmark = pytest.mark.anyio

A = FIRST_CONNECTION

Serve = Callable[[Connection], Awaitable[None]]
Act = Callable[[Stage], Awaitable[None]]


class Watcher:
    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    async def serve(self, connection: Connection) -> None:
        await self._serve(connection)

    def phase(self, phase: Phase) -> None: ...

    async def output(self, stream: OutputStream, data: bytes) -> None: ...


async def run(act: Act, serve: Serve, run_seconds: float = 5) -> RunReport:
    """A run whose runner opens one connection and then acts."""

    async def scene(stage: Stage) -> None:
        await stage.running()
        await stage.control(type="open", stream=A)
        await act(stage)
        await stage.exit(code=0)

    async with FakeDriver({"script": scene}) as driver:
        sandbox = await driver.create("3.13")
        job = Job("r", b"script", "3.13", RunLimits(run_seconds))
        with anyio.fail_after(10):
            return await sandbox.run(job, Watcher(serve))


async def nothing(stage: Stage) -> None: ...


async def test_what_the_script_sends_arrives_and_its_end() -> None:
    got: list[bytes] = []
    done = anyio.Event()

    async def serve(connection: Connection) -> None:
        while data := await connection.receive():
            got.append(data)
        await connection.send(b"answer")
        await connection.send_end()
        done.set()

    async def act(stage: Stage) -> None:
        await stage.raw(encode(Kind.DATA, A, b"question") + encode(Kind.END, A))
        await done.wait()

    report = await run(act, serve)
    assert report.reason is StopReason.EXITED
    assert b"".join(got) == b"question"


async def test_an_abort_of_the_scripts_ends_what_waits_for_it() -> None:
    ended = anyio.Event()

    async def serve(connection: Connection) -> None:
        try:
            await connection.receive()
        finally:
            ended.set()

    async def act(stage: Stage) -> None:
        await stage.control(type="abort", stream=A)
        await ended.wait()

    assert (await run(act, serve)).reason is StopReason.EXITED


async def test_what_was_done_for_a_connection_that_the_script_gave_up_is_given_up_too() -> None:
    """Else it would hold a socket of the server's that no bound counts any more."""
    ended = anyio.Event()

    async def serve(connection: Connection) -> None:
        try:
            await anyio.sleep_forever()  # as for an answer that never comes
        finally:
            ended.set()

    async def act(stage: Stage) -> None:
        await stage.control(type="abort", stream=A)
        await ended.wait()

    assert (await run(act, serve)).reason is StopReason.EXITED


async def test_a_fault_of_one_connection_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    faulty = anyio.Event()

    async def serve(connection: Connection) -> None:
        faulty.set()
        raise RuntimeError("a fault of ours")

    async def act(stage: Stage) -> None:
        await faulty.wait()
        await anyio.wait_all_tasks_blocked()

    assert (await run(act, serve)).reason is StopReason.EXITED
    assert "a fault of ours" in caplog.text


async def test_a_run_whose_runner_takes_nothing_any_more_ends_by_its_clock_and_its_connections_with_it() -> (
    None
):
    cancelled = anyio.Event()

    async def serve(connection: Connection) -> None:
        try:
            while True:
                await connection.send(b"x" * CONNECTION_WINDOW_BYTES)
        finally:
            cancelled.set()

    async def act(stage: Stage) -> None:
        for _ in range(100):
            await stage.raw(encode_credit(A, 1_000_000))
            await anyio.wait_all_tasks_blocked()

    report = await run(act, serve, run_seconds=0.2)
    assert (report.reason, report.loss) == (StopReason.LOST, Loss.SILENT)
    assert cancelled.is_set()


async def test_a_watchers_own_exception_reaches_the_caller_alone() -> None:
    class Raises(Watcher):
        async def output(self, stream: OutputStream, data: bytes) -> None:
            raise PoolUnavailable("of the watcher's")

    async def serve(connection: Connection) -> None: ...

    async with FakeDriver({"script": play(b"output")}) as driver:
        sandbox = await driver.create("3.13")
        with pytest.raises(PoolUnavailable), anyio.fail_after(10):
            await sandbox.run(Job("r", b"script", "3.13", RunLimits(run_seconds=5)), Raises(serve))


class Halting:
    """A channel that takes half of what is sent and the rest only when it is let go on."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.go_on = anyio.Event()
        self.halted = anyio.Event()
        self.halts = False
        self.in_, self.out = anyio.create_memory_object_stream[bytes](100)

    async def receive(self) -> bytes:
        try:
            return await self.out.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""

    def send_now(self, data: bytes) -> int:
        if self.halts:
            return 0
        self.taken += data
        return len(data)

    async def send(self, data: bytes) -> None:
        half = len(data) // 2
        self.taken += data[:half]
        self.halted.set()
        await self.go_on.wait()
        self.taken += data[half:]

    def close(self) -> None:
        self.in_.close()
        self.out.close()

    def says(self, **message: object) -> None:
        self.in_.send_nowait(encode(Kind.CONTROL, 0, json.dumps(message).encode()))


class Keeper:
    watched = True
    halted = False


async def test_a_connection_given_up_in_the_middle_of_a_frame_leaves_the_frame_whole() -> None:
    channel = Halting()
    sandbox = AttachedSandbox("s", "3.13", channel, Keeper())  # type: ignore[arg-type]  # nothing else is asked
    given_up = anyio.Event()

    async def serve(connection: Connection) -> None:
        async with anyio.create_task_group() as tasks:
            channel.halts = True
            tasks.start_soon(connection.send, b"y" * 1000)
            await channel.halted.wait()
            tasks.cancel_scope.cancel()
            channel.halts = False
            channel.go_on.set()
        given_up.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.pump)
        channel.says(type="hello", protocol=3, pythons=["3.13"])
        channel.says(type="ready", warm=True)
        with anyio.fail_after(10):
            await sandbox.wait_ready(5)
            tasks.start_soon(sandbox.run, Job("r", b"s", "3.13", RunLimits(run_seconds=5)), Watcher(serve))
            await anyio.wait_all_tasks_blocked()
            channel.says(type="phase", name="running")
            channel.says(type="open", stream=A)
            await given_up.wait()
            await anyio.wait_all_tasks_blocked()
        frames = FrameDecoder().feed(bytes(channel.taken))
        tasks.cancel_scope.cancel()
    assert Frame(Kind.DATA, A, b"y" * 1000) in frames
    assert frames[-1].kind is Kind.CONTROL
    assert json.loads(frames[-1].payload) == {"type": "abort", "stream": A}
