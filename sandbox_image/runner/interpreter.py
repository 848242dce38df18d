"""``uv run --python X`` and the Python it starts, held at the script's FIFO until there is a script.

``uv`` starts ``python SCRIPT`` where SCRIPT is a FIFO: CPython waits in its own ``open`` and nothing of ours
is ever inside it. Once it waits, ``uv`` is ended, so that the script becomes the runner's own child: uv
would fold "killed by signal 9" and "exit code 137" into one, and end milliseconds after the script.
The real file takes the FIFO's place as soon as CPython holds the FIFO open, and is filled before the first
byte goes through.
"""

import errno
import fcntl
import os
import signal
from dataclasses import dataclass

from . import children
from .identity import Identity
from .source import wire_form

OUTPUT_PIPE_BYTES = 1024 * 1024

STDERR_NOTES_BYTES = 16 * 1024
"""How much of what uv says is kept; its last lines name the cause."""

_RESET = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGCHLD,
)
"""Dispositions that an ignoring parent would hand down through exec."""


@dataclass(frozen=True)
class Place:
    """Where things lie inside the sandbox."""

    uv: str
    work: str
    packages: str
    """Where uv's private cache and the requirements file go."""
    environment: dict[str, str]

    @property
    def script(self) -> str:
        return os.path.join(self.work, "script.py")


class Interpreter:
    """One attempt at an interpreter. Descriptors here are the runner's ends and don't block."""

    def __init__(
        self,
        place: Place,
        identity: Identity,
        python: str,
        args: list[str] | None = None,
        requirements: list[str] | None = None,
    ) -> None:
        self.python = python
        self.pid: int | None = None
        self.gate: int | None = None
        self.cpu_seconds = 0.0
        self._file: int | None = None
        self.notes = bytearray()
        self._place = place
        self._identity = identity
        with identity.assumed():  # pipes belong to their maker: /dev/stdout must open for the script
            os.mkfifo(place.script, 0o600)
            child_in, self.stdin = os.pipe()
            self.stdout, child_out = os.pipe()
            self.stderr, child_err = os.pipe()
            command = self._command(args or [], requirements or [])
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)
        for fd in (self.stdout, self.stderr):
            _widen(fd)
        self.uv_pid = self._spawn(command, (child_in, child_out, child_err))
        for fd in (child_in, child_out, child_err):
            os.close(fd)

    def _command(self, args: list[str], requirements: list[str]) -> list[str]:
        command = [self._place.uv, "run", "--quiet", "--no-project", "--python", self.python]
        if requirements:
            path = os.path.join(self._place.packages, "requirements.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in requirements))
            command += ["--with-requirements", path]
        else:
            command.append("--offline")
        return [*command, "python", self._place.script, *args]

    def _spawn(self, command: list[str], stdio: tuple[int, int, int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            self._prepare(stdio)
            os.execve(command[0], command, self._place.environment)
        except BaseException as error:  # noqa: BLE001 - a child must never return into the runner's code
            os.write(2, f"the script's process could not be started: {error}\n".encode())
        finally:
            os._exit(127)

    def _prepare(self, stdio: tuple[int, int, int]) -> None:
        os.setsid()
        _prefer_as_victim()
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        self._identity.become()
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
        os.chdir(self._place.work)

    def try_gate(self) -> bool:
        """Whether CPython has reached the script's FIFO; if so, it is adopted and waits for bytes."""
        try:
            with self._identity.assumed():
                self.gate = os.open(self._place.script, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            raise
        self._adopt()
        self._put_file()
        return True

    def _adopt(self) -> None:
        script = self._place.script.encode()
        own = [pid for pid in children.children_of(self.uv_pid) if script in children.command_line(pid)]
        self.pid = own[0] if own else self.uv_pid  # without a child uv has become the interpreter
        if self.pid != self.uv_pid:
            os.kill(self.uv_pid, signal.SIGKILL)  # SIGTERM it would pass on
        self.cpu_seconds = children.cpu_seconds(self.pid)

    def _put_file(self) -> None:
        """Put an empty file in the FIFO's place: linecache must never open the FIFO."""
        temporary = self._place.script + ".part"
        with self._identity.assumed():
            self._file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.rename(temporary, self._place.script)

    def fill_file(self, source: bytes) -> bytes:
        """Write the script's file; returns what has to go through the gate."""
        if self._file is None:
            raise RuntimeError("a script before the gate is open")
        left = memoryview(source)
        while left:
            left = left[os.write(self._file, left) :]
        os.close(self._file)
        self._file = None
        return wire_form(source)

    def note(self, text: str) -> None:
        """Add to what uv said."""
        self.notes += text.encode()

    def read_notes(self) -> bool:
        """Keep what uv says while it works; ``False`` once its stderr ended."""
        try:
            data = os.read(self.stderr, 65536)
        except BlockingIOError:
            return True
        self.notes += data
        del self.notes[:-STDERR_NOTES_BYTES]
        return bool(data)

    def discard(self) -> None:
        """Close everything and remove the FIFO, after its processes were ended."""
        for fd in (self.stdin, self.stdout, self.stderr, self.gate, self._file):
            if fd is not None:
                os.close(fd)
        with self._identity.assumed():
            os.unlink(self._place.script)


def _widen(pipe: int) -> None:
    """Room for what a script prints between two looks; the default where the kernel allows no more."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, OUTPUT_PIPE_BYTES)
    except OSError:
        return


def _prefer_as_victim() -> None:
    """Let the kernel's memory killer take the script before the runner; must come before ``become``."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        return  # the counters and the engine's events still tell a memory kill
