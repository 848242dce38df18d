"""What a sandbox, and one run in it, may use."""

from dataclasses import dataclass

MIB = 1024 * 1024

RUNNER_RESERVE_BYTES = 64 * MIB
"""Memory kept for the runner and its interpreter when tmpfs sizes are chosen."""


@dataclass(frozen=True, slots=True)
class DiskShares:
    """How ``disk_bytes`` is split over the writable paths of a sandbox, in bytes."""

    work: int
    tmp: int
    shm: int
    home: int

    def of(self, path: str) -> int | None:
        """The share of the writable folder ``path``; ``None`` for any other."""
        named = {"/work": self.work, "/tmp": self.tmp, "/dev/shm": self.shm, "/home/sandbox": self.home}  # noqa: S108  # paths inside the sandbox
        return named.get(path)


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits that are fixed when a sandbox is made.

    ``memory_bytes`` covers processes and every tmpfs, without swap. ``disk_bytes`` is the sum of the
    writable paths a script finds; ``environment_bytes`` is the place its packages are installed in.
    """

    memory_bytes: int = 512 * MIB
    cpus: float = 1.0
    processes: int = 128
    disk_bytes: int = 256 * MIB
    environment_bytes: int = 192 * MIB
    open_files: int = 1024

    def disk_shares(self) -> DiskShares:
        """Half for the working folder, a quarter for /tmp, the rest for /dev/shm (3/16) and the home."""
        sixteenth = self.disk_bytes // 16
        return DiskShares(work=8 * sixteenth, tmp=4 * sixteenth, shm=3 * sixteenth, home=sixteenth)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run. ``output_bytes`` counts both streams; beyond it the run is stopped."""

    run_seconds: float
    install_seconds: float = 120.0
    output_bytes: int = 1024 * MIB
