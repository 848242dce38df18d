"""PID 1 of the script's namespace is nobody's to signal or to change, as on any machine.

It runs as the same user as the script, so the kernel alone would allow it. What one could still do by a pidfd is
to end one's own namespace, and with it oneself.
"""

from python_exec_sandbox.drivers.bubblewrap.seccomp.assembler import (
    Block,
    give,
    give_if_any,
    if_equal,
    load_argument,
)

# Calls that name a process by its id: the argument's index, the number on x86-64, on aarch64
# (arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h).
_CALLS: tuple[tuple[str, int, int, int], ...] = (
    ("kill", 0, 62, 129),
    ("tkill", 0, 200, 130),
    ("tgkill", 0, 234, 131),
    ("rt_sigqueueinfo", 0, 129, 138),
    ("rt_tgsigqueueinfo", 0, 297, 240),
    ("prlimit64", 0, 302, 261),
    ("sched_setparam", 0, 142, 118),
    ("sched_setscheduler", 0, 144, 119),
    ("sched_setaffinity", 0, 203, 122),
    ("sched_setattr", 0, 314, 274),
    ("setpriority", 1, 141, 140),
    ("ioprio_set", 1, 251, 30),
)


def init_shield(machine: str, allow: int, refuse: int) -> tuple[Block, ...]:
    """Tests of the number in the register for ``machine``: ``refuse`` for PID 1, ``allow`` for all others."""
    return tuple(
        if_equal(
            arm if machine == "aarch64" else intel,
            load_argument(index) + give_if_any((1,), refuse) + give(allow),
        )
        for _, index, intel, arm in _CALLS
    )
