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

from . import children
from .children import Children
from .identity import Identity
from .nest import Nest, NestPlan
from .source import wire_form
from .spawning import prefer_as_victim, reset_signals

OUTPUT_PIPE_BYTES = 1024 * 1024

STDERR_NOTES_BYTES = 16 * 1024
"""How much of what uv says is kept; its last lines name the cause."""


class Place:
    """Where things lie inside the sandbox.

    ``packages`` is where uv's private cache and the requirements file go; ``interpreters`` maps a version to
    what uv is told to run, where it shall not search; ``nest`` is set where the script needs a sandbox of its
    own inside this one.
    """

    def __init__(
        self,
        uv: str,
        work: str,
        packages: str,
        environment: dict[str, str],
        interpreters: dict[str, str],
        nest: NestPlan | None,
    ) -> None:
        self.uv = uv
        self.work = work
        self.packages = packages
        self.environment = environment
        self.interpreters = interpreters
        self.nest = nest

    @property
    def script(self) -> str:
        return os.path.join(self.work, "script.py")


class Interpreter:
    """One attempt at an interpreter. Descriptors here are the runner's ends and don't block."""

    def __init__(
        self,
        place: Place,
        identity: Identity,
        family: Children,
        python: str,
        args: list[str] | None = None,
        requirements: list[str] | None = None,
    ) -> None:
        self.python = python
        self._family = family
        self._nest = Nest(place.nest) if place.nest is not None else None
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
        if self._nest is not None:
            command = self._nest.command(command)
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)
        for fd in (self.stdout, self.stderr):
            _widen(fd)
        self.uv_pid = self._spawn(command, (child_in, child_out, child_err))
        for fd in (child_in, child_out, child_err):
            os.close(fd)
        if self._nest is not None:
            self._nest.started()

    def _command(self, args: list[str], requirements: list[str]) -> list[str]:
        command = [self._place.uv, "run", "--quiet", "--no-project", "--python"]
        command.append(self._place.interpreters.get(self.python, self.python))
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
        if self._nest is None:
            prefer_as_victim()
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        self._identity.become()
        reset_signals()
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

    @property
    def news_fd(self) -> int:
        """A descriptor that is readable when :meth:`status` may have changed; -1 when SIGCHLD tells."""
        return -1 if self._nest is None else self._nest.fd

    def update(self) -> None:
        """Take in news, never waiting."""
        if self._nest is not None:
            self._nest.update()

    def uv_has_ended(self) -> bool:
        """Whether uv ended before there was an interpreter."""
        if self._nest is None:
            return self._family.status(self.uv_pid) is not None
        return self._nest.uv_status is not None or self._nest.ended

    def status(self) -> int | None:
        """The interpreter's wait status, once it ended."""
        if self.pid is None:
            return None
        if self._nest is None:
            return self._family.status(self.pid)
        if self._nest.script_status is None and self._nest.ended:
            return signal.SIGKILL  # it went down with its namespace
        return self._nest.script_status

    def follow(self) -> None:
        """From now on only the interpreter's own end counts."""
        if self._nest is not None:
            self._family.follow(self.uv_pid)
        elif self.pid is not None:
            self._family.follow(self.pid)

    def _adopt(self) -> None:
        script = self._place.script.encode()
        if self._nest is not None:
            self.pid, used = self._nest.adopt(self.uv_pid, script)
            self.cpu_seconds = used / 1e6
            return
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
        if self._nest is not None:
            self._nest.close()
        with self._identity.assumed():
            os.unlink(self._place.script)


def _widen(pipe: int) -> None:
    """Room for what a script prints between two looks; the default where the kernel allows no more."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, OUTPUT_PIPE_BYTES)
    except OSError:
        return
