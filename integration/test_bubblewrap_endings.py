"""A sandbox that is ended, or whose server is, while bwrap is still making it leaves no process.

Between making its child and letting it go on bwrap has a moment in which its own death leaves that child
waiting for ever.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from integration.support.half_started import start_of
from integration.support.native import ORDINARY, as_ordinary_user, why_no_bubblewrap
from python_exec_sandbox.drivers.bubblewrap.cgroup.fallback import NoGroup
from python_exec_sandbox.drivers.bubblewrap.driver import BubblewrapDriver
from python_exec_sandbox.drivers.bubblewrap.options import BubblewrapOptions
from python_exec_sandbox.drivers.bubblewrap.process import BwrapProcess
from python_exec_sandbox.drivers.bubblewrap.sandbox import BwrapKeeper
from python_exec_sandbox.drivers.socket_channel import SocketChannel

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.no_engine,
    pytest.mark.skipif(why_no_bubblewrap() is not None, reason=why_no_bubblewrap() or ""),
]

ROOT = Path(__file__).parent.parent
GONE_SECONDS = 10.0
"""What stays, stays for ever; the bound of promise KILL is held elsewhere, where there is no other load."""


def relatives(family: set[int]) -> set[int]:
    """Living processes that belong to ``family``: by number, by parent or by session; ``family`` grows by them."""
    living = set()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] not in "ZX":
                found[int(folder.name)] = (int(fields[1]), int(fields[3]))
    grown = True
    while grown:
        members = {pid for pid, near in found.items() if pid in family or not family.isdisjoint(near)}
        grown = not members <= family
        family |= members
        living = members
    return living


async def ended(family: set[int]) -> set[int]:
    """Who of ``family`` is left, at the latest after the bound."""
    with anyio.move_on_after(GONE_SECONDS):
        while relatives(family):
            await anyio.sleep(0.01)  # nothing tells of the end of processes that are not our children
    return relatives(family)


async def test_nothing_is_left_of_a_server_that_died_before_bwrap_named_its_child() -> None:
    command = [sys.executable, "-m", "integration.support.half_started"]
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as server:
        assert server.stdout is not None
        family = {pid := int(await server.stdout.receive())}
        await server.wait()
    assert server.returncode == -signal.SIGKILL
    assert relatives(family) == {pid}
    os.kill(pid, signal.SIGCONT)
    assert not await ended(family)


@pytest.fixture
async def driver() -> AsyncIterator[BubblewrapDriver]:
    async with BubblewrapDriver(BubblewrapOptions()) as made:
        await made.prepare()
        yield made


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 4, 5, 7, 9, 12, 16, 25, 40])
async def test_nothing_is_left_of_a_sandbox_that_is_ended_while_it_is_made(
    driver: BubblewrapDriver, milliseconds: int
) -> None:
    """Without a control group, so that nothing but the driver's own knowledge of its processes ends them."""
    process = BwrapProcess(start_of(await driver.prepare()))
    family = {process.pid}
    channel = SocketChannel(process.sock)
    keeper = BwrapKeeper(process, channel, NoGroup("none"), anyio.CapacityLimiter(2), lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.watch)
        process.release()
        await anyio.sleep(milliseconds / 1000)  # the moment is what is tried out
        relatives(family)
        await keeper.remove()
    assert not relatives(family)


@pytest.mark.timeout(300)
def test_an_ordinary_user_leaves_nothing_either() -> None:
    if ORDINARY in os.environ:
        return  # that is who runs this one
    done = as_ordinary_user(["-m", "pytest", __file__, "-q", "-p", "no:cacheprovider"])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
