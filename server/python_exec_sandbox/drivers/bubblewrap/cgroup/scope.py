"""A group of its own for this server, from the user's systemd.

``StartTransientUnit`` of ``org.freedesktop.systemd1(5)``, asked through ``busctl``: it comes with systemd, and a
D-Bus library for one call would not be worth its weight.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence

from python_exec_sandbox.drivers.bubblewrap.cgroup.groups import Unavailable
from python_exec_sandbox.drivers.bubblewrap.cgroup.kernel import Kernel
from python_exec_sandbox.drivers.bubblewrap.cgroup.names import scope_name
from python_exec_sandbox.drivers.identity import ServerIdentity

Ask = Callable[[Sequence[str]], None]
"""Runs a method of the user's systemd with these arguments; raises :class:`Unavailable`."""

# systemd answers in milliseconds; a bus that hangs must not hold up the first sandbox for long.
_ANSWER_SECONDS = 2.0

_SYSTEM_PATH = "/usr/bin:/bin:/run/current-system/sw/bin"


def start_scope_arguments(server: ServerIdentity) -> list[str]:
    """The call that moves ``server``'s process to a new scope which it may divide.

    ``Delegate`` also keeps systemd from ending the whole scope when a sandbox runs out of memory
    (``OOMPolicy=`` is ``continue`` for such units).
    """
    properties = [
        ("Description", "s", "Python sandboxes"),
        ("PIDs", "au", "1", str(server.pid)),
        ("Delegate", "b", "true"),
        ("CollectMode", "s", "inactive-or-failed"),
    ]
    return [
        *("StartTransientUnit", "ssa(sv)a(sa(sv))", scope_name(server), "fail"),
        *(str(len(properties)), *(word for each in properties for word in each)),
        "0",
    ]


def ask_user_systemd(arguments: Sequence[str]) -> None:
    """Call the manager of this user's systemd.

    Raises:
        Unavailable: there is none, or it refused.
    """
    busctl = shutil.which("busctl", path=f"{_SYSTEM_PATH}:{os.environ.get('PATH', '')}")
    if busctl is None:
        raise Unavailable("there is no busctl to ask the user's systemd with")
    manager = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
    command = [busctl, "--user", "--quiet", f"--timeout={_ANSWER_SECONDS:g}", "call", *manager, *arguments]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS + 1,
            check=False,
            env=_bus_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"the user's systemd could not be asked ({error})") from error
    if answer.returncode != 0:
        raise Unavailable(f"the user's systemd refused a scope ({answer.stderr.strip()[:200]})")


def _bus_environment() -> dict[str, str]:
    """Where the user's bus is. Clients start servers with few variables: the usual place is assumed."""
    variables = {"LC_ALL": "C", "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"):
        if value := os.environ.get(name):
            variables[name] = value
    return variables


def enter_scope(
    kernel: Kernel, server: ServerIdentity, ask: Ask, own_group: Callable[[], str | None]
) -> None:
    """Return once this process is in its scope.

    Raises:
        Unavailable: there is no user's systemd, it refused, or it didn't move the process in time.
    """
    ask(start_scope_arguments(server))
    deadline = kernel.seconds() + _ANSWER_SECONDS
    while not (own_group() or "").endswith(
        f"/{scope_name(server)}"
    ):  # systemd answers before it has moved it
        if kernel.seconds() > deadline:
            raise Unavailable(
                f"the user's systemd made a scope but moved nothing there in {_ANSWER_SECONDS:g} s"
            )
        kernel.pause()
