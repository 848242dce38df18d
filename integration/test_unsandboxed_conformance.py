"""The driver without sandboxes shows what it can of the list that every driver must show.

Nothing of that list runs on the machine itself because it was added to the list: beside the plain behaviours
only those named here do, and each other one must be declared, with the reason.
"""

import sys
from collections.abc import AsyncIterator

import pytest

from integration.support.unsandboxed import on_path
from python_exec_sandbox.drivers.unsandboxed.driver import UnsandboxedDriver
from python_exec_sandbox.drivers.unsandboxed.options import UnsandboxedOptions
from tests.support.conformance import ATTACKS, BEHAVIOURS, PLAIN, Behaviour, observe

pytestmark = [pytest.mark.anyio, pytest.mark.no_engine, pytest.mark.quick]

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The one Python that is there for sure."""

SHOWN = {
    "double-forked children that ignore signals are gone when the script ends",
    "a grandchild that holds the pipe doesn't hold the answer",
    "/dev/stdout, temporary files and shared memory work",
}
"""Beside the plain ones; harmless where nothing is in between."""

_NO_WALL = "script and supervisor are the same user, and nothing is between the script and the machine"
_NO_CGROUP = "there is no cgroup: a process meets RLIMIT_DATA as a MemoryError, and nothing counts kills"
_NO_COUNT = (
    "RLIMIT_NPROC counts on top of the user's other processes and not at all for root; there is no counter"
)

DIFFERENCES: dict[str, str] = {
    "a memory kill is told from kill -9": _NO_CGROUP,
    "a memory kill of a child under exit 0 is told too": _NO_CGROUP,
    "too many processes are a process limit": _NO_COUNT,
    "a fork bomb ends at a limit": f"{_NO_COUNT}; it would be the machine's",
    "a full disk is said": "a file ends at RLIMIT_FSIZE with 'File too large'; the disk is the machine's",
    "the script was started by uv run with the interpreter asked for": "it names 3.13, which a machine need not have; "
    "test_unsandboxed.py shows it with one that it has",
    "Python 3.13 runs when it is asked for": "the machine has the Pythons it has",
    "Python 3.14 runs when it is asked for": "the machine has the Pythons it has",
    "Python 3.15 runs when it is asked for": "the machine has the Pythons it has",
    "the script has no privilege left": "it has those of the user who runs the server",
    "the system can't be written to": "it can be, as far as that user may",
    "nothing of the server's environment is in any process": "all of that user's processes can be read; "
    "test_unsandboxed.py shows that the script's own environment has nothing of it",
    "attack: every resource limit of the runner": _NO_WALL,
    "attack: every signal to the runner": _NO_WALL,
    "attack: SIGSTOP, SIGINT and SIGTERM to everybody": "everybody is every process of the person",
    "attack: SIGKILL to everybody": "everybody is every process of the person",
    "attack: ptrace of the runner": _NO_WALL,
    "attack: reading the runner's memory, descriptors and environment": _NO_WALL,
    "attack: writing the runner's memory": _NO_WALL,
    "attack: process_vm_readv and pidfd_getfd on the runner": _NO_WALL,
    "attack: forged frames on every descriptor": "it has none of the supervisor's descriptors, but they can be opened "
    "by /proc; test_unsandboxed.py shows the harmless half",
    "attack: closing every descriptor": "it ends with a fixed code in a sandbox; test_unsandboxed.py shows the same here",
    "attack: priority and memory-killer games": _NO_WALL,
    "attack: memory that no process owns, so that the kernel picks the runner": f"{_NO_CGROUP}; it would be the machine's",
    "attack: the end of every process but one of a tree that took the memory": f"{_NO_CGROUP}; it would be the machine's",
    "attack: asking the runner to trace": "the script's parent is uv, which is stopped meanwhile",
    "attack: so much mapped that the end of it takes the kernel seconds": f"{_NO_CGROUP}; it would be the machine's",
    "attack: a great many orphans": "the machine's process ids would be used up by it",
    "attack: the script's own file and folder pulled away": "it names a folder of the sandbox, /work",
}

PLAIN_NAMES = {behaviour.name for behaviour in PLAIN}


@pytest.fixture
async def driver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UnsandboxedDriver]:
    monkeypatch.setenv("PATH", on_path())
    async with UnsandboxedDriver(UnsandboxedOptions()) as made:
        yield made


def test_each_behaviour_is_either_shown_or_a_declared_difference() -> None:
    names = {behaviour.name for behaviour in BEHAVIOURS}
    shown = PLAIN_NAMES | SHOWN
    assert shown | DIFFERENCES.keys() == names
    assert not shown & DIFFERENCES.keys()
    assert all(DIFFERENCES.values())
    assert not shown & {behaviour.name for behaviour in ATTACKS}


@pytest.mark.parametrize(
    "behaviour",
    [behaviour for behaviour in BEHAVIOURS if behaviour.name in PLAIN_NAMES | SHOWN],
    ids=lambda behaviour: f"none: {behaviour.name}",
)
async def test_the_driver_without_sandboxes_shows(driver: UnsandboxedDriver, behaviour: Behaviour) -> None:
    outcome = await observe(driver, behaviour, instead=PYTHON)
    assert outcome.driver == "none"
    behaviour.expect(outcome)
