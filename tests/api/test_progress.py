import anyio
import pytest

from python_exec_sandbox.api.progress import LONGEST_SILENCE_SECONDS, TICK_SECONDS, Progress
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


def test_the_pace_is_at_most_one_a_second_and_at_least_one_each_fifteen() -> None:
    assert (TICK_SECONDS, LONGEST_SILENCE_SECONDS) == (1.0, 15.0)


async def test_each_phase_is_named_once_and_values_rise() -> None:
    sent = Sent()
    activity: list[str | None] = ["building the sandbox image: step 3/9"]
    progress = Progress(sent, lambda: activity[0], tick=TICK, silence=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(progress.report)
        await sent.reach(1)
        activity[0] = None
        await sent.reach(2)
        progress.phase(Phase.INSTALLING, "installing six")
        await sent.reach(3)
        progress.phase(Phase.RUNNING, "running (limit 30 s)")
        await progress.output(OutputStream.STDOUT, b"x" * 1000)
        await sent.reach(4)
        tasks.cancel_scope.cancel()
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
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Progress(sent, lambda: None, tick=TICK, silence=5 * TICK).report)
        await sent.reach(4)
        tasks.cancel_scope.cancel()
    assert len({words.rpartition(", ")[0] for words in sent.words}) == 1
    assert sent.values == sorted(set(sent.values))


async def test_phases_that_change_faster_than_the_pace_are_not_all_told() -> None:
    sent = Sent()
    progress = Progress(sent, lambda: None, tick=TICK, silence=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(progress.report)
        for number in range(100):
            progress.phase(Phase.RUNNING, f"phase {number}")
        await sent.reach(1)
        tasks.cancel_scope.cancel()
    assert len(sent.words) == 1
    assert sent.words[0].startswith("phase 99,")


async def test_an_activity_matters_only_while_waiting() -> None:
    sent = Sent()
    progress = Progress(sent, lambda: "building an image", tick=TICK, silence=60)
    progress.phase(Phase.RUNNING, "running")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(progress.report)
        await sent.reach(1)
        tasks.cancel_scope.cancel()
    assert sent.words[0].startswith("running")
