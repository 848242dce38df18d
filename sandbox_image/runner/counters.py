"""What the kernel counts for this sandbox: memory kills, refused forks, peak memory, full file systems."""

import os
from dataclasses import dataclass

_MEMORY_KILLS = (
    ("/sys/fs/cgroup/memory.events", "oom_kill"),  # version 2
    ("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill"),  # version 1; failcnt counts something else
)
_REFUSED_FORKS = (("/sys/fs/cgroup/pids.events", "max"), ("/sys/fs/cgroup/pids/pids.events", "max"))
_PEAKS = ("/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes")


@dataclass(frozen=True)
class Counters:
    """A reading; ``None`` where the kernel doesn't tell."""

    memory_kills: int | None
    refused_forks: int | None

    @classmethod
    def read(cls) -> "Counters":
        return cls(_first(_MEMORY_KILLS), _first(_REFUSED_FORKS))

    def since(self, earlier: "Counters") -> tuple[int | None, int | None]:
        """Growth of both counters since ``earlier``."""
        return (
            _grown(self.memory_kills, earlier.memory_kills),
            _grown(self.refused_forks, earlier.refused_forks),
        )


def peak_memory_bytes() -> int | None:
    """The most memory this sandbox ever held, runner and start-up included."""
    for path in _PEAKS:
        try:
            with open(path, encoding="ascii") as file:
                return int(file.read())
        except (OSError, ValueError):
            continue
    return None


def full_paths(paths: tuple[str, ...]) -> list[str]:
    """Those of ``paths`` whose file system has no block or no inode left."""
    full = []
    for path in paths:
        try:
            room = os.statvfs(path)
        except OSError:
            continue
        if room.f_bavail == 0 or (room.f_files > 0 and room.f_favail == 0):
            full.append(path)
    return full


def _first(places: tuple[tuple[str, str], ...]) -> int | None:
    for path, key in places:
        try:
            with open(path, encoding="ascii") as file:
                values = dict(line.split() for line in file if len(line.split()) == 2)
            return int(values[key])
        except (OSError, ValueError, KeyError):
            continue
    return None


def _grown(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before
