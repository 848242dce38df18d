from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import anyio
import pytest

from python_exec_sandbox.api.progress import LONGEST_SILENCE_SECONDS, TICK_SECONDS, Progress, Reporter
from python_exec_sandbox.model.result import OutputStream, Phase

pytestmark = pytest.mark.anyio

TICK = 0.01


class Sent:
    """The notifications a client got."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.words: list[str] = []
        self.more = anyio.Event()

    async def __call__(self, value: float, words: str) -> None:
        self.values.append(value)
        self.words.append(words)
        self.more.set()
        self.more = anyio.Event()

    async def reach(self, count: int) -> None:
        with anyio.fail_after(5):
            while len(self.values) < count:
                await self.more.wait()


@asynccontextmanager
async def reported(*all_progress: Progress) -> AsyncIterator[Reporter]:
    """The time in which a reporter tells of these calls."""
    reporter = Reporter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reporter.run)
        with ExitStack() as calls:
            for progress in all_progress:
                calls.enter_context(reporter.telling_of(progress))
            yield reporter
        tasks.cancel_scope.cancel()


def test_the_pace_is_at_most_one_a_second_and_at_least_one_each_fifteen() -> None:
    assert (TICK_SECONDS, LONGEST_SILENCE_SECONDS) == (1.0, 15.0)


async def test_each_phase_is_named_once_and_values_rise() -> None:
    sent = Sent()
    activity: list[str | None] = ["building the sandbox image: step 3/9"]
    progress = Progress(sent, lambda: activity[0], tick=TICK, silence=60)
    async with reported(progress):
        await sent.reach(1)
        activity[0] = None
        await sent.reach(2)
        progress.phase(Phase.INSTALLING, "installing six")
        await sent.reach(3)
        progress.phase(Phase.RUNNING, "running (limit 30 s)")
        await progress.output(OutputStream.STDOUT, b"x" * 1000)
        await sent.reach(4)
    assert [words.rpartition(", ")[0] for words in sent.words] == [
        "building the sandbox image: step 3/9",
        "waiting for a sandbox",
        "installing six",
        "running (limit 30 s)",
    ]
    assert sent.values == sorted(set(sent.values))
    assert sent.values[0] > 0


async def test_silence_is_broken_although_nothing_changed() -> None:
    sent = Sent()
    async with reported(Progress(sent, lambda: None, tick=TICK, silence=5 * TICK)):
        await sent.reach(4)
    assert len({words.rpartition(", ")[0] for words in sent.words}) == 1
    assert sent.values == sorted(set(sent.values))


async def test_phases_that_change_faster_than_the_pace_are_not_all_told() -> None:
    sent = Sent()
    progress = Progress(sent, lambda: None, tick=TICK, silence=60)
    async with reported(progress):
        for number in range(100):
            progress.phase(Phase.RUNNING, f"phase {number}")
        await sent.reach(1)
    assert len(sent.words) == 1
    assert sent.words[0].startswith("phase 99,")


async def test_an_activity_matters_only_while_waiting() -> None:
    sent = Sent()
    progress = Progress(sent, lambda: "building an image", tick=TICK, silence=60)
    progress.phase(Phase.RUNNING, "running")
    async with reported(progress):
        await sent.reach(1)
    assert sent.words[0].startswith("running")


async def test_each_call_is_told_of_its_own_progress_until_it_ends() -> None:
    first, second = Sent(), Sent()
    early = Progress(first, lambda: None, tick=TICK, silence=2 * TICK)
    async with reported(Progress(second, lambda: None, tick=TICK, silence=2 * TICK)) as reporter:
        with reporter.telling_of(early):
            early.phase(Phase.RUNNING, "running")
            await first.reach(2)
            await second.reach(2)
        told = len(first.words)
        await second.reach(len(second.words) + 3)
    assert len(first.words) == told
    assert all(words.startswith("running") for words in first.words)
    assert all(words.startswith("waiting for a sandbox") for words in second.words)


async def test_a_call_that_comes_after_a_rest_is_told_too() -> None:
    first, second = Sent(), Sent()
    async with reported() as reporter:
        with reporter.telling_of(Progress(first, lambda: None, tick=TICK)):
            await first.reach(1)
        await anyio.wait_all_tasks_blocked()
        with reporter.telling_of(Progress(second, lambda: None, tick=TICK)):
            await second.reach(1)


async def test_a_client_that_cannot_be_told_keeps_no_other_from_being_told() -> None:
    async def fail(value: float, words: str) -> None:
        raise RuntimeError("no way there")

    sent = Sent()
    broken = Progress(fail, lambda: None, tick=TICK, silence=TICK)
    async with reported(broken, Progress(sent, lambda: None, tick=TICK, silence=TICK)):
        await sent.reach(3)
