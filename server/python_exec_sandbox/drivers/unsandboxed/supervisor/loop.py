r"""The supervisor's loop: one thread, one poll, one script.

::

    IDLE --job--> INSTALLING --launcher waits--> RUNNING --end, time, stop--> DRAINING --exit sent--> DONE
                      \\--uv failed, time, stop------------------------------------^

It speaks the runner protocol (:mod:`python_exec_sandbox.stream.protocol`), so to the server it is a runner
like any other.
"""

import contextlib
import json
import os
import select
import time
from dataclasses import dataclass, field
from enum import Enum, auto

from python_exec_sandbox.drivers.unsandboxed.supervisor import folder
from python_exec_sandbox.drivers.unsandboxed.supervisor.link import BACKLOG_BYTES, Link
from python_exec_sandbox.drivers.unsandboxed.supervisor.process import Command, ScriptProcess
from python_exec_sandbox.drivers.unsandboxed.supervisor.spec import SupervisorSpec
from python_exec_sandbox.drivers.unsandboxed.supervisor.tree import Children
from python_exec_sandbox.stream.frames import Frame, Kind

PROTOCOL_VERSION = 3
WINDOW_BYTES = 512 * 1024
STDIN, STDOUT, STDERR, SCRIPT = 1, 2, 3, 4
"""Of :mod:`python_exec_sandbox.stream.protocol`, which imports more than a bare interpreter has; a test
compares them."""

INTERRUPT_SECONDS = 0.5
"""Between SIGINT and SIGKILL at the end of a script's time: enough to flush files and show where it was."""

LOOK_SECONDS = 0.02
"""Between two looks at a script whose end nothing tells of (kernels before 5.3)."""

_PIPE_READ_BYTES = 64 * 1024
_NOTES_TEXT = 8 * 1024


class State(Enum):
    IDLE = auto()
    INSTALLING = auto()
    RUNNING = auto()
    DRAINING = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Job:
    """The job as the server sent it."""

    command: Command
    script_bytes: int
    install_seconds: float
    output_bytes: int

    @classmethod
    def of(cls, message: dict[str, object]) -> "Job":
        return cls(
            Command(
                python=str(message["python"]),
                args=_texts(message["args"]),
                requirements=_texts(message["requirements"]),
                run_seconds=float(str(message["run_seconds"])),
            ),
            script_bytes=int(str(message["script_bytes"])),
            install_seconds=float(str(message["install_seconds"])),
            output_bytes=int(str(message["output_bytes"])),
        )


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return [str(one) for one in value]


@dataclass(slots=True)
class _Output:
    """One of the script's output pipes on its way to the server."""

    stream: int
    credit: int = WINDOW_BYTES
    ended: bool = False


@dataclass(slots=True)
class _Clocks:
    """Monotonic moments and spans, in seconds."""

    install_began: float = 0.0
    run_began: float = 0.0
    installing: float = 0.0
    running: float = 0.0
    deadline: float | None = None


@dataclass(slots=True)
class Supervisor:
    """Holds the one run of one sandbox that is none."""

    spec: SupervisorSpec
    link: Link
    wake: int
    """Readable when a child ended."""
    children: Children = field(default_factory=Children)
    process: ScriptProcess | None = None
    _state: State = State.IDLE
    _job: Job | None = None
    _script: bytearray = field(default_factory=bytearray)
    _stdin: bytearray = field(default_factory=bytearray)
    _stdin_ended: bool = False
    _outputs: dict[int, _Output] = field(default_factory=lambda: {n: _Output(n) for n in (STDOUT, STDERR)})
    _output_bytes: int = 0
    _clocks: _Clocks = field(default_factory=_Clocks)
    _reason: str = ""
    _status: int | None = None
    _cpu_seconds: float | None = None
    _lingering: bool = False

    def run(self) -> None:
        """Serve until the server is gone. Raises :class:`~.link.ServerGone`."""
        self.link.control(type="hello", protocol=PROTOCOL_VERSION, pythons=list(self.spec.pythons))
        self.link.control(type="ready", warm=False)
        self.link.flush()
        while True:
            self._wait()
            self.children.reap()
            for frame in self.link.receive():
                self._on_frame(frame)
            self._advance()
            self.link.flush()

    # -- waiting -------------------------------------------------------------------------------------

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self.link.fd, select.POLLIN | (select.POLLOUT if self.link.backlog else 0))
        poll.register(self.wake, select.POLLIN)
        if self.process is not None:
            self._register(poll, self.process)
        for fd, _ in poll.poll(self._timeout_ms()):
            if fd == self.wake:
                os.read(self.wake, 4096)

    def _register(self, poll: select.poll, process: ScriptProcess) -> None:
        match self._state:
            case State.INSTALLING:
                poll.register(process.report_fd, select.POLLIN)
                poll.register(process.notes_fd, select.POLLIN)
            case State.RUNNING | State.DRAINING:
                for fd, output in self._readable(process):
                    if output.credit and not output.ended and self.link.backlog < BACKLOG_BYTES:
                        poll.register(fd, select.POLLIN)
        if self._state is State.RUNNING:
            if process.ending_fd is not None:
                poll.register(process.ending_fd, select.POLLIN)
            if self._stdin and process.stdin >= 0:
                poll.register(process.stdin, select.POLLOUT)

    def _timeout_ms(self) -> int | None:
        if self._state is State.RUNNING and self.process is not None and self.process.must_be_asked:
            return int(LOOK_SECONDS * 1000)
        if self._clocks.deadline is None:
            return None
        return max(0, int((self._clocks.deadline - time.monotonic()) * 1000) + 1)

    def _readable(self, process: ScriptProcess) -> list[tuple[int, _Output]]:
        return [(process.stdout, self._outputs[STDOUT]), (process.stderr, self._outputs[STDERR])]

    # -- what the server says ------------------------------------------------------------------------

    def _on_frame(self, frame: Frame) -> None:
        match frame.kind, frame.stream:
            case Kind.CONTROL, _:
                self._on_message(json.loads(frame.payload))
            case Kind.DATA, 4:
                self._script += frame.payload
                self.link.credit(SCRIPT, len(frame.payload))
            case Kind.DATA, 1:
                self._stdin += frame.payload
            case Kind.END, 4:
                self._start()
            case Kind.END, 1:
                self._stdin_ended = True
            case Kind.CREDIT, (2 | 3) as stream:
                self._outputs[stream].credit += frame.credit()
            case _:
                raise ValueError(f"frame of kind {frame.kind} on stream {frame.stream}")

    def _on_message(self, message: dict[str, object]) -> None:
        match message.get("type"):
            case "ping":
                self.link.control(type="pong", n=message["n"])
            case "job" if self._job is None:
                self._job = Job.of(message)
            case "stop":
                if self._state in (State.RUNNING, State.INSTALLING):
                    self._conclude("stopped")
            case other:
                raise ValueError(f"message {other!r}")

    def _start(self) -> None:
        """The script is here: write it down and let uv prepare its interpreter."""
        job = self._current()
        if len(self._script) != job.script_bytes:
            raise ValueError(f"a script of {len(self._script)} bytes, {job.script_bytes} were announced")
        with open(folder.script_path(self.spec.folder), "wb") as file:
            file.write(self._script)
        self._script.clear()
        if job.command.requirements:
            self.link.control(type="phase", name="installing")
        self._state = State.INSTALLING
        self._clocks.install_began = time.monotonic()
        self._clocks.deadline = self._clocks.install_began + job.install_seconds
        self.process = ScriptProcess(self.spec, job.command, self.children)

    def _current(self) -> Job:
        if self._job is None:
            raise ValueError("a script without a job")
        return self._job

    # -- moving on -----------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self.process is None:
            return
        match self._state:
            case State.INSTALLING:
                self._await_installed(self.process)
            case State.RUNNING:
                self._serve_run(self.process)
            case State.DRAINING:
                self._drain()
            case State.IDLE | State.DONE:
                pass

    def _await_installed(self, process: ScriptProcess) -> None:
        process.read_notes()
        if process.is_waiting():
            self._begin(process)
        elif process.has_uv_ended():
            self._conclude("install_failed")
        elif self._is_overdue():
            self._conclude("install_time")

    def _begin(self, process: ScriptProcess) -> None:
        """Let the script run, and the server know before the script can do anything: else it might try again."""
        now = time.monotonic()
        self._clocks.installing = now - self._clocks.install_began
        self._clocks.run_began = now
        self._clocks.deadline = now + self._current().command.run_seconds
        self._state = State.RUNNING
        self.link.control(type="phase", name="running")
        self.link.flush()
        process.let_go()
        self._serve_run(process)

    def _is_overdue(self) -> bool:
        return self._clocks.deadline is not None and time.monotonic() >= self._clocks.deadline

    def _serve_run(self, process: ScriptProcess) -> None:
        self._feed_stdin(process)
        self._forward()
        if self._state is not State.RUNNING:
            return  # too much output ended it
        self._status = process.status()
        if self._status is not None:
            self._conclude(self._reason or "exited")
        elif self._is_overdue():
            self._time_over(process)

    def _time_over(self, process: ScriptProcess) -> None:
        """First ask the script's own process to stop, as Ctrl-C would; then end everything."""
        if self._reason:
            self._conclude(self._reason)
            return
        self._reason = "run_time"
        self._clocks.deadline = time.monotonic() + INTERRUPT_SECONDS
        process.interrupt()

    def _conclude(self, reason: str) -> None:
        """End every process; what they wrote is still in the pipes."""
        process = self.process
        if process is None:
            raise RuntimeError("the end of a run that did not begin")
        now = time.monotonic()
        self._reason = reason
        self._clocks.deadline = None
        if self._state is State.RUNNING:
            self._clocks.running = now - self._clocks.run_began
            self._cpu_seconds = process.cpu_seconds()
        else:
            self._clocks.installing = now - self._clocks.install_began
            for output in self._outputs.values():
                output.ended = True  # the script never started
        self._state = State.DRAINING
        self._lingering = not process.end()
        if self._status is not None:
            self._status = process.confirmed(self._status)
        self._drain()

    def _drain(self) -> None:
        self._forward()
        if all(output.ended for output in self._outputs.values()):
            self._report()
            self._state = State.DONE

    # -- bytes ---------------------------------------------------------------------------------------

    def _feed_stdin(self, process: ScriptProcess) -> None:
        if process.stdin < 0:
            self._drop_stdin()
            return
        try:
            while self._stdin:
                count = os.write(process.stdin, self._stdin[:_PIPE_READ_BYTES])
                del self._stdin[:count]
                self.link.credit(STDIN, count)
        except BlockingIOError:
            return
        except BrokenPipeError:  # nobody reads it; the rest is dropped as it comes
            self._drop_stdin()
            self._stdin_ended = True
        if self._stdin_ended:
            os.close(process.stdin)
            process.stdin = -1

    def _drop_stdin(self) -> None:
        if self._stdin:
            self.link.credit(STDIN, len(self._stdin))
            self._stdin.clear()

    def _forward(self) -> None:
        if self.process is None:
            return
        for fd, output in self._readable(self.process):
            if output.ended or not output.credit or self.link.backlog >= BACKLOG_BYTES:
                continue
            try:
                data = os.read(fd, min(_PIPE_READ_BYTES, output.credit))
            except BlockingIOError:
                if not (self._lingering and self._state is State.DRAINING):
                    continue
                data = b""  # what can't be ended still holds the pipe
            if not data:
                output.ended = True
                self.link.end(output.stream)
                continue
            output.credit -= len(data)
            self.link.data(output.stream, data)
            self._count(len(data))

    def _count(self, size: int) -> None:
        self._output_bytes += size
        if self._state is State.RUNNING and self._output_bytes > self._current().output_bytes:
            self._conclude("output_limit")

    # -- the report ----------------------------------------------------------------------------------

    def _report(self) -> None:
        code, number = self._ending()
        self.link.control(
            type="exit",
            reason=self._reason,
            code=code,
            signal=number,
            notes=self._notes() if self._reason in ("install_failed", "install_time") else "",
            warm=False,
            usage={
                "run_seconds": self._clocks.running,
                "install_seconds": self._clocks.installing,
                "cpu_seconds": self._cpu_seconds or 0.0,
                "peak_memory_bytes": None,
                "memory_kills": None,  # nothing is counted for a run that has no cgroup of its own
                "process_refusals": None,
                "full_paths": [],
            },
        )

    def _ending(self) -> tuple[int | None, int | None]:
        """The script's own exit code or signal, when it ended by itself."""
        if self._status is None or self._reason != "exited":
            return None, None
        if os.WIFSIGNALED(self._status):
            return None, os.WTERMSIG(self._status)
        return os.WEXITSTATUS(self._status), None

    def _notes(self) -> str:
        if self.process is None:
            return ""
        with contextlib.suppress(OSError):
            while self.process.read_notes():
                pass
        return self.process.notes.decode("utf-8", "replace")[-_NOTES_TEXT:]
