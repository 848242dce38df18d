"""The filter's verdict on each call that it names, on both architectures, by an interpreter of its own."""

import errno
import re
import socket
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.seccomp.numbers import ARCHITECTURES, NEWEST_KNOWN
from python_exec_sandbox.drivers.bubblewrap.seccomp.policy import ABSENT, FORBIDDEN, filter_program
from python_exec_sandbox.errors import ConfigurationError
from tests.support.bpf import Filter

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT = (
    0x00050000 | error for error in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)
)

AUDIT_NAMES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM, X32_BIT = 0x40000003, 0x40000028, 0x40000000

# What Python programs make all day; written out here so that no list of the policy can hide one.
ORDINARY = {
    "x86_64": (
        "read 0 write 1 open 2 close 3 mmap 9 mprotect 10 munmap 11 brk 12 rt_sigaction 13 pipe 22 "
        "dup 32 connect 42 sendmsg 46 bind 49 fork 57 vfork 58 execve 59 wait4 61 kill 62 shmget 29 "
        "semget 64 prctl 157 setrlimit 160 gettid 186 futex 202 sched_setaffinity 203 mq_open 240 "
        "openat 257 inotify_init 253 splice 275 timerfd_create 283 eventfd2 290 epoll_create1 291 "
        "pipe2 293 prlimit64 302 seccomp 317 getrandom 318 memfd_create 319 execveat 322 "
        "membarrier 324 copy_file_range 326 statx 332 rseq 334 pidfd_send_signal 424 pidfd_open 434 "
        "close_range 436 openat2 437 landlock_create_ruleset 444 futex_waitv 449 fchmodat2 452 "
        "mseal 462"
    ),
    "aarch64": (
        "read 63 write 64 close 57 mmap 222 mprotect 226 munmap 215 brk 214 rt_sigaction 134 "
        "pipe2 59 dup 23 connect 203 sendmsg 211 bind 200 execve 221 wait4 260 kill 129 shmget 194 "
        "semget 190 prctl 167 gettid 178 futex 98 sched_setaffinity 122 mq_open 180 openat 56 "
        "inotify_init1 26 splice 76 timerfd_create 85 eventfd2 19 epoll_create1 20 prlimit64 261 "
        "seccomp 277 getrandom 278 memfd_create 279 execveat 281 membarrier 283 copy_file_range 285 "
        "statx 291 rseq 293 pidfd_open 434 close_range 436 openat2 437 fchmodat2 452 mseal 462"
    ),
}

CONDITIONAL = {"clone", "ioctl", "socket", "socketpair", "personality"}


class Machine:
    """The filter of one architecture, asked by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers = ARCHITECTURES[name].numbers
        self.filter = Filter(filter_program(name))

    def ask(self, call: str | int, *arguments: int) -> int:
        number = call if isinstance(call, int) else self.numbers[call]
        return self.filter.verdict(AUDIT_NAMES[self.name], number, *arguments)


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine(request.param)


@pytest.mark.parametrize("call", FORBIDDEN)
def test_a_call_that_only_breaks_out_is_not_permitted(machine: Machine, call: str) -> None:
    if call in machine.numbers:
        assert machine.ask(call, 1, 2, 3, 4, 5, 6) == EPERM
    else:
        assert machine.name == "aarch64"
        assert call in {"iopl", "ioperm", "modify_ldt", "uselib", "ustat", "sysfs", "_sysctl"}


@pytest.mark.parametrize("call", ABSENT)
def test_a_call_that_programs_do_without_seems_absent(machine: Machine, call: str) -> None:
    assert machine.ask(call, 1, 2, 3, 4, 5, 6) == ENOSYS


@pytest.mark.parametrize("name", AUDIT_NAMES)
def test_what_programs_do_all_day_is_allowed_with_any_argument(name: str) -> None:
    machine = Machine(name)
    for number in map(int, ORDINARY[name].split()[1::2]):
        assert machine.ask(number) == ALLOW
        assert machine.ask(number, *[2**64 - 1] * 6) == ALLOW


def test_every_number_without_a_rule_is_allowed_up_to_the_newest_known(machine: Machine) -> None:
    ruled = {number: name for name, number in machine.numbers.items()}
    for number in range(NEWEST_KNOWN + 1):
        if number not in ruled:
            assert machine.ask(number, 5, 6, 7) == ALLOW


@pytest.mark.parametrize("number", [NEWEST_KNOWN + 1, 470, 512, 547, 1000, 2**31, 2**32 - 1])
def test_a_call_newer_than_the_newest_known_seems_absent(machine: Machine, number: int) -> None:
    assert machine.ask(number) == ENOSYS


@pytest.mark.parametrize("number", [0, 41, 59, 101, 165, 520, 521])
def test_an_x32_call_seems_absent(number: int) -> None:
    assert Machine("x86_64").ask(X32_BIT | number) == ENOSYS


@pytest.mark.parametrize("foreign", [I386, ARM, 0, 2**32 - 1])
@pytest.mark.parametrize("number", [0, 1, 59, 500])
def test_a_call_of_another_architecture_kills(machine: Machine, foreign: int, number: int) -> None:
    assert machine.filter.verdict(foreign, number) == KILL_PROCESS


def test_each_architecture_kills_the_other_ones_calls() -> None:
    assert Machine("x86_64").filter.verdict(AUDIT_NAMES["aarch64"], 0) == KILL_PROCESS
    assert Machine("aarch64").filter.verdict(AUDIT_NAMES["x86_64"], 0) == KILL_PROCESS


@pytest.mark.parametrize("flags", [0x11, 0x01200011, 0x003D0F00, 0x4111, 0xFFFFFFFF00000011])
def test_processes_and_threads_are_made_by_clone(machine: Machine, flags: int) -> None:
    assert machine.ask("clone", flags) == ALLOW


@pytest.mark.parametrize(
    "namespace", [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
)
def test_no_namespace_is_made_by_clone(machine: Machine, namespace: int) -> None:
    assert machine.ask("clone", namespace) == EPERM
    assert machine.ask("clone", namespace | 0x11) == EPERM
    assert machine.ask("clone", namespace | 0x003D0F00) == EPERM


def test_no_character_is_put_into_a_terminals_input(machine: Machine) -> None:
    for request in (0x5412, 0x541C, 0xFFFFFFFF_00005412, 0x1_0000541C):  # the kernel looks at 32 bits
        assert machine.ask("ioctl", 0, request) == EPERM
    for request in (0x5401, 0x5413, 0x541B, 0x5421):  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO
        assert machine.ask("ioctl", 0, request) == ALLOW
    assert machine.ask("ioctl", 0x5412, 0x5413, 0x5412) == ALLOW


@pytest.mark.parametrize("family", range(64))
def test_a_socket_is_local_or_of_the_internet(machine: Machine, family: int) -> None:
    allowed = {1, 2, 10, 16}
    expected = ALLOW if family in allowed else EAFNOSUPPORT
    assert machine.ask("socket", family, 1, 0) == expected
    assert machine.ask("socket", 0xABCD_00000000 | family, 1, 0) == expected


@pytest.mark.parametrize("protocol", range(1, 24))
def test_of_netlink_only_the_part_that_lists_interfaces_is_open(machine: Machine, protocol: int) -> None:
    assert machine.ask("socket", 16, 3, 0) == ALLOW
    assert machine.ask("socket", 16, 3, protocol) == EAFNOSUPPORT
    assert machine.ask("socket", 2, 3, protocol) == ALLOW


def test_a_socket_pair_is_local(machine: Machine) -> None:
    assert machine.ask("socketpair", 1, 1) == ALLOW
    for family in (0, 2, 10, 16, 30, 38, 40):
        assert machine.ask("socketpair", family, 1) == EAFNOSUPPORT


def test_the_personality_is_asked_for_or_the_ordinary_one(machine: Machine) -> None:
    assert machine.ask("personality", 0) == ALLOW
    assert machine.ask("personality", 0xFFFFFFFF) == ALLOW
    for personality in (0x0040000, 0x0400000, 0x0008, 0x4000000):
        assert machine.ask("personality", personality) == EPERM


def test_every_number_that_is_listed_has_a_rule(machine: Machine) -> None:
    assert set(machine.numbers) <= {*FORBIDDEN, *ABSENT, *CONDITIONAL}
    assert {*FORBIDDEN, *ABSENT, *CONDITIONAL} <= set(ARCHITECTURES["x86_64"].numbers)
    assert len(set(machine.numbers.values())) == len(machine.numbers)


def test_the_families_are_those_of_the_socket_module() -> None:
    named = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
    here = {name: int(getattr(socket, name)) for name in named if hasattr(socket, "AF_NETLINK")}
    assert here in ({}, named)  # other systems number some of them otherwise


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_numbers_are_those_of_the_systems_own_header(name: str) -> None:
    if not HEADERS[name].exists():
        pytest.skip("the kernel's headers are not installed here")
    text = HEADERS[name].read_text(encoding="utf-8")
    known = {call: int(number) for call, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", text)}
    ours = ARCHITECTURES[name].numbers
    shared = known.keys() & ours.keys()
    assert len(shared) > 50
    assert {call: ours[call] for call in shared} == {call: known[call] for call in shared}


def test_an_unknown_architecture_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"'riscv64'.*--sandbox-backend docker"):
        filter_program("riscv64")


def test_common_calls_are_not_slowed_by_a_long_program(machine: Machine) -> None:
    assert len(machine.filter) <= 200
