"""Dividing a group of version 2: its processes must leave it before its controllers can be handed on."""

from contextlib import suppress
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.cgroup.group import processes_in
from python_exec_sandbox.drivers.bubblewrap.cgroup.kernel import Kernel
from python_exec_sandbox.drivers.bubblewrap.cgroup.names import HOLDER

# Each round takes what was forked during the one before; a server that starts forks next to nothing.
_ROUNDS = 10


def enable(kernel: Kernel, folder: Path, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Hand on to the groups in ``folder`` what of ``wanted`` it has; returns what they have then."""
    control = folder / "cgroup.subtree_control"
    for controller in kernel.read(folder / "cgroup.controllers").split():
        if controller in wanted:
            with suppress(OSError):  # what came of it is read below
                kernel.write(control, f"+{controller}")
    enabled = kernel.read(control).split()
    return tuple(controller for controller in wanted if controller in enabled)


def divide(kernel: Kernel, folder: Path, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """As :func:`enable`, after the processes of ``folder`` moved to a group of their own in it."""
    holder = folder / HOLDER
    kernel.make(holder)
    for _ in range(_ROUNDS):
        if not (processes := processes_in(kernel, folder)):
            break
        for pid in processes:
            with suppress(OSError):  # it ended, or may not be moved: then enabling fails and says so
                kernel.write(holder / "cgroup.procs", str(pid))
    return enable(kernel, folder, wanted)
