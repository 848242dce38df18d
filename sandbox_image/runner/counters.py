"""What the kernel counts for this sandbox: memory kills, refused forks, peak memory, full file systems."""

import os

_MEMORY_KILLS = (
    ("/sys/fs/cgroup/memory.events", b"oom_kill"),  # version 2
    ("/sys/fs/cgroup/memory/memory.oom_control", b"oom_kill"),  # version 1; failcnt counts something else
)
_REFUSED_FORKS = (("/sys/fs/cgroup/pids.events", b"max"), ("/sys/fs/cgroup/pids/pids.events", b"max"))
_PEAKS = (("/sys/fs/cgroup/memory.peak", b""), ("/sys/fs/cgroup/memory/memory.max_usage_in_bytes", b""))

_READ_BYTES = 4096


class Counters:
    """Growth since it was made; ``None`` where the kernel doesn't tell.

    The files are opened once, while the sandbox is idle, and read again at the end of the run.
    """

    def __init__(self) -> None:
        self._kills = _Counter(_MEMORY_KILLS)
        self._refusals = _Counter(_REFUSED_FORKS)
        self._peak = _Counter(_PEAKS)

    def memory_kills(self) -> int | None:
        return self._kills.grown()

    def refused_forks(self) -> int | None:
        return self._refusals.grown()

    def peak_memory_bytes(self) -> int | None:
        """The most memory this sandbox ever held, runner and start-up included."""
        return self._peak.read()


class _Counter:
    """The number after ``key`` in the first of several files that there is; alone in its file if no key."""

    def __init__(self, places: tuple[tuple[str, bytes], ...]) -> None:
        self._fd = -1
        self._key = b""
        for path, key in places:
            try:
                self._fd = os.open(path, os.O_RDONLY)
            except OSError:
                continue
            self._key = key
            break
        self._before = self.read()

    def read(self) -> int | None:
        if self._fd < 0:
            return None
        try:
            words = os.pread(self._fd, _READ_BYTES, 0).split()
            return int(words[words.index(self._key) + 1] if self._key else words[0])
        except (OSError, ValueError, IndexError):
            return None

    def grown(self) -> int | None:
        now = self.read()
        return None if now is None or self._before is None else now - self._before


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
