"""``python -m integration.support.half_started``: a server that is killed before its bwrap has done anything.

Prints the process id of that bwrap, which is stopped and has all its options, then kills itself.
"""

import os
import signal
import sys
from pathlib import Path

import anyio

from python_exec_sandbox.drivers.bubblewrap.argv import outer_words, runner_command
from python_exec_sandbox.drivers.bubblewrap.driver import BubblewrapDriver
from python_exec_sandbox.drivers.bubblewrap.options import BubblewrapOptions
from python_exec_sandbox.drivers.bubblewrap.process import BwrapProcess, Start
from python_exec_sandbox.drivers.bubblewrap.users import FIRST_UID
from python_exec_sandbox.drivers.bubblewrap.workshop import Workshop

SECONDS = 20


def start_of(workshop: Workshop) -> Start:
    """A sandbox as the driver makes it, but for its control group."""
    plan = workshop.plan(workshop.runner_python.version, ())
    user = FIRST_UID if workshop.is_root else None
    return Start(
        workshop.program, outer_words(plan), runner_command(plan), workshop.stage, user, workshop.mounts
    )


async def until(pid: int, file: str, words: str) -> None:
    """Wait until the kernel says ``words`` of ``pid``; it tells of neither by an event."""
    path = Path("/proc", str(pid), file)
    with anyio.fail_after(SECONDS):
        while words not in path.read_text():
            await anyio.sleep(0.001)


async def main() -> None:
    async with BubblewrapDriver(BubblewrapOptions()) as driver:
        process = BwrapProcess(start_of(await driver.prepare()))
        await until(process.pid, "comm", "bwrap\n")  # other tools may change user and mounts before
        os.kill(process.pid, signal.SIGSTOP)
        await until(process.pid, "status", "State:\tT")
        sys.stdout.write(f"{process.pid}\n")
        sys.stdout.flush()
        process.release()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    anyio.run(main)
