"""Who a server process is, so that another one can tell later whether it still lives.

A process id alone is reused; with the time the process started and the boot it belongs to it is unique.
Both are read from ``/proc`` where that exists and asked of ``ps`` and ``sysctl`` elsewhere (macOS).
Everything here blocks for a moment: call it in a worker thread.
"""

import os
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

# ps and sysctl answer in milliseconds; more means that the machine can't tell.
_COMMAND_SECONDS = 5.0

_PROC = Path("/proc")

# Field 22 of /proc/PID/stat (proc_pid_stat(5)), counted from the state, which is field 3.
_START_TIME_AFTER_NAME = 22 - 3


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """``boot_id`` names the boot and, on Linux, the PID namespace: a process id means nothing outside it."""

    pid: int
    start_time: str
    boot_id: str


class Life(Enum):
    """What can be said about a server process."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """Of another machine, boot or PID namespace, or the system doesn't tell."""


def own_identity() -> ServerIdentity:
    """This process. Parts that the system doesn't tell are ``"unknown"``, which no sweep ever matches."""
    pid = os.getpid()
    return ServerIdentity(pid=pid, start_time=start_time(pid) or "unknown", boot_id=boot_id() or "unknown")


def life_of(server: ServerIdentity) -> Life:
    """Whether ``server`` still runs; ``UNKNOWN`` unless that is certain."""
    here = boot_id()
    if here is None or server.boot_id != here or server.start_time == "unknown":
        return Life.UNKNOWN
    started = start_time(server.pid)
    if started is not None:
        return Life.ALIVE if started == server.start_time else Life.DEAD
    return Life.DEAD if not _exists(server.pid) or _is_zombie(server.pid) else Life.UNKNOWN


def boot_id() -> str | None:
    """One value per boot and PID namespace of this machine, or ``None``."""
    if (boot := _read(_PROC / "sys/kernel/random/boot_id")) is not None:
        try:
            namespace = (_PROC / "self/ns/pid").readlink()
        except OSError:
            return None
        return f"{boot.strip()}/{namespace}"
    return _ask("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")


def start_time(pid: int) -> str | None:
    """When the living process ``pid`` started, in the system's own words; ``None`` for none or a zombie."""
    if (_PROC / "self/stat").exists():
        fields = _stat_fields(pid)
        return None if fields is None or fields[0] == "Z" else fields[_START_TIME_AFTER_NAME]
    return _ask("/bin/ps", "-o", "lstart=", "-p", str(pid))


def _stat_fields(pid: int) -> list[str] | None:
    text = _read(_PROC / str(pid) / "stat")
    # The name, in parentheses, may hold anything, parentheses and spaces included.
    fields = text.rpartition(")")[2].split() if text else []
    return fields if len(fields) > _START_TIME_AFTER_NAME else None


def _is_zombie(pid: int) -> bool:
    fields = _stat_fields(pid)
    return fields is not None and fields[0] == "Z"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # not ours, but there
    return True


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _ask(*command: str) -> str | None:
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
            env={"LC_ALL": "C", "TZ": "UTC"},  # the same words from every server, whatever its settings
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (answer.stdout.strip() or None) if answer.returncode == 0 else None
