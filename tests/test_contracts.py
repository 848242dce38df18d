"""The structure that the design promises: who imports whom, what start-up costs, and that macOS can import it."""

import subprocess
import sys
from pathlib import Path

import pytest

from python_exec_sandbox.settings import Settings

ROOT = Path(__file__).parent.parent

HIDE_LINUX = """
import os, sys

import anyio, docker, mcp.server.mcpserver, pydantic_settings, tenacity  # what isn't ours may look at the platform
import fcntl, pkgutil, resource, select, signal, socket, subprocess, time

ABSENT = {  # what CPython doesn't offer on macOS
    os: "pidfd_open memfd_create eventfd pipe2 splice setns unshare getrandom posix_fadvise setresuid setresgid "
        "getresuid getresgid sched_getaffinity sched_setaffinity sched_setscheduler O_PATH O_TMPFILE P_PIDFD",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGPWR SIGSTKFLT SIGRTMIN SIGRTMAX",
    select: "epoll EPOLLIN EPOLLHUP",
    socket: "AF_NETLINK AF_VSOCK SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK",
    resource: "prlimit",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_NOTIFY",
    time: "CLOCK_BOOTTIME pthread_getcpuclockid",
}
for module, names in ABSENT.items():
    for name in names.split():
        vars(module).pop(name, None)

def refuse(event, args):
    if event == "open" and str(args[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(args[0])
    if event == "ctypes.dlopen" and args[0] and "libc.so" in str(args[0]):
        raise OSError(args[0])

sys.platform = "darwin"
sys.addaudithook(refuse)
"""

IMPORT_ALL = """
import pkgutil
import python_exec_sandbox

for module in pkgutil.walk_packages(python_exec_sandbox.__path__, "python_exec_sandbox."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
        print(module.name)
"""


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_contracts_of_the_design_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def test_every_module_imports_where_the_names_that_only_linux_has_are_missing() -> None:
    imported = run_python(HIDE_LINUX + IMPORT_ALL).split()
    assert "python_exec_sandbox.drivers.docker.gateway" in imported


def test_a_module_that_needs_a_linux_only_name_would_be_caught() -> None:
    with pytest.raises(AssertionError, match="pidfd_open"):
        run_python(HIDE_LINUX + "from os import pidfd_open")
    with pytest.raises(AssertionError, match="FileNotFoundError"):
        run_python(HIDE_LINUX + "open('/proc/self/stat')")


def test_starting_the_server_imports_neither_the_docker_sdk_nor_its_http_client() -> None:
    code = "import sys, python_exec_sandbox.cli, python_exec_sandbox.api.app; print(*sys.modules)"
    imported = set(run_python(code).split())
    assert "mcp" in imported
    assert not imported & {"docker", "requests", "urllib3", "tenacity"}


def test_the_readme_lists_every_setting_and_no_other() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- settings -->")[2]
    rows = [
        line
        for line in table.partition("<!-- end of settings -->")[0].splitlines()
        if line.startswith("| `--")
    ]
    listed = {row.split("`")[1].removeprefix("--").partition(" ")[0].replace("-", "_") for row in rows}
    assert listed == set(Settings.model_fields) | {"config"}
