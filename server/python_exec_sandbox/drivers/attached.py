"""A sandbox as seen through its runner's byte stream; the same for every driver.

A driver supplies the stream (:class:`ByteChannel`) and what the stream can't tell or do
(:class:`Keeper`); :class:`AttachedSandbox` makes a :class:`~.base.Sandbox` of them.
"""

import itertools
import logging
from typing import Protocol

import anyio

from python_exec_sandbox.drivers.base import RunWatcher
from python_exec_sandbox.drivers.connections import ServedConnections
from python_exec_sandbox.errors import CreateFailed, DriverError, ProtocolViolation, PythonUnavailable
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.result import Loss, OutputStream, Phase, RunReport, StopReason
from python_exec_sandbox.stream.connections import (
    ConnectionAborted,
    ConnectionData,
    ConnectionOpened,
    ConnectionRoom,
)
from python_exec_sandbox.stream.protocol import Exited, Fault, Hello, PhaseEntered, Pong, Ready
from python_exec_sandbox.stream.session import Event, Output, RunnerSession

logger = logging.getLogger(__name__)

PING_SECONDS = 2.0
"""An idle runner answers within a millisecond; this long without an answer means paused or gone."""

START_SECONDS = 15.0
"""From the job to the script's first instruction, nothing to install: 40 ms, seconds on a loaded machine."""

OUTER_GRACE_SECONDS = 2.0
"""What the runner may take beyond a limit to stop the script and report, before the server gives it up."""

STOP_SECONDS = 0.5
"""How long a cancelled run may take to hand its stop to the stream; the sandbox is destroyed anyway."""


class ByteChannel(Protocol):
    """Both directions of a runner's byte stream."""

    async def receive(self) -> bytes:
        """The next bytes as soon as there are any (at most 256 KiB); ``b""`` once the other side ended.
        Only one task receives. Raises ``OSError`` when the stream broke."""

    def send_now(self, data: bytes) -> int:
        """Send what can go without waiting; how many bytes went. Raises ``OSError`` when the stream broke.
        Not to be called while a :meth:`send` is under way."""

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Only one task sends at a time. Raises ``OSError`` when the stream broke.
        A cancelled send may have sent a part."""

    def close(self) -> None:
        """Close both directions at once; no wait, may be called twice. A pending receive ends."""


class Keeper(Protocol):
    """The driver's side of one sandbox: what the byte stream can't tell or do."""

    @property
    def watched(self) -> bool:
        """As :attr:`~.base.Sandbox.watched`."""

    @property
    def halted(self) -> bool:
        """Whether somebody paused it, as far as is known; costs nothing."""

    async def explain_loss(self) -> tuple[Loss, str]:
        """Why the stream ended without a report, and one sentence about it; answers within 2 s."""

    async def remove(self) -> None:
        """End the sandbox and confirm it. Raises ``DriverError``."""


class AttachedSandbox:
    """A :class:`~.base.Sandbox` whose runner is at the other end of ``channel``.

    :meth:`pump` must run in a task of the driver's for the sandbox's whole life.
    """

    def __init__(self, sandbox_id: str, python: str, channel: ByteChannel, keeper: Keeper) -> None:
        self.id = sandbox_id
        self.python = python
        self.pythons: tuple[str, ...] = ()
        self._channel = channel
        self._keeper = keeper
        self._session = RunnerSession()
        self._sending = anyio.Lock()
        self._unsent = b""
        self._ready = anyio.Event()
        self._pings = itertools.count(1)
        self._pongs: dict[int, anyio.Event] = {}
        self._ended = anyio.Event()
        self._inbox = _Inbox()
        self._violation: ProtocolViolation | None = None
        self._used = False
        self._connections = ServedConnections(self._session, self._send_whole)

    @property
    def alive(self) -> bool:
        return (
            self._ready.is_set() and not self._ended.is_set() and not self._used and not self._keeper.halted
        )

    @property
    def watched(self) -> bool:
        return self._keeper.watched

    async def wait_ended(self) -> None:
        await self._ended.wait()

    async def pump(self) -> None:
        """Carry bytes from the channel into the session until either ends."""
        try:
            while data := await self._channel.receive():
                for event in self._session.receive(data):
                    self._on_event(event)
                if not self._sending.locked():  # whoever sends takes what has come up since, too
                    await self._flush()
        except OSError as error:
            logger.debug("sandbox %s: stream broke: %s", self.id, error)
        except ProtocolViolation as error:
            logger.warning("sandbox %s: %s", self.id, error)
            self._violation = error
        finally:
            self._channel.close()
            self._ended.set()
            self._ready.set()
            self._inbox.close()

    async def wait_ready(self, timeout_seconds: float) -> None:
        """Return once the runner waits for a job.

        Raises:
            ProtocolViolation: it doesn't speak our protocol, or another version of it.
            PythonUnavailable: it doesn't have this version.
            CreateFailed: it ended before, or took longer than ``timeout_seconds``.
        """
        with anyio.move_on_after(timeout_seconds):
            await self._ready.wait()
        if self._violation is not None:
            raise self._violation
        if self._ended.is_set():
            if self.pythons and self.python not in self.pythons:
                raise PythonUnavailable(
                    f"the sandbox image has no Python {self.python}, but {', '.join(self.pythons)}"
                )
            _, detail = await self._keeper.explain_loss()
            raise CreateFailed(f"the sandbox ended before it was ready: {self._inbox.fault or detail}")
        if not self._ready.is_set():
            raise CreateFailed(f"the sandbox was not ready within {timeout_seconds:g} s")

    async def check(self) -> bool:
        if not self.alive:
            return False
        number = next(self._pings)
        pong = self._pongs[number] = anyio.Event()
        self._session.ping(number)
        try:
            with anyio.move_on_after(PING_SECONDS):
                await self._flush()
                await pong.wait()
        except OSError:
            return False
        finally:
            self._pongs.pop(number, None)
        return pong.is_set() and self.alive

    async def run(self, job: Job, watcher: RunWatcher) -> RunReport:
        if self._used:
            raise RuntimeError(f"sandbox {self.id} was used before")
        self._used = True
        if self._ended.is_set():
            return await self._lost()
        try:
            return await self._run_and_serve(job, watcher)
        except anyio.get_cancelled_exc_class():
            await self._stop()
            raise

    async def destroy(self) -> None:
        self._channel.close()
        await self._keeper.remove()

    async def _run_and_serve(self, job: Job, watcher: RunWatcher) -> RunReport:
        """The run, beside its connections, which end with it."""
        failure: Exception | None = None
        report = RunReport(StopReason.LOST)
        async with anyio.create_task_group() as tasks:
            self._connections.begin(tasks, watcher.serve)
            try:
                self._session.start(job)
                await self._send_or_end()
                report = await self._follow(job, watcher)
            except Exception as error:  # noqa: BLE001 - raised below, out of its group
                failure = error
            finally:
                self._connections.stop()
                tasks.cancel_scope.cancel()
                if self._sending.locked():  # a runner that takes nothing must not keep the run from its end
                    self._channel.close()
        if failure is not None:
            raise failure
        return report

    async def _follow(self, job: Job, watcher: RunWatcher) -> RunReport:
        """Hand on what arrives until the report, the loss, or the end of the outer clock."""
        # In an environment, code of packages may run before the script does (.pth files).
        has_packages = job.requirements or job.environment
        installing = job.limits.install_seconds if has_packages else START_SECONDS
        deadline = anyio.current_time() + installing + OUTER_GRACE_SECONDS
        inbox = self._inbox
        while True:
            with anyio.move_on_at(deadline):
                await inbox.wait()
            for phase in inbox.take_phases():
                watcher.phase(phase)
                if phase is Phase.RUNNING:
                    deadline = anyio.current_time() + job.limits.run_seconds + OUTER_GRACE_SECONDS
            await self._hand_on(watcher, deadline)
            if inbox.report is not None:
                return inbox.report
            if inbox.closed:
                return await self._lost()
            if anyio.current_time() >= deadline:  # not "was cancelled": in a flood there is always news
                return RunReport(StopReason.LOST, loss=Loss.SILENT)

    async def _hand_on(self, watcher: RunWatcher, deadline: float) -> None:
        consumed = False
        for stream in OutputStream:
            while data := self._inbox.take_output(stream):
                await watcher.output(stream, data)
                self._session.grant(stream, len(data))
                consumed = True
        if consumed and self._inbox.report is None:  # after that nobody needs more credit
            with anyio.move_on_at(deadline):  # a runner that takes nothing is found out by the clock
                await self._send_or_end()

    async def _lost(self) -> RunReport:
        if self._violation is not None:
            return RunReport(StopReason.LOST, loss=Loss.PROTOCOL, notes=str(self._violation))
        if self._inbox.fault is not None:
            return RunReport(StopReason.LOST, loss=Loss.FAULT, notes=self._inbox.fault)
        try:
            loss, detail = await self._keeper.explain_loss()
        except DriverError as error:
            loss, detail = Loss.KILLED, str(error)
        return RunReport(StopReason.LOST, loss=loss, notes=detail)

    async def _stop(self) -> None:
        with anyio.move_on_after(STOP_SECONDS, shield=True):
            self._session.stop()
            await self._send_or_end()

    async def _send_or_end(self) -> None:
        """Flush; a broken stream is noticed by the pump, which sees its end."""
        try:
            await self._flush()
        except OSError as error:
            logger.debug("sandbox %s: send failed: %s", self.id, error)
            self._channel.close()

    async def _send_whole(self) -> None:
        """As :meth:`_send_or_end`, to the end also when the caller is cancelled meanwhile: one connection's end must
        not cut a frame in two, which all others' would be read behind."""
        if self._connections.serving:
            with anyio.CancelScope(shield=True):
                await self._send_or_end()

    async def _flush(self) -> None:
        """Send what the session has to say; nearly always it goes at once, without a turn of the loop."""
        if not self._sending.locked():
            self._unsent += self._session.take()
            if self._unsent:
                self._unsent = self._unsent[self._channel.send_now(self._unsent) :]
            if not self._unsent:
                return
        async with self._sending:
            while data := self._unsent + self._session.take():
                self._unsent = b""
                await self._channel.send(data)

    def _on_event(self, event: Event) -> None:
        match event:
            case Hello(pythons):
                self.pythons = pythons
            case Ready():
                self._ready.set()
            case Pong(number):
                if pong := self._pongs.get(number):
                    pong.set()
            case PhaseEntered(phase):
                self._inbox.add_phase(phase)
            case Output(stream, data):
                self._inbox.add_output(stream, data)
            case Exited(report):
                self._inbox.finish(report)
            case Fault(text):
                self._inbox.fault = text or "the runner failed"
            case ConnectionOpened() | ConnectionData() | ConnectionRoom() | ConnectionAborted():
                self._connections.on_event(event)


class _Inbox:
    """What arrived and was not handed on yet. The stream's credit bounds it."""

    def __init__(self) -> None:
        self._output = {stream: bytearray() for stream in OutputStream}
        self._phases: list[Phase] = []
        self._news = anyio.Event()
        self.report: RunReport | None = None
        self.fault: str | None = None
        self.closed = False

    async def wait(self) -> None:
        """Return when there is something to look at."""
        if not (self.closed or self.report is not None):
            await self._news.wait()
        self._news = anyio.Event()

    def add_phase(self, phase: Phase) -> None:
        self._phases.append(phase)
        self._news.set()

    def add_output(self, stream: OutputStream, data: bytes) -> None:
        self._output[stream] += data
        self._news.set()

    def finish(self, report: RunReport) -> None:
        self.report = report
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    def take_phases(self) -> list[Phase]:
        phases, self._phases = self._phases, []
        return phases

    def take_output(self, stream: OutputStream) -> bytes:
        data = bytes(self._output[stream])
        self._output[stream].clear()
        return data
