"""The filter in the kernel: what a process under it is refused, and what it can still do."""

import errno
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.seccomp.numbers import ARCHITECTURES
from python_exec_sandbox.drivers.bubblewrap.seccomp.policy import ABSENT, filter_program
from tests.support.forbidden_calls import ARGUMENTS
from tests.support.ordinary_things import THINGS

MACHINE = platform.machine()

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or MACHINE not in ARCHITECTURES, reason="needs Linux on x86-64 or aarch64"
)

SUPPORT = Path(__file__).parents[2] / "support"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def run_filtered(tmp_path: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program"
    program.write_bytes(filter_program(MACHINE))
    return run(sys.executable, SUPPORT / "filtered.py", program, sys.executable, *command)


def calls() -> list[str]:
    numbers = ARCHITECTURES[MACHINE].numbers
    return [f"{name}={numbers[name]}" for name in ARGUMENTS]


def answers(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert done.returncode == 0, done.stderr
    return {name: int(code) for name, code in map(str.split, done.stdout.splitlines())}


def test_each_forbidden_call_is_refused_from_inside(tmp_path: Path) -> None:
    seen = answers(run_filtered(tmp_path, SUPPORT / "forbidden_calls.py", *calls()))
    assert seen == {name: errno.ENOSYS if name in ABSENT else errno.EPERM for name in ARGUMENTS}


def test_without_the_filter_the_same_calls_get_other_answers() -> None:
    # Those that the kernel may be set up to refuse as the filter does, or that would make a child, are left out.
    named = [call for call in calls() if call.split("=")[0] not in {"clone", "bpf", "userfaultfd"}]
    seen = answers(run(sys.executable, SUPPORT / "forbidden_calls.py", *named))
    same = {name for name, code in seen.items() if code == (errno.ENOSYS if name in ABSENT else errno.EPERM)}
    assert not same & {"ptrace", "unshare", "kcmp", "personality", "process_vm_readv", "mount", "setns"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("socket.AF_NETLINK, socket.SOCK_RAW, 15", "EAFNOSUPPORT"),  # kernel events, open to anyone
        ("socket.AF_PACKET, socket.SOCK_RAW, 0", "EAFNOSUPPORT"),
        ("38, socket.SOCK_SEQPACKET, 0", "EAFNOSUPPORT"),  # AF_ALG, the kernel's ciphers
        ("socket.AF_VSOCK, socket.SOCK_STREAM, 0", "EAFNOSUPPORT"),
    ],
)
def test_a_socket_of_another_family_is_refused_from_inside(
    tmp_path: Path, arguments: str, error: str
) -> None:
    code = f"import socket; socket.socket({arguments})"
    done = run_filtered(tmp_path, "-c", code)
    assert f"[Errno {getattr(errno, error)}]" in done.stderr
    assert done.returncode == 1


def test_a_filter_can_not_be_taken_off_again(tmp_path: Path) -> None:
    code = (
        "import ctypes, os; libc = ctypes.CDLL(None); print(libc.prctl(22, 0, 0), libc.prctl(21), flush=True)"
    )
    assert run_filtered(tmp_path, "-c", code).stdout == "-1 2\n"


def test_what_programs_do_all_day_works_from_inside(tmp_path: Path) -> None:
    done = run_filtered(tmp_path, SUPPORT / "ordinary_things.py")
    assert done.stdout.split() == [thing.__name__ for thing in THINGS], done.stderr
    assert done.returncode == 0, done.stderr
