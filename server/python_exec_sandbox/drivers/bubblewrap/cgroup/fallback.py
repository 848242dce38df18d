"""What holds where the kernel groups no processes for us."""

import re
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import GroupUsage, Limit, LimitState, Means
from python_exec_sandbox.model.limits import SandboxLimits

# From this version on RLIMIT_NPROC counts the processes of a user namespace by themselves.
_COUNTS_PER_NAMESPACE = (5, 14)


def without_group(limit: Limit, why: str, release: str) -> LimitState:
    """How ``limit`` holds without a group, on a kernel of that ``release``; ``why`` there is none for it."""
    match limit:
        case Limit.MEMORY:
            reason = (
                f"{why}: held for each process by itself (RLIMIT_AS), not for all of them and their files"
            )
            return LimitState(limit, Means.RLIMIT, reason)
        case Limit.SWAP:
            return LimitState(limit, Means.NOTHING, f"{why}: memory may go to the machine's swap")
        case Limit.PROCESSES if _version(release) >= _COUNTS_PER_NAMESPACE:
            return LimitState(limit, Means.RLIMIT, f"{why}: held inside the sandbox (RLIMIT_NPROC)")
        case Limit.PROCESSES:
            reason = (
                f"{why}, and Linux {release} counts all processes of a user together; 5.14 or newer is needed"
            )
            return LimitState(limit, Means.NOTHING, reason)
        case Limit.CPUS:
            return LimitState(limit, Means.NOTHING, f"{why}: a script may use every processor")


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


class NoGroup:
    """Stands for a sandbox that has none."""

    entrances: tuple[Path, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def add(self, pid: int) -> None:
        """Nothing to add to."""

    def usage(self) -> GroupUsage:
        return GroupUsage()

    def kill(self) -> None:
        """Killing the outer bubblewrap ends its PID namespace; that is all there is."""

    def remove(self) -> None:
        """Nothing was made."""


class NoGroups:
    """``why``: each way that was tried, and what came of it."""

    def __init__(self, why: str, release: str) -> None:
        self.kind = "no control groups"
        self.effective = tuple(without_group(limit, why, release) for limit in Limit)
        self._made = 0

    def open(self, limits: SandboxLimits) -> NoGroup:
        self._made += 1
        return NoGroup(f"sandbox_{self._made}")

    def left(self) -> int:
        return 0

    def sweep(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing was claimed."""
