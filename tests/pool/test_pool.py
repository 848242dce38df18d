"""The pool's shell over a fake driver: calls, cancellation, faults, closing."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from python_exec_sandbox.drivers.base import Driver, Sandbox
from python_exec_sandbox.errors import (
    CreateFailed,
    DriverError,
    EngineUnreachable,
    PoolBusy,
    PoolClosed,
    PoolTimeout,
    PoolUnavailable,
    PythonUnavailable,
)
from python_exec_sandbox.pool.actions import RetireReason
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.observer import SilentObserver
from python_exec_sandbox.pool.pool import Pool
from python_exec_sandbox.pool.stats import PoolPhase
from tests.support.fake_sandbox import FakeDriver, FakeSandbox, Fault

pytestmark = pytest.mark.anyio

LONG = 5.0
"""Bound of a wait that ends at once when all is well."""


def config(**changes: Any) -> PoolConfig:
    """Background work at once and short delays, so that nothing needs the passing of time."""
    values: dict[str, Any] = {
        "quiet_time": 0.0,
        "settle_time": 0.0,
        "first_delay": 0.001,
        "young_time": 0.0,
        "worth_waiting": 0.0,
    }
    return PoolConfig(**values | changes)


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks go on until the condition holds."""
    with anyio.fail_after(LONG):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def full(pool: Pool, idle: int = 2) -> None:
    await until(
        lambda: pool.stats().idle == idle and not pool.stats().creating and not pool.stats().destroying
    )


def test_the_fakes_fulfil_the_contract() -> None:
    driver: Driver = FakeDriver()
    sandbox: Callable[[str, str, Fault], Sandbox] = FakeSandbox
    assert driver.name == "fake"
    assert sandbox is not None


async def test_opening_waits_for_nothing_and_fills_the_pool() -> None:
    gates = [anyio.Event(), anyio.Event()]
    driver = FakeDriver(*(Fault(create_gate=gate) for gate in gates))
    async with Pool(driver, config()) as pool:
        assert not driver.made
        await until(lambda: driver.creating == 2)
        for gate in gates:
            gate.set()
        await full(pool)
        stats = pool.stats()
    assert (stats.created, stats.phase, stats.last_error) == (2, PoolPhase.RUNNING, None)
    assert not driver.standing


async def test_an_idle_sandbox_is_handed_out_without_giving_way_to_other_tasks_while_creations_hang() -> None:
    never = anyio.Event()
    driver = FakeDriver(None, None, Fault(create_gate=never), Fault(create_gate=never))
    async with Pool(driver, config()) as pool:
        await full(pool)
        first = await pool.acquire("3.13", timeout=LONG)
        await until(lambda: driver.creating == 1)
        others_ran = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def other() -> None:
                others_ran.set()

            tasks.start_soon(other)
            second = await pool.acquire("3.13", timeout=LONG)
            assert not others_ran.is_set()
        assert first.sandbox is not second.sandbox
        assert second.waited_seconds < 0.01
        assert pool.stats().granted_at_once == 2


async def test_a_sandbox_is_used_once_and_destroyed_after_it() -> None:
    driver = FakeDriver()
    async with Pool(driver, config()) as pool:
        used = []
        for _ in range(6):
            with await pool.acquire("3.13", timeout=LONG) as lease:
                used.append(lease.sandbox.id)
        await full(pool)
        assert len(set(used)) == 6
        assert [box.id for box in driver.made if box.destroyed] == used
        assert (pool.stats().granted, pool.stats().destroyed) == (6, 6)


async def test_finishing_twice_or_after_the_end_of_the_pool_does_nothing() -> None:
    driver = FakeDriver()
    async with Pool(driver, config()) as pool:
        early = await pool.acquire("3.13", timeout=LONG)
        late = await pool.acquire("3.13", timeout=LONG)
        early.finish()
        early.finish()
        await full(pool)
        assert pool.stats().destroyed == 1
    late.finish()
    assert all(box.destroy_calls == 1 for box in driver.made)
    assert pool.stats().phase is PoolPhase.CLOSED


async def test_a_call_for_another_version_gets_a_sandbox_made_for_it() -> None:
    driver = FakeDriver()
    async with Pool(driver, config()) as pool:
        with await pool.acquire("3.15", timeout=LONG) as lease:
            assert lease.sandbox.python == "3.15"
        await full(pool, 3)
        idle = sorted(box.python for box in driver.standing)
    assert idle == ["3.13", "3.13", "3.15"]


async def test_waiting_calls_are_served_in_the_order_in_which_they_came() -> None:
    driver = FakeDriver()
    order: list[int] = []
    async with Pool(driver, config(idle_target=0, max_total=1)) as pool:

        async def call(number: int) -> None:
            with await pool.acquire("3.13", timeout=LONG):
                order.append(number)

        async with anyio.create_task_group() as tasks:
            with await pool.acquire("3.13", timeout=LONG):
                for number in range(5):
                    tasks.start_soon(call, number)
                    await anyio.wait_all_tasks_blocked()
                assert pool.stats().waiting == 5
    assert order == [0, 1, 2, 3, 4]
    assert driver.most_places == 1


async def test_a_burst_never_exceeds_the_bounds() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(max_total=4, max_creating=2)) as pool:

        async def call() -> None:
            with await pool.acquire("3.13", timeout=LONG):
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for _ in range(30):
                tasks.start_soon(call)
        assert pool.stats().granted == 30
    assert driver.most_creating <= 2
    assert driver.most_places <= 4
    assert not driver.standing


async def test_a_full_queue_refuses_at_once_and_says_how_long_it_is() -> None:
    driver = FakeDriver(Fault(create_gate=anyio.Event()))
    async with Pool(driver, config(idle_target=0, max_waiting=1)) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(pool.acquire, "3.13", LONG)
        await until(lambda: pool.stats().waiting == 1)
        with pytest.raises(PoolBusy, match=r"1 call waits .* most allowed is 1"):
            await pool.acquire("3.13", timeout=LONG)
        tasks.cancel_scope.cancel()


async def test_a_call_that_waited_long_enough_says_what_the_pool_is_busy_with() -> None:
    driver = FakeDriver(Fault(create_gate=anyio.Event()))
    driver.activity = "building the sandbox image: step 3/9"
    async with Pool(driver, config(idle_target=0)) as pool:
        with pytest.raises(PoolTimeout, match=r"within 0.01 s: 0 in use, 1 being made.*step 3/9"):
            await pool.acquire("3.13", timeout=0.01)
        assert pool.stats().waiting == 0


@pytest.mark.parametrize("dead", [1, 2])
async def test_dead_sandboxes_are_never_handed_out(dead: int) -> None:
    driver = FakeDriver()
    async with Pool(driver, config()) as pool:
        await full(pool)
        for box in driver.made[:dead]:
            box.die()
        with await pool.acquire("3.13", timeout=LONG) as lease:
            assert lease.sandbox.alive
        assert pool.stats().found_dead == dead


async def test_the_death_of_an_idle_sandbox_is_noticed_and_mended_without_a_call() -> None:
    driver = FakeDriver()
    async with Pool(driver, config()) as pool:
        await full(pool)
        driver.made[0].die()
        await until(lambda: pool.stats().created == 3)
        await full(pool)
        assert pool.stats().found_dead == 1
        assert driver.made[0].destroyed


async def test_an_idle_sandbox_that_falls_silent_is_replaced() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(check_interval=0.005)) as pool:
        await full(pool)
        driver.made[0].silent = True
        await until(lambda: driver.made[0].destroyed)
        await full(pool)
        assert (pool.stats().found_dead, pool.stats().created) == (1, 3)


async def test_a_sandbox_that_fell_silent_since_its_last_sign_of_life_is_not_handed_out() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(trust_time=0.0)) as pool:
        await full(pool)
        driver.made[0].silent = driver.made[1].silent = True
        with await pool.acquire("3.13", timeout=LONG) as lease:
            assert lease.sandbox is driver.made[2]
        assert (pool.stats().found_dead, pool.stats().granted) == (2, 1)


async def test_a_watched_sandbox_is_handed_out_without_being_asked() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(idle_target=1, trust_time=0.0)) as pool:
        await full(pool, 1)
        driver.made[0].watched = True
        driver.made[0].check_gate = anyio.Event()  # never answered
        with await pool.acquire("3.13", timeout=LONG) as lease:
            assert lease.sandbox is driver.made[0]


async def test_a_watched_sandbox_is_asked_when_its_regular_checks_stopped_telling() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(idle_target=1, trust_time=0.0)) as pool:
        await full(pool, 1)
        driver.made[0].watched = driver.made[0].silent = True
        pool._vitals._signs[driver.made[0].id] -= config().check_interval + 60
        with await pool.acquire("3.13", timeout=LONG) as lease:
            assert lease.sandbox is driver.made[1]


async def test_a_call_cancelled_while_its_sandbox_is_asked_leaves_it_to_the_next_call() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(idle_target=1, trust_time=0.0, settle_time=60.0)) as pool:
        await full(pool, 1)
        driver.made[0].check_gate = anyio.Event()
        with anyio.move_on_after(LONG) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pool.acquire, "3.13", LONG)
                await until(lambda: pool.stats().leased == 1)
                scope.cancel()
        assert pool.stats().idle == 1
        driver.made[0].check_gate.set()
        with await pool.acquire("3.13", timeout=LONG) as lease:
            assert lease.sandbox is driver.made[0]


async def test_closing_while_a_sandbox_is_asked_refuses_the_call() -> None:
    driver = FakeDriver()
    refused = anyio.Event()
    async with (
        anyio.create_task_group() as tasks,
        Pool(driver, config(idle_target=1, trust_time=0.0)) as pool,
    ):
        await full(pool, 1)
        driver.made[0].check_gate = gate = anyio.Event()

        async def call() -> None:
            with pytest.raises(PoolClosed):
                await pool.acquire("3.13", timeout=LONG)
            refused.set()

        tasks.start_soon(call)
        await until(lambda: pool.stats().leased == 1)

        async def open_gate() -> None:
            await driver.made[0].wait_ended()
            gate.set()

        tasks.start_soon(open_gate)
    assert refused.is_set()
    assert not driver.standing


async def test_a_sandbox_in_use_is_not_asked_for_signs_of_life() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(idle_target=0, check_interval=0.001)) as pool:
        with await pool.acquire("3.13", timeout=LONG):
            driver.made[0].silent = True
            with anyio.move_on_after(0.02):  # many check intervals long
                await driver.made[0].wait_ended()
        assert pool.stats().found_dead == 0


async def test_a_sandbox_that_can_not_be_watched_or_asked_is_replaced() -> None:
    driver = FakeDriver(Fault(watch_error=RuntimeError("a bug")))
    async with Pool(driver, config(check_interval=0.005)) as pool:
        await until(lambda: driver.made and driver.made[0].destroyed)
        await full(pool)
        driver.made[1].check_error = RuntimeError("a bug")
        await until(lambda: driver.made[1].destroyed)
        await full(pool)
        assert pool.stats().found_dead == 2


async def test_a_sandbox_that_comes_up_dead_is_not_handed_out_and_the_next_is() -> None:
    driver = FakeDriver(Fault(born_dead=True))
    async with Pool(driver, config(idle_target=0, young_time=1.0)) as pool:
        with await pool.acquire("3.13", timeout=LONG) as lease:
            assert lease.sandbox is driver.made[1]


async def test_an_image_whose_sandboxes_die_at_once_opens_the_circuit() -> None:
    driver = FakeDriver(*(Fault(born_dead=True) for _ in range(3)))
    async with Pool(driver, config(idle_target=0, young_time=60.0)) as pool:
        with pytest.raises(PoolUnavailable, match="ended by itself"):
            await pool.acquire("3.13", timeout=LONG)
        assert len(driver.made) == 3


async def test_a_missing_engine_is_told_at_once_and_used_once_it_is_there() -> None:
    driver = FakeDriver(Fault(create_error=EngineUnreachable("no engine answers; start Docker")))
    async with Pool(driver, config(idle_target=0, first_delay=0.05)) as pool:
        with pytest.raises(PoolUnavailable, match="no engine answers; start Docker") as refused:
            await pool.acquire("3.13", timeout=LONG)
        assert isinstance(refused.value.__cause__, EngineUnreachable)
        with pytest.raises(PoolUnavailable, match="no engine answers; start Docker") as refused:
            await pool.acquire("3.13", timeout=LONG)
        assert isinstance(refused.value.__cause__, EngineUnreachable)
        assert len(driver.create_calls) == 1
        await until(lambda: pool.stats().retry_seconds == 0.0)
        with await pool.acquire("3.13", timeout=LONG) as lease:
            assert lease.sandbox.alive
        assert pool.stats().phase is PoolPhase.RUNNING


async def test_a_version_that_sandboxes_lack_is_an_answer_to_its_calls_and_no_hindrance_to_others() -> None:
    gate = anyio.Event()
    fault = Fault(create_gate=gate, create_error=PythonUnavailable("the image has 3.13 and 3.14"))
    driver = FakeDriver(fault)
    async with Pool(driver, config(idle_target=0)) as pool:
        refusals = []

        async def call() -> None:
            with pytest.raises(PoolUnavailable) as refused:
                await pool.acquire("3.12", timeout=LONG)
            refusals.append(str(refused.value))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: driver.creating == 1)
            with await pool.acquire("3.13", timeout=LONG) as lease:
                assert lease.sandbox.python == "3.13"
            gate.set()
        await call()
        assert refusals == ["no sandbox with Python 3.12 can be made: the image has 3.13 and 3.14"] * 2
        assert driver.create_calls == ["3.12", "3.13"]
        assert pool.stats().phase is PoolPhase.RUNNING
        with await pool.acquire("3.14", timeout=LONG) as lease:
            assert lease.sandbox.python == "3.14"


async def test_a_call_waits_through_failures_that_may_pass() -> None:
    driver = FakeDriver(
        Fault(create_error=CreateFailed("no space")), Fault(create_error=CreateFailed("no space"))
    )
    async with Pool(driver, config(idle_target=0)) as pool:
        with await pool.acquire("3.13", timeout=LONG):
            assert (pool.stats().create_failures, pool.stats().last_error) == (2, "no space")


@pytest.mark.parametrize("fault", [RuntimeError("a bug"), OSError("broken"), ValueError()])
async def test_a_driver_with_a_bug_does_not_end_the_pool(fault: Exception) -> None:
    driver = FakeDriver(Fault(create_error=fault), Fault(destroy_failures=1, destroy_error=fault))
    async with Pool(driver, config(idle_target=1)) as pool:
        with await pool.acquire("3.13", timeout=LONG):
            pass
        await until(lambda: pool.stats().destroyed == 1)
        assert (pool.stats().create_failures, pool.stats().destroy_failures) == (1, 1)


async def test_a_creation_that_never_ends_is_given_up() -> None:
    driver = FakeDriver(Fault(create_gate=anyio.Event()))
    async with Pool(driver, config(idle_target=0, create_timeout=0.01)) as pool:
        with await pool.acquire("3.13", timeout=LONG):
            assert pool.stats().create_failures == 1
        assert "0.01 s" in (pool.stats().last_error or "")


async def test_a_destruction_that_fails_is_repeated_and_keeps_its_place_until_it_is_confirmed() -> None:
    driver = FakeDriver(Fault(destroy_failures=2))
    async with Pool(driver, config(idle_target=0, max_total=1, max_destroy_delay=0.01)) as pool:
        with await pool.acquire("3.13", timeout=LONG) as first:
            pass
        with await pool.acquire("3.13", timeout=LONG) as second:
            assert first.sandbox is driver.made[0]
            assert second.sandbox is driver.made[1]
        assert driver.made[0].destroy_calls == 3
    assert driver.most_places == 1


async def test_a_destruction_that_never_ends_is_given_up_and_repeated() -> None:
    driver = FakeDriver(Fault(destroy_gate=anyio.Event()))
    async with Pool(driver, config(idle_target=0, destroy_timeout=0.01, close_timeout=0.05)) as pool:
        with await pool.acquire("3.13", timeout=LONG):
            pass
        await until(lambda: pool.stats().destroy_failures == 1)
        assert pool.stats().destroying == 1


async def test_destroying_and_filling_wait_until_no_script_runs() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(settle_time=60.0, max_total=4)) as pool:
        await full(pool)
        running = await pool.acquire("3.13", timeout=LONG)
        (await pool.acquire("3.13", timeout=LONG)).finish()
        await anyio.wait_all_tasks_blocked()
        assert (len(driver.made), driver.made[1].destroy_calls) == (2, 0)
        running.finish()
        await full(pool)
        assert (len(driver.made), pool.stats().destroyed) == (4, 2)


async def test_running_scripts_put_background_work_off_for_the_settling_time_at_most() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(settle_time=0.02)) as pool:
        await full(pool)
        with await pool.acquire("3.13", timeout=LONG):
            await until(lambda: len(driver.made) == 3)


async def test_without_calls_the_pool_drains_to_zero_and_the_next_call_fills_it_again() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(idle_timeout=0.03)) as pool:
        await until(lambda: pool.stats().phase is PoolPhase.ASLEEP and not driver.standing)
        with await pool.acquire("3.13", timeout=LONG):
            await until(lambda: pool.stats().idle == 2)


async def test_old_sandboxes_are_replaced() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(idle_target=1, max_age=0.02)) as pool:
        await until(lambda: driver.made and driver.made[0].destroyed)
        assert pool.stats().retired >= 1


async def test_a_new_image_retires_what_was_made_from_the_old_one_also_what_is_being_made() -> None:
    gate = anyio.Event()
    driver = FakeDriver(None, Fault(create_gate=gate))
    async with Pool(driver, config()) as pool:
        await until(lambda: pool.stats().idle == 1 and driver.creating == 1)
        pool.new_generation()
        gate.set()
        await full(pool)
        assert [box.destroyed for box in driver.made[:2]] == [True, True]
        assert pool.stats().retired == 2


async def test_draining_lets_calls_finish_and_takes_no_more() -> None:
    driver = FakeDriver()
    async with Pool(driver, config(idle_target=0, max_total=1)) as pool:
        lease = await pool.acquire("3.13", timeout=LONG)
        async with anyio.create_task_group() as tasks:

            async def waits() -> None:
                (await pool.acquire("3.13", timeout=LONG)).finish()

            tasks.start_soon(waits)
            await until(lambda: pool.stats().waiting == 1)
            tasks.start_soon(pool.drain)
            await until(lambda: pool.stats().phase is PoolPhase.DRAINING)
            with pytest.raises(PoolClosed):
                await pool.acquire("3.13", timeout=LONG)
            lease.finish()
        assert pool.stats().granted == 2


async def test_closing_with_eight_warm_sandboxes_destroys_them_side_by_side() -> None:
    gate = anyio.Event()
    driver = FakeDriver(*(Fault(destroy_gate=gate) for _ in range(8)))
    async with anyio.create_task_group() as tasks:

        async def open_gate() -> None:
            await until(lambda: sum(box.destroy_calls for box in driver.made) == 8)
            gate.set()

        async with Pool(driver, config(idle_target=8)) as pool:
            await full(pool, 8)
            tasks.start_soon(open_gate)
    assert not driver.standing


async def test_closing_is_bounded_when_destructions_never_end() -> None:
    driver = FakeDriver(*(Fault(destroy_gate=anyio.Event()) for _ in range(2)))
    with anyio.fail_after(LONG):
        async with Pool(driver, config(close_timeout=0.02)) as pool:
            await full(pool)
    assert len(driver.standing) == 2


async def test_closing_refuses_waiting_calls_and_destroys_what_is_in_use() -> None:
    driver = FakeDriver(None, Fault(create_gate=anyio.Event()))
    refused = anyio.Event()
    async with anyio.create_task_group() as tasks, Pool(driver, config(idle_target=0)) as pool:
        await pool.acquire("3.13", timeout=LONG)

        async def waits() -> None:
            with pytest.raises(PoolClosed):
                await pool.acquire("3.13", timeout=LONG)
            refused.set()

        tasks.start_soon(waits)
        await until(lambda: pool.stats().waiting == 1 and driver.creating == 1)
    assert refused.is_set()
    assert not driver.standing
    assert driver.creating == 0


async def test_a_creation_that_can_not_be_interrupted_is_destroyed_when_it_ends_during_closing() -> None:
    gate = anyio.Event()
    driver = FakeDriver(Fault(create_gate=gate, create_ignores_cancel=True))
    async with anyio.create_task_group() as tasks:

        async def open_gate() -> None:
            await until(lambda: pool.stats().phase is PoolPhase.CLOSED)
            gate.set()

        async with Pool(driver, config(idle_target=1)) as pool:
            await until(lambda: driver.creating == 1)
            tasks.start_soon(open_gate)
    assert len(driver.made) == 1
    assert not driver.standing


async def test_the_pool_closes_properly_when_all_around_it_is_cancelled() -> None:
    driver = FakeDriver(None, None, Fault(create_gate=anyio.Event()))
    with anyio.move_on_after(LONG) as scope:
        async with Pool(driver, config(max_creating=1)) as pool:
            await full(pool)
            await pool.acquire("3.13", timeout=LONG)
            await until(lambda: driver.creating == 1)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert len(driver.made) == 2
    assert not driver.standing
    assert driver.creating == 0


async def test_an_exception_of_the_body_passes_through_as_it_is() -> None:
    driver = FakeDriver()

    async def body() -> None:
        async with Pool(driver, config()) as pool:
            await full(pool)
            raise KeyError

    with pytest.raises(KeyError):
        await body()
    assert not driver.standing


async def test_what_dead_servers_left_is_swept_again_and_again_also_after_a_failure() -> None:
    driver = FakeDriver()
    driver.sweeps = iter([3, DriverError("the engine is busy"), RuntimeError("a bug"), 2])
    async with Pool(driver, config(reap_interval=0.001)) as pool:
        await until(lambda: driver.sweep_calls > 4)
        assert pool.stats().orphans_reaped == 5


class Diary(SilentObserver):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def created(self, sandbox_id: str, python: str, seconds: float) -> None:
        self.lines.append(f"{sandbox_id} created for {python}")

    def create_failed(self, python: str, error: Exception) -> None:
        self.lines.append(f"create failed: {error}")

    def granted(self, sandbox_id: str, waited_seconds: float) -> None:
        self.lines.append(f"{sandbox_id} granted")

    def found_dead(self, sandbox_id: str) -> None:
        self.lines.append(f"{sandbox_id} dead")

    def retired(self, sandbox_id: str, reason: RetireReason) -> None:
        self.lines.append(f"{sandbox_id} retired: {reason}")

    def destroyed(self, sandbox_id: str, seconds: float) -> None:
        self.lines.append(f"{sandbox_id} destroyed")

    def destroy_failed(self, sandbox_id: str, error: Exception) -> None:
        self.lines.append(f"{sandbox_id} not destroyed: {error}")

    def phase_changed(self, before: PoolPhase, after: PoolPhase) -> None:
        self.lines.append(f"{before} -> {after}")

    def orphans_reaped(self, count: int) -> None:
        self.lines.append(f"{count} orphans")


async def test_an_observer_hears_of_every_event() -> None:
    driver = FakeDriver(Fault(create_error=CreateFailed("no space")), Fault(destroy_failures=1))
    driver.sweeps = iter([1])
    diary = Diary()
    async with Pool(driver, config(idle_target=1), diary) as pool:
        await full(pool, 1)
        (await pool.acquire("3.13", timeout=LONG)).finish()
        await full(pool, 1)
        driver.made[1].die()
        await until(lambda: driver.made[1].destroyed)
        await full(pool, 1)
        pool.new_generation()
        await full(pool, 1)
    expected = [
        "1 orphans",
        "create failed: no space",
        "running -> failing",
        "box-1 created for 3.13",
        "failing -> running",
        "box-1 granted",
        "box-1 not destroyed: the engine did not confirm",
        "box-1 destroyed",
        "box-2 dead",
        "box-2 destroyed",
        "box-3 retired: generation",
        "running -> closed",
        "box-4 destroyed",
    ]
    assert [line for line in diary.lines if line in expected] == expected


# Cancellation


MOST_STEPS = 200
"""Guards loops over the steps of some work: none here takes so many."""


async def _cancelled_at(step: int, work: Callable[[], Awaitable[None]]) -> bool:
    """Run ``work`` and cancel it after ``step`` turns of the loop; whether it had ended before."""
    ended = False
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            nonlocal ended
            await work()
            ended = True

        tasks.start_soon(run)
        for _ in range(step):
            await anyio.lowlevel.checkpoint()
        was_ended = ended
        tasks.cancel_scope.cancel()
    return was_ended


@pytest.mark.parametrize("warm", [0, 1])
async def test_a_call_cancelled_at_any_step_leaves_the_books_balanced(warm: int) -> None:
    async def call(pool: Pool) -> None:
        with await pool.acquire("3.13", timeout=LONG):
            for _ in range(3):
                await anyio.lowlevel.checkpoint()

    ended, step = False, 0
    while not ended:
        driver = FakeDriver()
        async with Pool(driver, config(idle_target=warm, max_total=3)) as pool:
            await full(pool, warm)
            ended = await _cancelled_at(step, partial(call, pool))
            await full(pool, warm)
            stats = pool.stats()
            assert (stats.waiting, stats.leased) == (0, 0)
            assert stats.created == stats.idle + stats.destroyed
            with await pool.acquire("3.13", timeout=LONG):
                pass
        assert not driver.standing
        assert all(box.destroy_calls == 1 for box in driver.made)
        step += 1
        assert step < MOST_STEPS
    assert step > 3


class CancelsAtBirth(SilentObserver):
    """Cancels a call in the very step in which the sandbox for it becomes ready."""

    def __init__(self) -> None:
        self.doomed = anyio.CancelScope()

    def created(self, sandbox_id: str, python: str, seconds: float) -> None:
        if sandbox_id == "box-2":
            self.doomed.cancel()


@pytest.mark.parametrize("next_call_waits", [True, False])
async def test_the_sandbox_of_a_call_cancelled_while_it_is_granted_goes_unused_to_the_next_call(
    next_call_waits: bool,
) -> None:
    gate = anyio.Event()
    driver = FakeDriver(None, Fault(create_gate=gate))
    observer = CancelsAtBirth()
    got: list[str] = []
    async with Pool(driver, config(idle_target=1, max_total=2, max_creating=1), observer) as pool:
        await full(pool, 1)
        lease = await pool.acquire("3.13", timeout=LONG)

        async def doomed() -> None:
            with observer.doomed:
                await pool.acquire("3.13", timeout=LONG)
                got.append("never")

        async def next_call() -> None:
            with await pool.acquire("3.13", timeout=LONG) as lease:
                got.append(lease.sandbox.id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(doomed)
            await until(lambda: pool.stats().waiting == 1)
            if next_call_waits:
                tasks.start_soon(next_call)
                await until(lambda: pool.stats().waiting == 2)
            gate.set()
            await until(lambda: observer.doomed.cancel_called)
        if not next_call_waits:
            assert pool.stats().idle == 1
            await next_call()
        assert got == ["box-2"]
        assert pool.stats().granted == 2
        lease.finish()
    assert not driver.standing


async def test_a_pool_cancelled_at_any_step_of_its_life_leaves_nothing() -> None:
    async def life(driver: FakeDriver) -> None:
        async with Pool(driver, config()) as pool:
            with await pool.acquire("3.13", timeout=LONG):
                await anyio.lowlevel.checkpoint()

    ended, step = False, 0
    while not ended:
        driver = FakeDriver()
        ended = await _cancelled_at(step, partial(life, driver))
        assert not driver.standing
        assert driver.creating == 0
        step += 1
        assert step < MOST_STEPS
    assert step > 5
