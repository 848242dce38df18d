"""The contract between the driver and whatever holds a sandbox's processes together.

Everything here reads and writes files of the kernel and blocks: call it in a worker thread, one call per
group at a time. The times given were measured on a two-core machine with version 1.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from python_exec_sandbox.model.limits import SandboxLimits


class Limit(StrEnum):
    """What of a sandbox can be limited from outside it."""

    MEMORY = "memory"
    SWAP = "swap"
    """Whether the memory limit holds without swap."""
    PROCESSES = "processes"
    CPUS = "cpus"


class Means(StrEnum):
    """What holds a limit."""

    GROUP = "group"
    """The kernel, for the sandbox as a whole."""
    RLIMIT = "rlimit"
    """A resource limit that the driver sets inside the sandbox, once its user namespace is entered."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class LimitState:
    """``reason`` is empty if the limit holds for the sandbox as a whole; else it says why, and what to do."""

    limit: Limit
    means: Means
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """What the kernel counted for one sandbox since it was made; ``None`` where it doesn't tell."""

    memory_kills: int | None = None
    peak_memory_bytes: int | None = None
    refused_forks: int | None = None


class Group(Protocol):
    """The processes of one sandbox, descendants included, however often they fork or call setsid."""

    @property
    def name(self) -> str:
        """Unique on this machine; says which server made it."""

    @property
    def entrances(self) -> tuple[Path, ...]:
        """Files to write a process id to, each; ``0`` means the writer itself. Empty without groups.

        For a child that goes in before it executes anything: what it forks is inside from the start.
        """

    def add(self, pid: int) -> None:
        """Put the process ``pid`` in; what it forked before stays outside. 0.3 ms; the first
        one after a quiet time 16 ms.

        Raises:
            ProcessLookupError: there is no such process.
            CreateFailed: the kernel refused.
        """

    def usage(self) -> GroupUsage:
        """The counts so far; all ``None`` after :meth:`remove`. Never raises. Under 1 ms."""

    def kill(self) -> None:
        """SIGKILL to everything inside until nothing is left; a group that is gone is fine.

        3-8 ms; a fork bomb of 64 processes is emptied in 13 ms. Without groups it does nothing: killing the
        outer bubblewrap is all there is.

        Raises:
            DriverError: something was left after 2 s.
        """

    def remove(self) -> None:
        """Kill what is left and give the group back to the kernel; again and again is fine.

        Raises:
            DriverError: it could not be removed within 2 s; call again later.
        """


class Groups(Protocol):
    """Makes the groups of one server."""

    @property
    def kind(self) -> str:
        """In words, such as ``"cgroup v1, as root"``."""

    @property
    def effective(self) -> tuple[LimitState, ...]:
        """Of each :class:`Limit`, found out by a trial when the groups were claimed."""

    def open(self, limits: SandboxLimits) -> Group:
        """A new, empty group under ``limits``. ``limits.processes`` counts threads, and every process of
        the sandbox, bubblewrap's own included. 0.5 ms.

        Raises:
            CreateFailed: the kernel refused; nothing is left.
        """

    def left(self) -> int:
        """How many groups of dead servers :meth:`sweep` would remove. Never raises."""

    def sweep(self) -> int:
        """Kill and remove what dead servers of this machine left; how many groups that were.

        Never touches one of a living server, or of one that can't be judged from here.

        Raises:
            DriverError: something could not be removed.
        """

    def close(self) -> None:
        """Give back what was claimed, as far as it is empty. Never raises."""
