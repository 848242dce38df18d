"""A driver without a kernel: sandboxes whose runner is a task of the test that plays scenes.

The server's half (:class:`AttachedSandbox`, the session, the frames) is the real one; only the runner's end
of the channel is played. A scene says what the runner does once it has a script: honest ones for the
behaviours every driver must show, dishonest ones for faults that a real runner can't be brought to.
"""

import itertools
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from python_exec_sandbox.drivers.attached import AttachedSandbox
from python_exec_sandbox.errors import DriverError, PythonUnavailable
from python_exec_sandbox.model.result import Loss
from python_exec_sandbox.stream.frames import Frame, FrameDecoder, Kind, encode, encode_credit
from python_exec_sandbox.stream.protocol import PROTOCOL_VERSION, SCRIPT, STDERR, STDIN, STDOUT, WINDOW_BYTES

START_SECONDS = 5.0


class MemoryChannel:
    """A :class:`~python_exec_sandbox.drivers.attached.ByteChannel` to a runner in the same process."""

    def __init__(self) -> None:
        self.to_runner_in, self.to_runner = anyio.create_memory_object_stream[bytes](16)
        self.to_server_in, self.to_server = anyio.create_memory_object_stream[bytes](0)

    async def receive(self) -> bytes:
        try:
            return await self.to_server.receive()
        except anyio.EndOfStream:
            return b""
        except anyio.ClosedResourceError as error:
            raise OSError("closed") from error

    def send_now(self, data: bytes) -> int:
        try:
            self.to_runner_in.send_nowait(data)
        except anyio.WouldBlock:
            return 0
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise OSError("closed") from error
        return len(data)

    async def send(self, data: bytes) -> None:
        try:
            await self.to_runner_in.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise OSError("closed") from error

    def close(self) -> None:
        self.to_runner_in.close()
        self.to_server.close()

    def end(self) -> None:
        """The runner's side goes away."""
        self.to_runner.close()
        self.to_server_in.close()


@dataclass
class Stage:
    """What a scene has at hand: the job it got, and the honest and dishonest moves of a runner."""

    channel: MemoryChannel
    job: dict[str, Any]
    script: bytes
    stdin: bytes
    credit: dict[int, int] = field(default_factory=lambda: {STDOUT: WINDOW_BYTES, STDERR: WINDOW_BYTES})
    news: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)

    async def raw(self, data: bytes) -> None:
        await self.channel.to_server_in.send(data)

    async def control(self, **message: Any) -> None:
        await self.raw(encode(Kind.CONTROL, 0, json.dumps(message).encode()))

    async def running(self) -> None:
        await self.control(type="phase", name="running")

    async def output(self, stream: int, data: bytes) -> None:
        """Send ``data``, waiting for credit as a runner does."""
        left = memoryview(data)
        while left:
            while not self.credit[stream]:
                self.news = anyio.Event()
                await self.news.wait()
            piece = left[: min(65536, self.credit[stream])]
            left = left[len(piece) :]
            self.credit[stream] -= len(piece)
            await self.raw(encode(Kind.DATA, stream, bytes(piece)))

    async def exit(
        self, *, reason: str = "exited", code: int | None = None, signal: int | None = None, **usage: Any
    ) -> None:
        if reason not in ("install_failed", "install_time"):
            await self.raw(encode(Kind.END, STDOUT) + encode(Kind.END, STDERR))
        await self.control(
            type="exit",
            reason=reason,
            code=code,
            signal=signal,
            notes="",
            warm=True,
            usage={
                "run_seconds": 0.01,
                "install_seconds": 0.0,
                "cpu_seconds": 0.01,
                "peak_memory_bytes": 10_000_000,
                "memory_kills": 0,
                "process_refusals": 0,
                "full_paths": [],
            }
            | usage,
        )

    def die(self) -> None:
        self.channel.end()


Scene = Callable[[Stage], Coroutine[Any, Any, None]]


def play(
    stdout: bytes = b"", stderr: bytes = b"", code: int | None = None, signal: int | None = None, **usage: Any
) -> Scene:
    """A scene that prints and exits; code 0 unless said otherwise."""

    async def scene(stage: Stage) -> None:
        await stage.running()
        await stage.output(STDOUT, stdout)
        await stage.output(STDERR, stderr)
        await stage.exit(code=0 if code is None and signal is None else code, signal=signal, **usage)

    return scene


def until_stopped(stdout: bytes = b"") -> Scene:
    """A script that prints and goes on until its time is over or the server stops it."""

    async def scene(stage: Stage) -> None:
        await stage.running()
        await stage.output(STDOUT, stdout)
        reason = "run_time"
        with anyio.move_on_after(stage.job["run_seconds"]):
            await stage.stopped.wait()
            reason = "stopped"
        await stage.exit(reason=reason)

    return scene


class FakeRunner:
    """The runner's end: greets, answers pings, takes one job and plays its scene."""

    def __init__(self, channel: MemoryChannel, scenes: dict[str, Scene], pythons: list[str]) -> None:
        self._channel = channel
        self._scenes = scenes
        self._pythons = pythons
        self._job: dict[str, Any] | None = None
        self._script = b""
        self._stdin = b""
        self._stage: Stage | None = None
        self.silent = False

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                await self._send(type="hello", protocol=PROTOCOL_VERSION, pythons=self._pythons)
                await self._send(type="ready", warm=True)
                decoder = FrameDecoder()
                async for data in self._channel.to_runner:
                    for frame in decoder.feed(data):
                        await self._on_frame(frame, tasks)
                tasks.cancel_scope.cancel()
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the server closed: the dead-man switch
        finally:
            self._channel.end()

    async def _send(self, **message: Any) -> None:
        await self._channel.to_server_in.send(encode(Kind.CONTROL, 0, json.dumps(message).encode()))

    async def _on_frame(self, frame: Frame, tasks: TaskGroup) -> None:
        match frame.kind:
            case Kind.CONTROL:
                await self._on_message(json.loads(frame.payload))
            case Kind.DATA:
                await self._on_data(frame)
            case Kind.END if frame.stream == STDIN:
                self._begin(tasks)
            case Kind.CREDIT if self._stage is not None:
                self._stage.credit[frame.stream] += frame.credit()
                self._stage.news.set()
            case _:
                pass

    async def _on_message(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "ping" if not self.silent:
                await self._send(type="pong", n=message["n"])
            case "job":
                self._job = message
            case "stop" if self._stage is not None:
                self._stage.stopped.set()
            case _:
                pass

    async def _on_data(self, frame: Frame) -> None:
        if frame.stream == SCRIPT:
            self._script += frame.payload
        else:
            self._stdin += frame.payload
        await self._channel.to_server_in.send(encode_credit(frame.stream, len(frame.payload)))

    def _begin(self, tasks: TaskGroup) -> None:
        assert self._job is not None
        self._stage = Stage(self._channel, self._job, self._script, self._stdin)
        tasks.start_soon(self._scenes[self._script.decode()], self._stage)


@dataclass
class FakeKeeper:
    """Removes at once; says what it was told to say."""

    channel: MemoryChannel
    runner: FakeRunner
    loss: tuple[Loss, str] = (Loss.KILLED, "ended from outside")
    removed: bool = False
    watched: bool = False
    halted: bool = False

    async def explain_loss(self) -> tuple[Loss, str]:
        return self.loss

    async def remove(self) -> None:
        self.removed = True
        self.channel.end()


class FakeDriver:
    """Fulfils :class:`~python_exec_sandbox.drivers.base.Driver`; ``scenes`` maps a script's text to its scene."""

    name = "fake"
    activity: str | None = None

    def __init__(self, scenes: dict[str, Scene], pythons: tuple[str, ...] = ("3.13", "3.14", "3.15")) -> None:
        self._scenes = scenes
        self._pythons = pythons
        self._numbers = itertools.count(1)
        self._tasks: TaskGroup | None = None
        self.keepers: dict[str, FakeKeeper] = {}
        self.refuse: DriverError | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    async def create(self, python: str) -> AttachedSandbox:
        assert self._tasks is not None
        if self.refuse is not None:
            raise self.refuse
        if python not in self._pythons:
            raise PythonUnavailable(f"no Python {python}")
        channel = MemoryChannel()
        runner = FakeRunner(channel, self._scenes, list(self._pythons))
        name = f"fake-{next(self._numbers)}"
        self.keepers[name] = FakeKeeper(channel, runner)
        sandbox = AttachedSandbox(name, python, channel, self.keepers[name])
        self._tasks.start_soon(runner.run)
        self._tasks.start_soon(sandbox.pump)
        await sandbox.wait_ready(START_SECONDS)
        return sandbox

    async def sweep(self) -> int:
        return 0
