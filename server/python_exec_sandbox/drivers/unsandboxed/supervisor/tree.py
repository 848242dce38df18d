"""Processes of a run: found, told apart and ended.

On Linux the supervisor is the reaper of its descendants: a process whose parent ended becomes its child,
whatever session or group it went to, so "no child is left" means that nothing is left. Elsewhere only the
process group can be reached; what left it stays.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

HAS_PROC = sys.platform == "linux"

GONE_SECONDS = 1.2
"""For killed processes to be gone, so that together with the rest a run's end stays within two seconds."""

_POLL_SECONDS = 0.002

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

_FIELDS_BEFORE_STATE = 3
"""Fields of /proc/PID/stat are counted from 1 in proc(5), and the state is the third."""


def become_reaper() -> None:
    """Let descendants whose parent ended become this process's own children. Does nothing but on Linux."""
    if not HAS_PROC:
        return
    import ctypes  # noqa: PLC0415 - not there on each system, and slow to import

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def stat_field(pid: int, number: int) -> str | None:
    """A field of /proc/PID/stat by its number in proc(5), 3 or above; ``None`` when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[number - _FIELDS_BEFORE_STATE]
    except (OSError, IndexError):
        return None


def pids() -> list[int]:
    """Of all processes of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if HAS_PROC else []


def descendants(root: int) -> list[int]:
    """All processes below ``root``, as seen in one pass."""
    children: dict[int, list[int]] = {}
    for pid in pids():
        if (parent := stat_field(pid, 4)) is not None:
            children.setdefault(int(parent), []).append(pid)
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for child in children.get(pid, ())]
        found += level
    return found


def tasks_of_user(uid: int) -> int:
    """Threads of all processes of ``uid``: what RLIMIT_NPROC counts."""
    count = 0
    for pid in pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                count += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return count


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal one process; it may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_group(group: int) -> None:
    """SIGKILL to a whole process group; a fork in progress doesn't escape it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class Children:
    """Exit statuses of the supervisor's children, and their end."""

    def __init__(self) -> None:
        self._statuses: dict[int, int] = {}
        self._watched: set[int] = set()

    def watch(self, pid: int) -> None:
        """Keep the status of ``pid``; of others none is kept, as there may be any number."""
        self._watched.add(pid)

    def status(self, pid: int) -> int | None:
        """The wait status of a watched child once it ended."""
        return self._statuses.get(pid)

    def reap(self) -> bool:
        """Collect whoever ended; ``False`` when no child is left. Never waits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self._watched:
                self._statuses[pid] = status

    def wait_for(self, pid: int, seconds: float) -> None:
        """Until ``pid`` ended, at most so long."""
        deadline = time.monotonic() + seconds
        while self.reap() and self.status(pid) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def end_all(self, group: int) -> bool:
        """SIGKILL to ``group`` and to every descendant, until none is left; ``False`` if some still are."""
        deadline = time.monotonic() + GONE_SECONDS
        kill_group(group)
        while self.reap():
            if time.monotonic() > deadline:
                return False
            _kill_each(descendants(os.getpid()))
            time.sleep(_POLL_SECONDS)
        return True


def kill_below(root: int, rounds: int = 5) -> None:
    """SIGKILL to everything below ``root`` and nothing else; a few rounds, for what forked meanwhile."""
    for _ in range(rounds):
        found = [pid for pid in descendants(root) if stat_field(pid, 3) not in ("Z", "X", None)]
        if not found:
            return
        _kill_each(found)


def _kill_each(found: Iterable[int]) -> None:
    for pid in found:
        kill(pid)


def strays_of(home: str) -> list[int]:
    """Processes of this user that still have ``home`` as their home folder. A script that changed it for its
    children hides them; the supervisor's own means find those, as long as it lives."""
    mark = f"HOME={home}".encode()
    found = []
    for pid in pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue
    return found
