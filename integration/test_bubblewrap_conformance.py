"""The bubblewrap driver shows every behaviour on this machine's kernel, attacks on the runner among them.

As whoever runs the tests; where that is root, once more as an ordinary user, in a process of its own.
"""

import os
from collections.abc import AsyncIterator

import pytest

from integration.support.native import ORDINARY, as_ordinary_user, missing_versions, why_no_bubblewrap
from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Limit, Means
from python_exec_sandbox.drivers.bubblewrap.driver import BubblewrapDriver
from python_exec_sandbox.drivers.bubblewrap.options import BubblewrapOptions, Network
from tests.support.conformance import BEHAVIOURS, Behaviour, observe

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.no_engine,
    pytest.mark.skipif(why_no_bubblewrap() is not None, reason=why_no_bubblewrap() or ""),
]

NEEDS_MEMORY_GROUP = {
    "a memory kill is told from kill -9",
    "a memory kill of a child under exit 0 is told too",
    "attack: memory that no process owns, so that the kernel picks the runner",
    "attack: the end of every process but one of a tree that took the memory",
}
"""Without a control group each process has a limit of its own, and meets it as a MemoryError."""

NEEDS_PROCESS_GROUP = {"too many processes are a process limit", "a fork bomb ends at a limit"}
"""Without a control group a refused fork is an error of the script's; nothing counts it."""


def differences(driver: BubblewrapDriver) -> dict[str, str]:
    """Behaviour -> why it can't be shown here: by what this machine lacks, never by what the driver lacks."""
    by_rlimit = {state.limit for state in driver.limits if state.means is not Means.GROUP}
    found = missing_versions(driver.pythons)
    if Limit.MEMORY in by_rlimit:
        found |= dict.fromkeys(NEEDS_MEMORY_GROUP, "no control group counts memory kills here")
    if Limit.PROCESSES in by_rlimit:
        found |= dict.fromkeys(NEEDS_PROCESS_GROUP, "no control group counts refused forks here")
    return found


@pytest.fixture
async def driver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BubblewrapDriver]:
    monkeypatch.setitem(os.environ, "CONFORMANCE_SECRET", "must not be seen")
    async with BubblewrapDriver(BubblewrapOptions(network=Network.NONE)) as made:
        await made.prepare("3.13")
        yield made


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: f"bubblewrap: {behaviour.name}")
async def test_the_bubblewrap_driver_shows(driver: BubblewrapDriver, behaviour: Behaviour) -> None:
    if behaviour.name in differences(driver):
        return  # declared, and decided by the machine's own facts
    outcome = await observe(driver, behaviour)
    assert outcome.driver == "bubblewrap"
    behaviour.expect(outcome)


@pytest.mark.timeout(600)
def test_an_ordinary_user_sees_the_same() -> None:
    if ORDINARY in os.environ:
        return  # that is who runs this one
    done = as_ordinary_user(["-m", "pytest", __file__, "-q", "-p", "no:cacheprovider"])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
