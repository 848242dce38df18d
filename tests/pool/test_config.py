import math

import pytest

from python_exec_sandbox.errors import ConfigurationError
from python_exec_sandbox.pool.config import PoolConfig


def test_the_defaults_are_sound_and_never_may_be_said() -> None:
    assert PoolConfig().idle_target <= PoolConfig().max_total
    assert PoolConfig(idle_timeout=math.inf, max_age=math.inf, settle_time=0.0).max_age == math.inf


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"idle_target": -1}, "idle_target is -1, the least is 0"),
        ({"max_total": 0, "idle_target": 0}, "max_total is 0, the least is 1"),
        ({"max_creating": 0}, "max_creating is 0, the least is 1"),
        ({"max_waiting": -1}, "max_waiting is -1, the least is 0"),
        ({"idle_target": 9}, "idle_target 9 is above max_total 8; keep fewer warm or allow more sandboxes"),
        ({"idle_timeout": 0.0}, "idle_timeout is 0 s, it must be above 0"),
        ({"max_age": math.nan}, "max_age is nan s, it must be above 0"),
        ({"absent_time": 0.0}, "absent_time is 0 s, it must be above 0"),
        ({"settle_time": -1.0}, "settle_time is -1 s, it can't be below 0"),
        ({"delay_jitter": 1.0}, "delay_jitter is 1, it must be from 0 to below 1"),
    ],
)
def test_a_number_out_of_range_is_refused_with_its_name_and_bound(
    changes: dict[str, float], problem: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PoolConfig(**changes)  # type: ignore[arg-type] # one table for whole and broken numbers
    assert str(refused.value) == f"the pool can't be set up: {problem}"


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"max_creating is 0.*settle_time is -2 s"):
        PoolConfig(max_creating=0, settle_time=-2.0)
