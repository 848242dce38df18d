import math

import pytest

from python_exec_sandbox.pool.actions import Refuse
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.state import PoolState
from tests.pool.tables import PY, TABLES, check


@pytest.mark.parametrize("name", TABLES)
def test_table(name: str) -> None:
    check(TABLES[name], PoolState)


def refusal(state: PoolState, ticket: int, now: float) -> str:
    (action,) = state.request(ticket, PY, now)
    assert isinstance(action, Refuse)
    return action.text


def test_a_refusal_for_a_full_queue_names_its_length_its_bound_and_the_option() -> None:
    state = PoolState(PoolConfig(idle_target=0, max_waiting=2), lambda: 0.0)
    state.request(1, PY, 0.0)
    state.request(2, PY, 0.0)
    assert refusal(state, 3, 0.0) == (
        "2 calls wait for a sandbox already and the most allowed is 2; "
        "call again when some have ended, or raise --max-waiting"
    )


def test_a_refusal_by_the_open_circuit_names_the_cause_and_the_time_of_the_next_try() -> None:
    state = PoolState(PoolConfig(idle_target=0, first_delay=4.0, worth_waiting=0.0), lambda: 0.0)
    state.request(1, PY, 0.0)
    state.create_failed(1, "no engine answers; start Docker", 0.0, lasting=True)
    said = "no sandbox can be made at present: no engine answers; start Docker"
    assert refusal(state, 2, 1.0) == f"{said} (not tried again for 3 s)"
    assert refusal(state, 3, 2.9) == f"{said} (not tried again for 2 s)"
    assert refusal(state, 4, 3.5) == said, "it is over before anyone can call again"
    assert state.retry_seconds(1.0) == 3.0


def test_a_refusal_names_the_cause_that_counts_not_that_of_an_attempt_that_was_cut_off() -> None:
    state = PoolState(PoolConfig(idle_target=2, first_delay=4.0), lambda: 0.0)
    state.open(0.0)
    state.create_failed(1, "no engine answers", 0.0, lasting=True)
    state.create_failed(2, "the connection ended", 0.1, lasting=False)
    assert (
        refusal(state, 1, 0.2)
        == "no sandbox can be made at present: no engine answers (not tried again for 4 s)"
    )


def test_ages_are_spread_so_that_not_all_go_at_once() -> None:
    numbers = iter([0.0, 1.0])
    state = PoolState(PoolConfig(max_age=100.0, idle_timeout=1000.0), lambda: next(numbers))
    state.open(0.0)
    state.created(1, "a", 0.0, alive=True)
    state.created(2, "b", 0.0, alive=True)
    assert state.wake_at == 75.0
    state.tick(75.0)
    assert state.wake_at == 100.0


@pytest.mark.parametrize("failures", [1, 50, 5000])
def test_delays_are_jittered_and_bounded_however_long_the_engine_stays_away(failures: int) -> None:
    state = PoolState(
        PoolConfig(idle_target=1, max_delay=60.0, delay_jitter=0.5, idle_timeout=math.inf), lambda: 1.0
    )
    state.open(0.0)
    now = 0.0
    for attempt in range(1, failures + 1):
        state.create_failed(attempt, "no engine", now, lasting=True)
        assert state.wake_at is not None
        assert 0 < state.wake_at - now <= 30.0
        now = state.wake_at
        state.tick(now)
