r"""The runner's loop: one thread, one poll, one script.

::

    WARMING --gate open--> IDLE --job--> RUNNING ----------> DRAINING --exit sent--> DONE
                             \\--job--> INSTALLING --gate--^      ^
                                          \\--uv failed, time-----/

A job that the waiting interpreter fits is handed to it; any other gets a fresh ``uv run``. DONE waits for
the server to close: an exiting runner would have the engine tear down beside somebody else's run.
Whenever the server goes away, everything ends: that is the dead-man switch.
"""

import json
import os
import select
import signal
import sys
import time
from enum import Enum, auto

from . import environments, wire
from .children import Children
from .counters import Counters, full_paths
from .interpreter import Interpreter, Place
from .link import BACKLOG_BYTES, Link, ServerGone
from .options import Options
from .outward import Outward
from .source import wire_form

GATE_POLL_SECONDS = 0.002
INTERRUPT_SECONDS = 0.5
"""Between SIGINT and SIGKILL at the end of a script's time: enough to flush files and show where it was."""

GATHER_SECONDS = 0.01
SMALL_BYTES = 8 * 1024
"""After so little output the next is waited for: a frame for each printed line would keep the server busy."""

_PIPE_READ_BYTES = 64 * 1024
_NOTES_TEXT = 8 * 1024


class State(Enum):
    WARMING = auto()
    IDLE = auto()
    INSTALLING = auto()
    RUNNING = auto()
    DRAINING = auto()
    DONE = auto()


class Job:
    """The job as the server sent it."""

    def __init__(self, message: dict[str, object]) -> None:
        self.python = str(message["python"])
        self.args = [str(arg) for arg in _list(message["args"])]
        self.requirements = [str(line) for line in _list(message["requirements"])]
        self.environment = None if message["environment"] is None else str(message["environment"])
        self.script_bytes = int(str(message["script_bytes"]))
        self.run_seconds = float(str(message["run_seconds"]))
        self.install_seconds = float(str(message["install_seconds"]))
        self.output_bytes = int(str(message["output_bytes"]))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return value


class _Output:
    """One of the script's output pipes on its way to the server."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.credit = wire.WINDOW_BYTES
        self.ended = False


class Supervisor:
    """Holds everything there is in the sandbox."""

    def __init__(self, options: Options, link: Link, wake: int) -> None:
        self._options = options
        self._place: Place = options.place
        self._link = link
        self._wake = wake
        self._children = Children()
        self._state = State.WARMING
        self._job: Job | None = None
        self._script = bytearray()
        self._stdin = bytearray()
        self._stdin_ended = False
        self._to_gate = memoryview(b"")
        self._outputs = {number: _Output(number) for number in (wire.STDOUT, wire.STDERR)}
        self._output_bytes = 0
        self._deadline: float | None = None
        self._reason: str | None = None
        self._lingering = False
        self._gather_until = 0.0
        self._counters = Counters()
        self._started = self._install_started = time.monotonic()
        self._run_seconds = self._install_seconds = 0.0
        self._warm = True
        self._outward = Outward(link) if options.outward else None
        if self._outward is not None:
            self._place.environment.update(proxy_variables(self._outward.port))
        link.control(type="hello", protocol=wire.PROTOCOL_VERSION, pythons=options.pythons)
        link.flush()
        self._interpreter = Interpreter(self._place, options.identity, self._children, options.python)

    def run(self) -> None:
        """Serve until the server is gone. Raises :class:`ServerGone`."""
        while True:
            self._wait()
            self._children.reap()
            for kind, stream, payload in self._link.receive():
                self._on_frame(kind, stream, payload)
            self._advance()
            self._link.flush()

    # -- waiting -------------------------------------------------------------------------------------

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._link.fd_in, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._link.backlog:
            poll.register(self._link.fd_out, select.POLLOUT)
        if (news := self._interpreter.news_fd) >= 0:
            poll.register(news, select.POLLIN)
        self._register_script(poll)
        if self._outward is not None:
            self._outward.register(poll)
        for fd, events in poll.poll(self._timeout_ms()):
            if fd == self._wake:
                os.read(self._wake, 4096)
            elif fd == news:
                self._interpreter.update()
            elif self._outward is not None:
                self._outward.on_event(fd, events)

    def _register_script(self, poll: select.poll) -> None:
        """The script's own pipes, as far as something can be done with them now."""
        if self._state is State.INSTALLING:
            poll.register(self._interpreter.stderr, select.POLLIN)
        for fd, output in self._readable():
            if self._is_wanted(output):
                poll.register(fd, select.POLLIN)
        if self._state is State.RUNNING:
            if self._stdin:
                poll.register(self._interpreter.stdin, select.POLLOUT)
            if self._to_gate and self._interpreter.gate is not None:
                poll.register(self._interpreter.gate, select.POLLOUT)

    def _timeout_ms(self) -> int | None:
        if self._state in (State.WARMING, State.INSTALLING):
            return int(GATE_POLL_SECONDS * 1000)
        moments = [self._deadline] if self._deadline is not None else []
        if self._is_gathering():
            moments.append(self._gather_until)
        if not moments:
            return None
        return max(0, int((min(moments) - time.monotonic()) * 1000) + 1)

    def _is_wanted(self, output: _Output) -> bool:
        """Whether more of this output can be taken now."""
        has_room = output.credit > 0 and self._link.backlog < BACKLOG_BYTES
        return has_room and not output.ended and not self._is_gathering()

    def _is_gathering(self) -> bool:
        return self._state is State.RUNNING and time.monotonic() < self._gather_until

    def _readable(self) -> list[tuple[int, _Output]]:
        if self._state not in (State.RUNNING, State.DRAINING):
            return []
        return [
            (self._interpreter.stdout, self._outputs[wire.STDOUT]),
            (self._interpreter.stderr, self._outputs[wire.STDERR]),
        ]

    # -- what the server says ------------------------------------------------------------------------

    def _on_frame(self, kind: int, stream: int, payload: bytes) -> None:
        if kind == wire.CONTROL:
            self._on_message(json.loads(payload))
        elif stream >= wire.FIRST_CONNECTION and self._outward is not None:
            self._outward.on_frame(kind, stream, payload)
        elif kind == wire.DATA and stream == wire.SCRIPT:
            self._script += payload
            self._link.credit(wire.SCRIPT, len(payload))
        elif kind == wire.DATA and stream == wire.STDIN:
            self._stdin += payload
        elif kind == wire.END and stream == wire.SCRIPT:
            self._start()
        elif kind == wire.END and stream == wire.STDIN:
            self._stdin_ended = True
        elif kind == wire.CREDIT and stream in self._outputs:
            self._outputs[stream].credit += wire.decode_credit(payload)
        else:
            raise ValueError(f"frame of kind {kind} on stream {stream}")

    def _on_message(self, message: dict[str, object]) -> None:
        match message.get("type"):
            case "ping":
                self._link.control(type="pong", n=message["n"])
            case "job" if self._job is None:
                self._job = Job(message)
            case "abort" if self._outward is not None:
                self._outward.on_abort(int(str(message["stream"])))
            case "stop":
                self._stop("stopped")
            case other:
                raise ValueError(f"message {other!r}")

    def _start(self) -> None:
        """The script is here: hand it to the waiting interpreter, or make one that fits."""
        job = self._current()
        if len(self._script) != job.script_bytes:
            raise ValueError(f"a script of {len(self._script)} bytes, {job.script_bytes} were announced")
        fits = job.python == self._interpreter.python and not job.args and not job.requirements
        if fits and job.environment is None:
            self._release()
            return
        self._warm = False
        if not self._children.kill_all():
            raise RuntimeError("the waiting interpreter could not be ended")
        self._interpreter.discard()
        self._children.forget()
        self._state = State.INSTALLING
        if job.requirements:
            self._link.control(type="phase", name="installing")
        self._install_started = time.monotonic()
        self._deadline = self._install_started + job.install_seconds
        cache = self._place.environment["UV_CACHE_DIR"]
        if job.environment and not environments.enter(job.environment, cache, self._options.identity):
            self._conclude("environment_gone")
            return
        self._interpreter = Interpreter(
            self._place,
            self._options.identity,
            self._children,
            job.environment or job.python,
            job.args,
            job.requirements,
        )

    def _current(self) -> Job:
        if self._job is None:
            raise ValueError("a script without a job")
        return self._job

    # -- moving on -----------------------------------------------------------------------------------

    def _advance(self) -> None:
        match self._state:
            case State.WARMING:
                self._await_warm()
            case State.INSTALLING:
                self._await_installed()
            case State.RUNNING:
                self._serve_run()
            case State.DRAINING:
                self._drain()
            case State.IDLE:
                self._check_idle()
            case State.DONE:
                pass

    def _await_warm(self) -> None:
        if self._interpreter.try_gate():
            self._rehearse()
            self._state = State.IDLE
            self._link.control(type="ready", warm=True)
        elif self._uv_ended():
            raise RuntimeError(f"no interpreter of Python {self._interpreter.python}: {self._notes()}")

    def _rehearse(self) -> None:
        """Go through what a run takes of this process, without effect, while nobody waits: what is touched for
        the first time since the fork of ``uv`` is a page fault each, and there were seventy in a run."""
        job: dict[str, object] = {"python": "", "args": [], "requirements": [], "environment": None}
        job |= dict.fromkeys(("script_bytes", "run_seconds", "install_seconds", "output_bytes"), 0)
        stage = Link(self._link.fd_in, self._link.fd_out)  # never flushed
        sent = wire.encode(wire.CONTROL, 0, json.dumps(job).encode())
        sent += wire.encode(wire.DATA, wire.SCRIPT, b"#") + wire.encode(wire.END, wire.SCRIPT)
        for kind, _, payload in wire.Decoder().feed(sent):
            if kind == wire.CONTROL:
                Job(json.loads(payload))
            stage.credit(wire.SCRIPT, len(wire_form(payload)))
        stage.data(wire.STDOUT, b"")
        stage.control(**self._exit_message())

    def _check_idle(self) -> None:
        if self._interpreter.status() is not None:
            raise RuntimeError("the waiting interpreter ended before it had a script")

    def _await_installed(self) -> None:
        self._interpreter.read_notes()
        try:
            if self._interpreter.try_gate():
                self._interpreter.read_notes()
                self._install_seconds = time.monotonic() - self._install_started
                self._release()
                return
        except OSError as error:  # code of a package ran while it was installed, as the script's user
            self._interpreter.note(f"error: a package took the script's file away: {error}\n")
            self._conclude("install_failed")
            return
        if self._uv_ended():
            self._conclude("install_failed")
        elif self._overdue():
            self._conclude("install_time")

    def _uv_ended(self) -> bool:
        return self._interpreter.uv_has_ended()

    def _overdue(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _release(self) -> None:
        """Let the interpreter read the script: the run begins."""
        job = self._current()
        self._to_gate = memoryview(self._interpreter.fill_file(bytes(self._script)))
        self._script.clear()
        self._state = State.RUNNING
        self._link.control(type="phase", name="running")
        self._link.flush()  # the server must know before the script can do anything: else it might try again
        self._interpreter.follow()
        if self._outward is not None:
            self._outward.open()
        self._started = time.monotonic()
        self._deadline = self._started + job.run_seconds
        # Nor is the very first output forwarded at once: passing it on would take the processor from a script
        # that prints a line and ends, and most are done in less.
        self._gather_until = self._started + GATHER_SECONDS
        self._serve_run()

    def _serve_run(self) -> None:
        self._feed_gate()
        self._feed_stdin()
        self._forward()
        if self._interpreter.status() is not None:
            self._conclude(self._reason or "exited")
        elif self._overdue():
            self._time_over()

    def _time_over(self) -> None:
        """First ask the script's own process to stop, as Ctrl-C would; then end everything."""
        if self._reason is not None:
            self._conclude(self._reason)
            return
        self._reason = "run_time"
        self._deadline = time.monotonic() + INTERRUPT_SECONDS
        if self._interpreter.pid is not None:
            os.kill(self._interpreter.pid, signal.SIGINT)

    def _stop(self, reason: str) -> None:
        if self._state in (State.RUNNING, State.INSTALLING):
            self._conclude(reason)

    def _conclude(self, reason: str) -> None:
        """End every process; what they wrote is still in the pipes."""
        self._reason = reason
        self._run_seconds = time.monotonic() - self._started if self._state is State.RUNNING else 0.0
        if self._state is State.INSTALLING:
            self._install_seconds = time.monotonic() - self._install_started
            for output in self._outputs.values():
                output.ended = True  # the script never started: what was written was uv's
        self._lingering = not self._children.kill_all()
        if self._outward is not None:
            self._outward.close()
        self._deadline = None
        self._state = State.DRAINING
        self._drain()

    def _drain(self) -> None:
        self._forward()
        if all(output.ended for output in self._outputs.values()):
            self._report()
            self._state = State.DONE

    # -- bytes ---------------------------------------------------------------------------------------

    def _feed_gate(self) -> None:
        gate = self._interpreter.gate
        if gate is None:
            return
        try:
            while self._to_gate:
                self._to_gate = self._to_gate[os.write(gate, self._to_gate) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._to_gate = memoryview(b"")  # it ended before it had read all
        os.close(gate)
        self._interpreter.gate = None

    def _feed_stdin(self) -> None:
        fd = self._interpreter.stdin
        if fd < 0:
            self._stdin.clear()
            return
        try:
            while self._stdin:
                count = os.write(fd, self._stdin[:_PIPE_READ_BYTES])
                del self._stdin[:count]
                self._link.credit(wire.STDIN, count)
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._stdin.clear()  # nobody reads it; the rest is dropped as it comes
            self._stdin_ended = True
        if self._stdin_ended:
            os.close(fd)
            self._interpreter.stdin = -1

    def _forward(self) -> None:
        if self._is_gathering():
            return
        before = self._output_bytes
        self._read_outputs()
        if 0 < self._output_bytes - before < SMALL_BYTES:
            self._gather_until = time.monotonic() + GATHER_SECONDS

    def _read_outputs(self) -> None:
        for fd, output in self._readable():
            # While a script runs each has its turn; of one that ended all there is can go at once.
            while self._read_output(fd, output) and self._state is State.DRAINING:
                pass

    def _read_output(self, fd: int, output: _Output) -> bool:
        """Pass on what has been written, up to a limit; ``False`` when there is no more to take now."""
        if output.ended or not output.credit or self._link.backlog >= BACKLOG_BYTES:
            return False
        try:
            data = os.read(fd, min(_PIPE_READ_BYTES, output.credit))
        except BlockingIOError:
            if not (self._lingering and self._state is State.DRAINING):
                return False
            data = b""  # killed processes still hold the pipe, but write nothing any more
        if not data:
            output.ended = True
            self._link.end(output.stream)
            return False
        output.credit -= len(data)
        self._link.data(output.stream, data)
        self._count(len(data))
        return True

    def _count(self, size: int) -> None:
        self._output_bytes += size
        if self._state is State.RUNNING and self._output_bytes > self._current().output_bytes:
            self._conclude("output_limit")

    # -- the report ----------------------------------------------------------------------------------

    def _report(self) -> None:
        self._link.control(**self._exit_message())

    def _exit_message(self) -> dict[str, object]:
        code, number = self._ending()
        times = os.times()
        cpu_seconds = times.children_user + times.children_system - self._interpreter.cpu_seconds
        return {
            "type": "exit",
            "reason": self._reason,
            "code": code,
            "signal": number,
            "notes": self._notes() if self._reason in ("install_failed", "install_time") else "",
            "warm": self._warm,
            "usage": {
                "run_seconds": self._run_seconds,
                "install_seconds": self._install_seconds,
                "cpu_seconds": max(0.0, cpu_seconds),
                "peak_memory_bytes": self._counters.peak_memory_bytes(),
                "memory_kills": self._counters.memory_kills(),
                "process_refusals": self._counters.refused_forks(),
                "full_paths": full_paths(self._options.writable),
            },
        }

    def _ending(self) -> tuple[int | None, int | None]:
        """The script's own exit code or signal, when it ended by itself."""
        status = self._interpreter.status() if self._reason == "exited" else None
        if status is None:
            return None, None
        if os.WIFSIGNALED(status):
            return None, os.WTERMSIG(status)
        return os.WEXITSTATUS(status), None

    def _notes(self) -> str:
        while self._interpreter.read_notes() and self._readable_now(self._interpreter.stderr):
            pass
        return self._interpreter.notes.decode("utf-8", "replace")[-_NOTES_TEXT:]

    @staticmethod
    def _readable_now(fd: int) -> bool:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return any(events & select.POLLIN for _, events in poll.poll(0))


def proxy_variables(port: int) -> dict[str, str]:
    """What tells a script's libraries, and uv, of the way out."""
    address = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "all_proxy")
    variables = {name: address for each in names for name in (each, each.upper())}
    # uv takes each refusal for a passing trouble, and would try it three times more.
    return (
        variables
        | dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
        | {"UV_HTTP_RETRIES": "1"}
    )


def main() -> None:
    """Run until the server is gone; exit code 0 then, 70 on an error of our own."""
    link = Link(0, 1)
    wake_out, wake_in = os.pipe()
    for fd in (wake_out, wake_in):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # `docker stop`; with PID 1 everything ends
    try:
        options = Options(sys.argv[1:])
        options.limit()
        Supervisor(options, link, wake_out).run()
    except ServerGone:
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - the server is told whatever it is
        import traceback  # noqa: PLC0415 - it takes milliseconds, and is hardly ever needed

        traceback.print_exc()
        link.control(type="fault", text=f"{type(error).__name__}: {error}"[:4096])
        try:
            os.set_blocking(link.fd_out, True)
            link.flush()
        finally:
            os._exit(70)
