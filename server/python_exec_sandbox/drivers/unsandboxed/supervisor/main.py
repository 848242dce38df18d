"""Where a supervisor's process begins and ends."""

import contextlib
import os
import signal
import socket
import sys
from typing import NoReturn

from python_exec_sandbox.drivers.unsandboxed.supervisor import folder
from python_exec_sandbox.drivers.unsandboxed.supervisor.link import Link, ServerGone
from python_exec_sandbox.drivers.unsandboxed.supervisor.loop import Supervisor
from python_exec_sandbox.drivers.unsandboxed.supervisor.spec import SupervisorSpec
from python_exec_sandbox.drivers.unsandboxed.supervisor.tree import become_reaper

EXIT_FAULT = 70

# What ends a terminal's session must not end the one that cleans up; the server's end does.
_NOT_ITS_BUSINESS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE)


def main() -> NoReturn:
    """Supervise one run as the command line says; never returns."""
    spec = SupervisorSpec.from_json(sys.argv[1])
    for fd in (spec.control_fd, spec.lock_fd):
        os.set_inheritable(fd, False)
    for number in _NOT_ITS_BUSINESS:
        signal.signal(number, signal.SIG_IGN)
    wake_out, wake_in = os.pipe()
    for fd in (wake_out, wake_in):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
    link = Link(socket.socket(fileno=spec.control_fd))
    supervisor = Supervisor(spec, link, wake_out)
    code = 0
    try:
        become_reaper()
        supervisor.run()
    except ServerGone:
        pass
    except BaseException as error:  # noqa: BLE001 - the server is told whatever it is
        code = EXIT_FAULT
        _tell(link, error)
    finally:
        _clean_up(supervisor)
        os._exit(code)


def _tell(link: Link, error: BaseException) -> None:
    link.control(type="fault", text=f"{type(error).__name__}: {error}"[:4096])
    with contextlib.suppress(ServerGone):
        link.flush()


def _clean_up(supervisor: Supervisor) -> None:
    """Nothing of the run may be left, neither a process nor a file."""
    try:
        if supervisor.process is not None:
            supervisor.process.end()
    finally:
        folder.remove(supervisor.spec.folder)
