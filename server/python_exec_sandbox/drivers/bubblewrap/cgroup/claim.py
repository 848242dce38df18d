"""Which way of grouping processes this machine offers this user.

Version 2: a group that systemd already left to this server (a unit with ``Delegate=yes``), else as root one at
the top, else a scope of the user's systemd. Version 1: as root. Else none, with what stood in the way.
"""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Groups
from python_exec_sandbox.drivers.bubblewrap.cgroup.dialects import V1, V2, Dialect
from python_exec_sandbox.drivers.bubblewrap.cgroup.divide import divide, enable
from python_exec_sandbox.drivers.bubblewrap.cgroup.fallback import NoGroups
from python_exec_sandbox.drivers.bubblewrap.cgroup.group import processes_in
from python_exec_sandbox.drivers.bubblewrap.cgroup.groups import KernelGroups, Place, Unavailable
from python_exec_sandbox.drivers.bubblewrap.cgroup.kernel import Kernel, RealKernel
from python_exec_sandbox.drivers.bubblewrap.cgroup.mounts import Hierarchies, Mount, own_group, read_mounts
from python_exec_sandbox.drivers.bubblewrap.cgroup.names import BASE, HOLDER, is_scope
from python_exec_sandbox.drivers.bubblewrap.cgroup.scope import Ask, ask_user_systemd, enter_scope
from python_exec_sandbox.drivers.identity import Life, ServerIdentity, life_of

_PROC = Path("/proc/self")

_V1_CONTROLLERS = ("memory", "pids", "cpu", "freezer")
_V2_CONTROLLERS = ("memory", "pids", "cpu")

_NOT_MOUNTED = "this machine has no {controller} controller of control groups"
_NOT_DELEGATED = (
    "the {controller} controller isn't left to this user "
    "(an administrator can: Delegate=memory pids cpu in user@.service)"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the answer comes from; a test gives another one."""

    kernel: Kernel
    ask: Ask
    uid: int
    release: str
    life: Callable[[ServerIdentity], Life] = life_of


def claim_groups(server: ServerIdentity) -> Groups:
    """The best there is, tried out; without any, groups that limit nothing and say why. Never raises.

    Call it once per server, in a worker thread, before the first sandbox is made: it may move this process
    to a group of its own. Up to 5 s if the user's systemd doesn't answer, 0.1 s otherwise.
    """
    machine = Machine(
        kernel=RealKernel(), ask=ask_user_systemd, uid=os.getuid(), release=platform.uname().release
    )
    return claim_on(machine, server)


def claim_on(machine: Machine, server: ServerIdentity) -> Groups:
    """As :func:`claim_groups`, on that machine."""
    try:
        found = read_mounts(machine.kernel.read(_PROC / "mountinfo"))
    except OSError as error:
        return NoGroups(f"the kernel's mounts can't be read ({error})", machine.release)
    try:
        if found.v2 is not None and _has_controllers(machine.kernel, found.v2.point):
            return _claim_v2(machine, server, found.v2)
        return _claim_v1(machine, server, found)
    except (Unavailable, OSError) as error:
        return NoGroups(str(error), machine.release)


def _has_controllers(kernel: Kernel, folder: Path) -> bool:
    """In the hybrid layout version 2 is mounted too, without those that matter here."""
    return bool({"memory", "pids"} & set(kernel.read(folder / "cgroup.controllers").split()))


def _claim_v1(machine: Machine, server: ServerIdentity, found: Hierarchies) -> Groups:
    # At the top of each hierarchy, as container engines do: a server's own group differs from one controller to
    # the next, goes with its session, and would hide what a dead server left in another one.
    place = {name: found.v1[name].point / BASE for name in _V1_CONTROLLERS if name in found.v1}
    if not place:
        raise Unavailable("this machine has no control groups")
    if machine.uid != 0:
        raise Unavailable("control groups of version 1 are root's alone")
    return _groups(machine, server, V1, place, kind="cgroup v1, as root", missing=_NOT_MOUNTED)


def _claim_v2(machine: Machine, server: ServerIdentity, mount: Mount) -> Groups:
    if (base := _delegated(machine, server, mount)) is not None:
        return _claim_delegated(machine, server, base, "cgroup v2, delegated")
    if machine.uid == 0:
        return _claim_top(machine, server, mount)
    enter_scope(machine.kernel, server, machine.ask, lambda: _own_group(machine.kernel))
    base = mount.folder_of(_own_group(machine.kernel) or "")
    if base is None or not _is_ours_to_write(machine.kernel, base):
        raise Unavailable("the user's systemd made a scope that this user may not divide")
    return _claim_delegated(machine, server, base, "cgroup v2, a scope of the user's systemd")


def _own_group(kernel: Kernel) -> str | None:
    return own_group(kernel.read(_PROC / "cgroup"))


def _is_ours_to_write(kernel: Kernel, folder: Path) -> bool:
    return kernel.may_write(folder) and kernel.may_write(folder / "cgroup.procs")


def _delegated(machine: Machine, server: ServerIdentity, mount: Mount) -> Path | None:
    """The group that this server may divide as it is, or ``None``.

    Being allowed to write is not enough: an application's group belongs to its user too, and the shells
    and windows in it are not ours to move.
    """
    kernel = machine.kernel
    folder = mount.folder_of(_own_group(kernel) or "/..")
    if folder is None:
        return None
    if folder.name == HOLDER:  # a server was here before, or this one's parent is a server
        folder = folder.parent
    if not _is_ours_to_write(kernel, folder):
        return None
    alone = machine.uid != 0 and processes_in(kernel, folder) == [server.pid]
    return folder if kernel.is_delegated(folder) or is_scope(folder.name) or alone else None


def _claim_delegated(machine: Machine, server: ServerIdentity, base: Path, kind: str) -> Groups:
    enabled = divide(machine.kernel, base, _V2_CONTROLLERS)

    def neighbours() -> list[Place]:
        names = machine.kernel.folders(base.parent)
        return [_v2_place(base.parent / name, ()) for name in names if is_scope(name) and name != base.name]

    place = _v2_place(base, enabled)
    return _groups(machine, server, V2, place, kind=kind, missing=_NOT_DELEGATED, elsewhere=neighbours)


def _claim_top(machine: Machine, server: ServerIdentity, mount: Mount) -> Groups:
    kernel, base = machine.kernel, mount.point / BASE
    if not enable(kernel, mount.point, _V2_CONTROLLERS):
        # The top of a container looks like any other group to the kernel: to be divided it must hold no process.
        divide(kernel, mount.point, _V2_CONTROLLERS)
    kernel.make(base)
    place = _v2_place(base, enable(kernel, base, _V2_CONTROLLERS))
    return _groups(machine, server, V2, place, kind="cgroup v2, as root", missing=_NOT_MOUNTED)


def _v2_place(base: Path, controllers: tuple[str, ...]) -> Place:
    return dict.fromkeys((*controllers, "freezer"), base)  # which isn't a controller any more: always there


def _groups(
    machine: Machine,
    server: ServerIdentity,
    dialect: Dialect,
    place: Place,
    *,
    kind: str,
    missing: str,
    elsewhere: Callable[[], list[Place]] = list,
) -> Groups:
    return KernelGroups(
        machine.kernel,
        server,
        dialect,
        place,
        kind=kind,
        missing=missing,
        release=machine.release,
        elsewhere=elsewhere,
        life=machine.life,
    )
