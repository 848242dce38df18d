"""Processes below the runner, which is their reaper (PID 1 of the sandbox)."""

import contextlib
import os
import signal
import time

KILL_ALL_SECONDS = 2.0
"""Promise KILL: every process is gone by then. A process that survives SIGKILL this long hangs in the kernel."""

_POLL_SECONDS = 0.001


class Children:
    """Collects exit statuses and ends everything on demand."""

    def __init__(self) -> None:
        self._statuses: dict[int, int] = {}

    def reap(self) -> bool:
        """Collect whoever ended; ``False`` when no process is left. Never waits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._statuses[pid] = status

    def status(self, pid: int) -> int | None:
        """The wait status of ``pid`` once it was reaped."""
        return self._statuses.get(pid)

    def forget(self) -> None:
        """Drop statuses nobody asks for, so that a script with many children fills nothing."""
        self._statuses.clear()

    def kill_all(self) -> bool:
        """SIGKILL to every process of the sandbox but the runner, until none is left.

        A fork in progress sees the pending signal, so one round reaches all; more rounds only wait.
        Returns ``False`` when some are left after :data:`KILL_ALL_SECONDS`.
        """
        deadline = time.monotonic() + KILL_ALL_SECONDS
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            if not self.reap():
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)


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
