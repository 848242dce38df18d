"""What a sandbox may ask of the kernel: everything that Python programs do, less what only breaks out.

A list of refusals, with a ceiling: calls newer than the newest one looked at don't exist. Capabilities and
namespaces refuse most of these calls too; the filter keeps a script from reaching the kernel's code for
them at all, where most of the ways out of a sandbox were found.

It is loaded for the script, last: bubblewrap itself needs mounts and namespaces, an inner one too.
"""

import errno

from python_exec_sandbox.drivers.bubblewrap.seccomp.assembler import (
    ALLOW,
    KILL_PROCESS,
    Block,
    assemble,
    give,
    give_if_any,
    give_if_any_bit,
    give_if_at_least,
    give_unless_equal,
    if_equal,
    load_architecture,
    load_argument,
    load_number,
    refuse,
)
from python_exec_sandbox.drivers.bubblewrap.seccomp.init_shield import init_shield
from python_exec_sandbox.drivers.bubblewrap.seccomp.numbers import (
    ARCHITECTURES,
    NEWEST_KNOWN,
)
from python_exec_sandbox.errors import ConfigurationError

# Refused as if the kernel were older and lacked them, so that a C library or runtime takes its older way:
# clone3 hides its flags behind a pointer, where a filter can't see them; glibc then uses clone.
ABSENT = (
    "clone3",
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *(
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "move_mount",
        "open_tree",
        "open_tree_attr",
        "mount_setattr",
    ),
    *("memfd_secret", "listmount", "statmount", "lsm_set_self_attr"),
)

FORBIDDEN = (
    # Code and hooks in the kernel.
    *("bpf", "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load"),
    *("init_module", "finit_module", "delete_module"),
    # Keyrings belong to a user, not to a sandbox: what one script leaves, the next would find.
    *("add_key", "keyctl", "request_key"),
    # Other processes' memory and descriptors.
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    # Mounts and namespaces, and files reached without a path.
    *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns"),
    *("name_to_handle_at", "open_by_handle_at", "fanotify_init"),
    # The machine as a whole.
    *("iopl", "ioperm", "modify_ldt", "swapon", "swapoff", "reboot", "acct", "syslog", "vhangup"),
    *("quotactl", "quotactl_fd", "sethostname", "setdomainname", "settimeofday", "clock_settime"),
    # Where memory lies: of no use to a script, and a frequent source of kernel faults.
    *("move_pages", "migrate_pages", "mbind", "get_mempolicy", "set_mempolicy", "set_mempolicy_home_node"),
    # Long out of use.
    *("lookup_dcookie", "nfsservctl", "uselib", "ustat", "sysfs", "_sysctl"),
)

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET of linux/sched.h. CLONE_NEWTIME lies in the
# byte that holds the exit signal here, and only clone3 and unshare know it.
NAMESPACE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

# Requests that put characters into a terminal's input (asm-generic/ioctls.h, linux/tiocl.h).
TIOCSTI, TIOCLINUX = 0x5412, 0x541C

# Address families of linux/socket.h; the socket module has them on Linux only.
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0

PER_LINUX, ASK_PERSONALITY = 0x0, 0xFFFFFFFF

_FORBID = refuse(errno.EPERM)
_ABSENT = refuse(errno.ENOSYS)
_NO_FAMILY = refuse(errno.EAFNOSUPPORT)  # as a kernel built without that family says; programs expect it


def filter_program(machine: str) -> bytes:
    """The filter for ``machine`` (``platform.machine()``), for the descriptor of ``bwrap --seccomp``.

    Raises:
        ConfigurationError: there is none for this architecture.
    """
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        raise ConfigurationError(
            f"The bubblewrap backend knows the system calls of {' and '.join(ARCHITECTURES)}, "
            f"and this machine is {machine!r}: use --sandbox-backend docker."
        )
    numbers = architecture.numbers
    return assemble(
        # Another architecture's calls have other numbers: nothing below would mean what it says.
        load_architecture() + give_unless_equal(architecture.audit_name, KILL_PROCESS),
        load_number(),
        # x32 calls carry a high bit, so the ceiling stops them too.
        give_if_at_least(NEWEST_KNOWN + 1, _ABSENT),
        give_if_any(_numbers_of(ABSENT, numbers), _ABSENT),
        give_if_any(_numbers_of(FORBIDDEN, numbers), _FORBID),
        if_equal(numbers["clone"], _clone()),
        if_equal(numbers["ioctl"], _ioctl()),
        if_equal(numbers["socket"], _socket()),
        if_equal(numbers["socketpair"], _socketpair()),
        if_equal(numbers["personality"], _personality()),
        *init_shield(machine, ALLOW, _FORBID),
        give(ALLOW),
    )


def _numbers_of(names: tuple[str, ...], numbers: dict[str, int]) -> tuple[int, ...]:
    return tuple(numbers[name] for name in names if name in numbers)


def _clone() -> Block:
    return load_argument(0) + give_if_any_bit(NAMESPACE_FLAGS, _FORBID) + give(ALLOW)


def _ioctl() -> Block:
    return load_argument(1) + give_if_any((TIOCSTI, TIOCLINUX), _FORBID) + give(ALLOW)


def _socket() -> Block:
    # Of netlink only what getaddrinfo and if_nameindex use.
    return (
        *load_argument(0),
        *give_if_any((AF_UNIX, AF_INET, AF_INET6), ALLOW),
        *give_unless_equal(AF_NETLINK, _NO_FAMILY),
        *load_argument(2),
        *give_if_any((NETLINK_ROUTE,), ALLOW),
        *give(_NO_FAMILY),
    )


def _socketpair() -> Block:
    return load_argument(0) + give_if_any((AF_UNIX,), ALLOW) + give(_NO_FAMILY)


def _personality() -> Block:
    # Others turn off address randomisation or make old programs' mappings executable.
    return load_argument(0) + give_if_any((PER_LINUX, ASK_PERSONALITY), ALLOW) + give(_FORBID)
