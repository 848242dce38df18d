"""Processes below the runner, which is their reaper (PID 1 of the sandbox)."""

import os
import signal
import time

KILL_ALL_SECONDS = 1.0
"""How long the report waits for killed processes to be gone. None of them executes anything any more, but the
kernel may need longer to take down what they had mapped; the end of the sandbox takes the rest."""

_PTRACE_DETACH = 17

_POLL_SECONDS = 0.001


class Children:
    """Collects exit statuses and ends everything on demand."""

    def __init__(self) -> None:
        self._statuses: dict[int, int] = {}
        self._only: int | None = None

    def reap(self) -> bool:
        """Collect whoever ended; ``False`` when no process is left. Never waits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if os.WIFSTOPPED(status):
                _let_go(pid, os.WSTOPSIG(status))
            elif self._only in (None, pid):
                self._statuses[pid] = status

    def status(self, pid: int) -> int | None:
        """The wait status of ``pid`` once it was reaped."""
        return self._statuses.get(pid)

    def forget(self) -> None:
        """Drop what is known; pids will be used again."""
        self._statuses.clear()

    def follow(self, pid: int) -> None:
        """From now on keep the status of ``pid`` alone: a script may have any number of children."""
        self._only = pid

    def kill_all(self) -> bool:
        """SIGKILL to every process of the sandbox but the runner, until none is left.

        A fork in progress sees the pending signal, so one round reaches all; more rounds only wait.
        Returns ``False`` when some are left after :data:`KILL_ALL_SECONDS`.
        """
        if not self.reap():  # everyone there is descends from the runner: without a child there is nobody
            return True
        deadline = time.monotonic() + KILL_ALL_SECONDS
        while True:
            try:  # noqa: SIM105 - contextlib takes the inner sandbox's PID 1 milliseconds to import
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass  # there is nobody but the runner
            if not self.reap():
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)


def _let_go(pid: int, number: int) -> None:
    """End the tracing that a process asked its parent for (PTRACE_TRACEME), with the signal it stopped for."""
    import ctypes  # noqa: PLC0415 - hardly ever needed, and it takes milliseconds

    ctypes.CDLL(None).ptrace(_PTRACE_DETACH, pid, None, 0 if number == signal.SIGTRAP else number)


def children_of(parent: int) -> list[int]:
    """Pids whose parent is ``parent``, by /proc."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if (fields := _stat(pid)) and int(fields[1]) == parent]


def cpu_seconds(pid: int) -> float:
    """User and system time of ``pid`` and of its children that it has waited for; 0 when it is gone."""
    fields = _stat(pid)
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def command_line(pid: int) -> list[bytes]:
    """The arguments of ``pid``; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on (proc(5): field 3); empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
