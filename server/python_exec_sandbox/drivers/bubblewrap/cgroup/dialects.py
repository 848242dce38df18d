"""The same limits and counts in the words of both versions of control groups; data only.

Sources: ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/`` of Linux.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Limit
from python_exec_sandbox.model.limits import SandboxLimits

CPU_PERIOD_MICROSECONDS = 100_000

# The kernel takes no smaller quota than a millisecond.
_LEAST_QUOTA_MICROSECONDS = 1_000


@dataclass(frozen=True, slots=True)
class Setting:
    """One value to write into ``file`` of the group."""

    file: str
    value: Callable[[SandboxLimits], int | str]


@dataclass(frozen=True, slots=True)
class Counter:
    """A number of the kernel: behind ``key`` in ``file``, or alone in it."""

    controller: str
    file: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Freezer:
    """``state`` reads ``frozen`` once nothing in the group runs any more."""

    file: str
    freeze: str
    thaw: str
    state: str
    frozen: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """``settings`` are written in their order; ``kill_file`` ends everything in one go where the kernel has it."""

    settings: Mapping[Limit, tuple[Setting, ...]]
    memory_kills: Counter
    peak_memory: Counter
    refused_forks: Counter
    freezer: Freezer
    kill_file: str | None


CONTROLLERS = {Limit.MEMORY: "memory", Limit.SWAP: "memory", Limit.PROCESSES: "pids", Limit.CPUS: "cpu"}


def _memory(limits: SandboxLimits) -> int:
    return limits.memory_bytes


def _processes(limits: SandboxLimits) -> int:
    return limits.processes


def _quota(limits: SandboxLimits) -> int:
    return max(_LEAST_QUOTA_MICROSECONDS, round(limits.cpus * CPU_PERIOD_MICROSECONDS))


V1 = Dialect(
    settings={
        Limit.MEMORY: (Setting("memory.limit_in_bytes", _memory),),
        # Memory and swap together, so that none is left for swap.
        Limit.SWAP: (Setting("memory.memsw.limit_in_bytes", _memory),),
        Limit.PROCESSES: (Setting("pids.max", _processes),),
        Limit.CPUS: (
            Setting("cpu.cfs_period_us", lambda _: CPU_PERIOD_MICROSECONDS),
            Setting("cpu.cfs_quota_us", _quota),
        ),
    },
    # Not memory.failcnt, which counts each time the kernel had to make room, and not always at a kill.
    memory_kills=Counter("memory", "memory.oom_control", "oom_kill"),
    peak_memory=Counter("memory", "memory.max_usage_in_bytes"),
    refused_forks=Counter("pids", "pids.events", "max"),
    freezer=Freezer("freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"),
    kill_file=None,
)

V2 = Dialect(
    # memory.oom.group stays off: with it a script that takes too much memory takes the runner with it, and
    # what it had saved. The runner makes the script the first to be killed (oom_score_adj).
    settings={
        Limit.MEMORY: (Setting("memory.max", _memory),),
        Limit.SWAP: (Setting("memory.swap.max", lambda _: 0),),
        Limit.PROCESSES: (Setting("pids.max", _processes),),
        Limit.CPUS: (Setting("cpu.max", lambda limits: f"{_quota(limits)} {CPU_PERIOD_MICROSECONDS}"),),
    },
    memory_kills=Counter("memory", "memory.events", "oom_kill"),
    peak_memory=Counter("memory", "memory.peak"),  # Linux 5.19
    refused_forks=Counter("pids", "pids.events", "max"),
    freezer=Freezer("cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"),
    kill_file="cgroup.kill",  # Linux 5.14
)
