"""``uv run`` and the script below it, for one job."""

import contextlib
import json
import math
import os
import select
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from python_exec_sandbox.drivers.unsandboxed.supervisor import folder, launch, tree
from python_exec_sandbox.drivers.unsandboxed.supervisor.spec import SupervisorSpec

NOTES_BYTES = 16 * 1024
"""How much of what uv says is kept; its last lines name the cause."""

TIDY_SECONDS = 0.4
"""For uv to remove its temporary environment once the script is gone."""

_REPORT_FD, _GO_FD, _STDERR_FD = 3, 4, 5
"""Descriptors that uv hands down to the launcher."""

_PID_DIGITS = 10
_PARENT_FIELD = 4
"""In proc(5)."""

_CPU_FIELDS = (14, 15, 16, 17)
"""User and system time, its own and of the children it waited for, by their numbers in proc(5)."""

_EXIT_FIELD = 52
"""The wait status of a process that ended and whose parent hasn't asked for it yet."""

_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
"""Dispositions that an ignoring parent would hand down through exec."""


@dataclass(frozen=True, slots=True)
class Command:
    """The part of a job that makes a process."""

    python: str
    args: Sequence[str]
    requirements: Sequence[str]
    run_seconds: float


class ScriptProcess:
    """uv, then the script. Descriptors here are the supervisor's ends and don't block.

    While the script runs, uv is stopped (Linux): so the script's own end and its exact status can be seen before
    uv folds "killed by signal 9" and "exit code 137" into one; and uv is let go on afterwards to remove what it made.
    """

    def __init__(self, spec: SupervisorSpec, command: Command, children: tree.Children) -> None:
        self._spec = spec
        self._children = children
        self.pid: int | None = None
        self.notes = bytearray()
        self._reported = bytearray()
        self._pidfd: int | None = None
        self._is_uv_stopped = False
        self._is_over_for_good = False
        child_in, self.stdin = os.pipe()
        self.stdout, child_out = os.pipe()
        self.stderr, child_err = os.pipe()
        self.notes_fd, child_notes = os.pipe()
        self.report_fd, child_report = os.pipe()
        child_go, self._go_fd = os.pipe()
        for fd in (self.stdin, self.stdout, self.stderr, self.notes_fd, self.report_fd):
            os.set_blocking(fd, False)
        inherited = (child_in, child_out, child_notes, child_report, child_go, child_err)
        self.uv_pid = self._spawn(self._argv(command), inherited)
        children.watch(self.uv_pid)
        for fd in inherited:
            os.close(fd)

    def _argv(self, command: Command) -> list[str]:
        argv = [self._spec.uv, "run", "--quiet", "--no-project", "--python", self._python(command.python)]
        if command.requirements:
            path = folder.requirements_path(self._spec.folder)
            with open(path, "w", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in command.requirements))
            argv += ["--with-requirements", path]
        else:
            argv.append("--offline")
        told = {
            "report_fd": _REPORT_FD,
            "go_fd": _GO_FD,
            "stderr_fd": _STDERR_FD,
            "uv_only": self._spec.uv_only,
            "rlimits": self._rlimits(command),
        }
        script = folder.script_path(self._spec.folder)
        launcher = os.path.abspath(launch.__file__)
        return [*argv, "python", "-I", "-S", launcher, json.dumps(told), script, *command.args]

    def _python(self, version: str) -> str:
        return self._spec.pythons.get(version, version)

    def _rlimits(self, command: Command) -> dict[str, int]:
        """The run's own limits beside the fixed ones: processor time of each process, and for all but root
        (whom the kernel doesn't limit) the number of processes."""
        limits = dict(self._spec.rlimits)
        limits["CPU"] = math.ceil(command.run_seconds * max(1.0, self._spec.cpus)) + 1
        if tree.HAS_PROC and os.getuid() != 0:
            limits["NPROC"] = tree.tasks_of_user(os.getuid()) + self._spec.processes
        return limits

    def _spawn(self, argv: list[str], inherited: tuple[int, ...]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            high = [os.dup(fd) for fd in inherited]
            while min(high) <= _STDERR_FD:  # the target numbers must not be among the sources
                high = [os.dup(fd) for fd in high]
            for number, fd in enumerate(high):
                os.dup2(fd, number)
            os.closerange(_STDERR_FD + 1, 1024)
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            os.umask(0o022)
            os.chdir(os.path.dirname(folder.script_path(self._spec.folder)))
            os.execve(argv[0], argv, dict(os.environ))
        except BaseException as error:  # noqa: BLE001 - a child must never return into the supervisor's code
            os.write(2, f"uv could not be started: {error}\n".encode())
        finally:
            os._exit(127)

    # -- until it runs -------------------------------------------------------------------------------

    def read_notes(self) -> bool:
        """Keep what uv says; ``False`` when there is nothing more to read now."""
        try:
            data = os.read(self.notes_fd, 65536)
        except BlockingIOError:
            return False
        self.notes += data
        del self.notes[:-NOTES_BYTES]
        return bool(data)

    def is_waiting(self) -> bool:
        """Whether the launcher has told its process id and waits to be let go."""
        try:
            self._reported += os.read(self.report_fd, 64)
        except BlockingIOError:
            return False
        if not self._reported.endswith(b"\n"):
            return False
        told = bytes(self._reported).split(b"\n")[-2]
        self._reported.clear()
        if not self._is_launcher(told):
            return False
        self.pid = int(told)
        return True

    def _is_launcher(self, told: bytes) -> bool:
        """A package's build inherits the pipe and may write anything into it; a process of uv's it must be."""
        if not told.isdigit() or len(told) > _PID_DIGITS:
            return False
        if int(told) == self.uv_pid or not tree.HAS_PROC:
            return True
        return tree.stat_field(int(told), _PARENT_FIELD) == str(self.uv_pid)

    def let_go(self) -> None:
        """The launcher becomes the script."""
        if self.pid is None:
            raise RuntimeError("let go before it waited")
        self._children.watch(self.pid)
        if tree.HAS_PROC:
            os.kill(self.uv_pid, signal.SIGSTOP)
            self._is_uv_stopped = True
        self._pidfd = _pidfd(self.pid)
        os.write(self._go_fd, b"g")
        for fd in (self._go_fd, self.report_fd):
            os.close(fd)

    @property
    def ending_fd(self) -> int | None:
        """Readable once the script ended, where the system has such a thing."""
        return self._pidfd

    @property
    def must_be_asked(self) -> bool:
        """Whether nothing tells of the script's end, so that one has to look."""
        return self._is_uv_stopped and self._pidfd is None

    # -- its end -------------------------------------------------------------------------------------

    def status(self) -> int | None:
        """The script's wait status once it ended, else ``None``.

        Its own where uv is stopped, or was ended by the script; else uv's, which turns a signal N into 128+N.
        """
        if self.pid is None:
            return None
        if (own := self._children.status(self.pid)) is not None:
            return own
        if self._is_uv_stopped and self._is_over(self.pid):
            told = tree.stat_field(self.pid, _EXIT_FIELD)
            return int(told) if told is not None else None
        uv = self._children.status(self.uv_pid)
        return uv if uv is not None and not _is_own_child(self.pid) else None

    def _is_over(self, pid: int) -> bool:
        """Whether the script ended and nobody asked for its status yet. Its main thread alone may be over."""
        if tree.stat_field(pid, 3) != "Z":
            return False
        return self._pidfd is None or bool(select.select([self._pidfd], [], [], 0)[0])

    def confirmed(self, status: int) -> int:
        """``status`` after :meth:`end`. A kernel that hides the status of a process that hid itself says 0;
        then uv's word is taken."""
        uv = self._children.status(self.uv_pid)
        if status == 0 and uv is not None and os.WIFEXITED(uv):
            return uv
        return status

    def has_uv_ended(self) -> bool:
        return self._children.status(self.uv_pid) is not None

    def cpu_seconds(self) -> float | None:
        """What the script used, as long as it can be asked; ``None`` elsewhere."""
        if self.pid is None:
            return None
        ticks = [tree.stat_field(self.pid, number) for number in _CPU_FIELDS]
        known = [int(one) for one in ticks if one is not None]
        return sum(known) / os.sysconf("SC_CLK_TCK") if len(known) == len(ticks) else None

    def interrupt(self) -> None:
        """As Ctrl-C would."""
        if self.pid is not None:
            tree.kill(self.pid, signal.SIGINT)

    def end(self) -> bool:
        """End everything of the run; ``False`` when something is left after the time for that.

        uv goes last and by itself if it can: else its temporary environment would stay in the person's cache.
        Called again it does nothing: the process group's number may be another one's by then.
        """
        if self._is_over_for_good:
            return True
        if not self.has_uv_ended():
            tree.kill_below(self.uv_pid)
            if not tree.HAS_PROC and self.pid is not None:
                tree.kill(self.pid)
            if self._is_uv_stopped:
                os.kill(self.uv_pid, signal.SIGCONT)
                self._is_uv_stopped = False
            else:
                tree.kill(self.uv_pid, signal.SIGINT)  # in the middle of an installation
            self._children.wait_for(self.uv_pid, TIDY_SECONDS)
        self._is_over_for_good = self._children.end_all(self.uv_pid)
        return self._is_over_for_good


def _pidfd(pid: int) -> int | None:
    """Tells of the end of a process that is no child of ours; ``None`` on kernels and systems without it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _is_own_child(pid: int) -> bool:
    """Whether ``pid`` runs as a child of this process: its parent ended before it."""
    if sys.platform == "linux":
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    return False
