"""PID 1 of the inner sandbox: starts uv, reaps, and tells the runner how the script itself ended.

Its arguments: the descriptors from and to the runner, RLIMIT_NPROC, RLIMIT_AS (0: none), the command.
To the runner it writes ``uv STATUS`` and ``script STATUS`` (wait statuses) as lines; from there it learns
which process is the script, by a line with a pid. It belongs to the script's side of the wall: all that
someone could gain by taking it over is a lie about the script's own exit code.
"""

import os
import resource
import select
import signal
import sys

from .children import Children
from .spawning import prefer_as_victim, reset_signals

_PR_SET_DUMPABLE = 4


def main(argv: list[str]) -> None:
    orders, news, processes, address_bytes = (int(word) for word in argv[:4])
    for fd in (orders, news):
        os.set_inheritable(fd, False)
    wake_out, wake_in = os.pipe()
    for fd in (wake_out, wake_in):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a PID 1 gets only signals that it has a handler for
    signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
    uv = _start(argv[4:], processes, address_bytes)
    _be_unreadable()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)  # a reader of the script's output must see its end
    _serve(orders, news, wake_out, uv)


def _start(command: list[str], processes: int, address_bytes: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        prefer_as_victim()
        reset_signals()
        if processes:
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
        if address_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))
        os.execve(command[0], command, os.environ)
    except BaseException as error:  # noqa: BLE001 - a child must never return into the parent's code
        os.write(2, f"uv could not be started: {error}\n".encode())
    finally:
        os._exit(127)


def _be_unreadable() -> None:
    """Close /proc/1 to the script, which is of the same user; a failure only opens what holds no secret."""
    import ctypes  # noqa: PLC0415 - takes milliseconds, while uv is starting already

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _serve(orders: int, news: int, wake: int, uv: int) -> None:
    children = Children()
    script = 0
    told_uv = told_script = False
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        children.reap()
        if not told_uv and (status := children.status(uv)) is not None:
            os.write(news, b"uv %d\n" % status)
            told_uv = True
        if script and not told_script and (status := children.status(script)) is not None:
            os.write(news, b"script %d\n" % status)
            told_script = True
        for fd, _ in poll.poll():
            if fd == wake:
                os.read(wake, 4096)
            elif line := os.read(orders, 64):
                script = int(line)
                children.follow(script)
            else:
                sys.exit(0)  # the runner is gone, and this namespace with me
