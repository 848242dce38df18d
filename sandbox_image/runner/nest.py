"""A sandbox inside the sandbox, for the script alone: a PID namespace in which there is no runner.

Where runner and script are of one user (bubblewrap without root has no second one), the wall between them is made
of namespaces: the script's processes can't name the runner, so they can't signal, trace, limit or read it.

::

    runner (PID 1 of the outer namespace)
      bwrap                       waits
        first (PID 1 of the inner namespace): starts uv, is everybody's reaper, tells how the script ended
          uv run -> script

``bwrap`` folds "killed by signal 9" and "exit code 137" into one, as uv does; ``first`` doesn't. The runner
sees all of them under pids of its own namespace.
"""

import os
import signal

from . import children

_NEWS_BYTES = 4096


class NestPlan:
    """How an inner sandbox is made: its bwrap, and files with what bwrap reads from descriptors.

    ``arguments`` is a file of NUL-separated options, ``seccomp`` one with a BPF program, or empty; ``first``
    the command that becomes PID 1. ``processes`` (RLIMIT_NPROC, counted per user namespace, so that it must
    be set inside) and ``address_bytes`` (RLIMIT_AS) limit the script's processes; 0 for not at all.
    """

    def __init__(
        self,
        bwrap: str,
        arguments: str,
        seccomp: str,
        first: tuple[str, ...],
        processes: int,
        address_bytes: int,
    ) -> None:
        self.bwrap = bwrap
        self.arguments = arguments
        self.seccomp = seccomp
        self.first = first
        self.processes = processes
        self.address_bytes = address_bytes


class Nest:
    """The inner sandbox of one interpreter, seen from the runner."""

    def __init__(self, plan: NestPlan) -> None:
        self._plan = plan
        orders, self._orders = os.pipe()
        self._news, news = os.pipe()
        os.set_blocking(self._news, False)
        self._told = b""
        self._inherited = [orders, news]
        self.ended = False
        """``first`` is gone, and with it everything in its namespace."""
        self.uv_status: int | None = None
        self.script_status: int | None = None

    @property
    def fd(self) -> int:
        """Readable when there is news; -1 once there won't be any more."""
        return -1 if self.ended else self._news

    def command(self, command: list[str]) -> list[str]:
        """``command`` inside; to be executed by a child of this process, which inherits what it needs."""
        plan = self._plan
        with open(plan.arguments, "rb") as file:
            options = file.read()
        if plan.seccomp:
            program = self._inherit(os.open(plan.seccomp, os.O_RDONLY))
            options += f"--seccomp\0{program}\0".encode()
        memory = self._inherit(os.memfd_create("options", 0))
        os.write(memory, options)
        os.lseek(memory, 0, os.SEEK_SET)
        orders, news = self._inherited[:2]
        for fd in (orders, news):
            os.set_inheritable(fd, True)
        numbers = [str(number) for number in (orders, news, plan.processes, plan.address_bytes)]
        return [plan.bwrap, "--args", str(memory), "--", *plan.first, *numbers, *command]

    def _inherit(self, fd: int) -> int:
        os.set_inheritable(fd, True)
        self._inherited.append(fd)
        return fd

    def started(self) -> None:
        """To be called in the parent once the child exists."""
        for fd in self._inherited:
            os.close(fd)
        self._inherited.clear()

    def adopt(self, tree: int, script: bytes) -> tuple[int, int]:
        """End uv and have ``first`` tell how the interpreter ends that holds ``script``.

        ``tree`` is the pid of bwrap. Returns the interpreter's pid, and the microseconds of processor time
        that all of them have taken.
        """
        first = _only_child(tree)
        uv = _only_child(first)
        own = [pid for pid in children.children_of(uv) if script in children.command_line(pid)]
        pid = own[0] if own else uv
        used = sum(int(children.cpu_seconds(each) * 1e6) for each in {tree, first, uv, pid})
        if pid != uv:
            os.kill(uv, signal.SIGKILL)
        os.write(self._orders, f"{_inner_pid(pid)}\n".encode())
        return pid, used

    def update(self) -> None:
        """Take in what ``first`` has told; never waits."""
        while not self.ended:
            try:
                data = os.read(self._news, _NEWS_BYTES)
            except BlockingIOError:
                return
            self.ended = not data
            *lines, self._told = (self._told + data).split(b"\n")
            for line in lines:
                self._note(line)

    def _note(self, line: bytes) -> None:
        who, _, status = line.partition(b" ")
        if who == b"uv":
            self.uv_status = int(status)
        else:
            self.script_status = int(status)

    def close(self) -> None:
        os.close(self._news)
        os.close(self._orders)
        self.ended = True


def _only_child(parent: int) -> int:
    found = children.children_of(parent)
    if len(found) != 1:
        raise RuntimeError(f"the inner sandbox has {len(found)} processes where one was expected")
    return found[0]


def _inner_pid(pid: int) -> int:
    """The pid that ``pid`` has in the innermost namespace it lives in."""
    with open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
    raise RuntimeError("the kernel tells no pids of inner namespaces")
