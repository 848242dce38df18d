from dataclasses import dataclass

import anyio
import pytest

from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.environments.store import EnvironmentStore
from python_exec_sandbox.environments.warming import WarmUp
from python_exec_sandbox.errors import CreateFailed
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, Task, Warmed
from tests.support.fake_builder import Build, FakeBuilder, built

pytestmark = pytest.mark.anyio

BOUND = 10.0


@dataclass
class Activity:
    """What the pool would say: how much is being done, and how much was done."""

    now: int = 0
    done: int = 0
    looks: int = 0

    def __call__(self) -> tuple[int, int]:
        self.looks += 1
        return self.now, self.done


def warm_up(
    store: EnvironmentStore,
    activity: Activity,
    *,
    start: float = 0.0,
    quiet: float = 0.0,
    retry: float = 60.0,
) -> WarmUp:
    return WarmUp(
        store,
        "3.13",
        activity,
        start_seconds=start,
        quiet_seconds=quiet,
        look_seconds=0.001,
        retry_seconds=retry,
    )


async def test_one_package_after_the_other_until_none_is_left() -> None:
    builder = FakeBuilder(*(Build(Warmed("x", left)) for left in (2, 1, 0)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            await warm_up(store, Activity()).run()
    assert [(request.task, request.python) for request in builder.requests] == [(Task.WARM, "3.13")] * 3
    assert builder.most_running == 1


async def test_a_store_that_is_warm_costs_one_question() -> None:
    builder = FakeBuilder(Build(Warmed("", 0)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            await warm_up(store, Activity()).run()
    assert len(builder.requests) == 1


@pytest.mark.parametrize(
    "outcome",
    [BuildFailed(BuildFault.INSTALLER, "error sending request"), CreateFailed("the engine is full")],
)
async def test_after_a_failure_it_is_tried_again_but_not_soon(outcome: BuildFailed | CreateFailed) -> None:
    builder = FakeBuilder(Build(outcome), Build(Warmed("x", 0)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store:
            began = anyio.current_time()
            await warm_up(store, Activity(), retry=0.1).run()
    assert anyio.current_time() - began >= 0.1
    assert len(builder.requests) == 2


async def test_a_server_that_ends_soon_installs_nothing() -> None:
    builder = FakeBuilder()
    with anyio.move_on_after(0.2):
        async with EnvironmentStore(builder, 3600.0) as store:
            await warm_up(store, Activity(), start=1.0).run()
    assert builder.requests == []


async def looked(activity: Activity, times: int) -> None:
    """Return after so many looks more."""
    until = activity.looks + times
    while activity.looks < until:
        await anyio.lowlevel.checkpoint()


async def test_it_waits_while_anything_is_done_and_begins_anew_after_a_call() -> None:
    builder = FakeBuilder(Build(Warmed("x", 0)))
    activity = Activity(now=1)
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store, anyio.create_task_group() as tasks:
            tasks.start_soon(warm_up(store, activity, quiet=0.05).run)
            began = anyio.current_time()
            while anyio.current_time() - began < 0.2:
                await looked(activity, 1)
            assert builder.requests == [], "a script runs"
            activity.now, activity.done = 0, 7
            changed = anyio.current_time()
            await looked(activity, 2)
    assert len(builder.requests) == 1
    assert anyio.current_time() - changed >= 0.05


async def test_it_waits_while_somebody_waits_for_an_environment() -> None:
    build = Build(built(1), gate=anyio.Event())
    builder = FakeBuilder(build, Build(Warmed("x", 0)))
    activity = Activity()
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store, anyio.create_task_group() as tasks:
            tasks.start_soon(store.obtain, "3.13", ("six",), 60.0, lambda _: None)
            await build.began.wait()
            tasks.start_soon(warm_up(store, activity, quiet=0.01).run)
            await looked(activity, 30)
            assert len(builder.requests) == 1
            assert build.gate is not None
            build.gate.set()
    assert len(builder.requests) == 2


async def test_what_somebody_asks_for_goes_first_and_it_is_tried_again_later() -> None:
    endless = Build(Warmed("x", 1), gate=anyio.Event())
    builder = FakeBuilder(endless, Build(built(1)), Build(Warmed("x", 0)))
    with anyio.fail_after(BOUND):
        async with EnvironmentStore(builder, 3600.0) as store, anyio.create_task_group() as tasks:
            tasks.start_soon(warm_up(store, Activity()).run)
            await endless.began.wait()
            assert isinstance(await store.obtain("3.13", ("six",), 60.0, lambda _: None), Environment)
            assert endless.cancelled
    assert [request.task for request in builder.requests] == [Task.WARM, Task.BUILD, Task.WARM]
