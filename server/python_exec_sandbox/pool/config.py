"""How large the pool is and how patient."""

import math
from dataclasses import dataclass

from python_exec_sandbox.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Sizes and times of a pool. Times are seconds; ``math.inf`` means never.

    Raises:
        ConfigurationError: a number is out of its range or contradicts another; all problems at once.
    """

    default_python: str = "3.13"
    idle_target: int = 2
    """Warm sandboxes of the default version that wait for a call."""
    max_total: int = 8
    """Sandboxes being made, idle, in use and being destroyed, together."""
    max_creating: int = 2
    """More than two at a time only slow each other down: one creation keeps a core busy."""
    max_waiting: int = 32
    max_other_pythons: int = 2
    """Versions besides the default one of which one sandbox each is kept warm, newest asked for first."""
    recent_time: float = 600.0
    """How long after the last call for it a version besides the default one is kept warm."""
    fill_on_open: bool = True

    idle_timeout: float = 600.0
    """After this time without a call the pool drains to zero; the next call fills it again."""
    max_age: float = 1800.0
    """An idle sandbox is replaced at this age, up to a quarter earlier, so that not all go at once."""
    quiet_time: float = 0.05
    """Engine calls in the background begin this long after the last run: calls one right after the other
    come within milliseconds of each other and must not meet the removal of the one before."""
    settle_time: float = 2.0
    """The longest time that running scripts put off engine calls in the background."""

    first_delay: float = 0.25
    """After the first failure; a creation takes about as long, so it is no flood. Doubles each time."""
    max_delay: float = 60.0
    """Background attempts at an engine that stays away: rare enough to cost nothing."""
    absent_time: float = 60.0
    """How long a Python version that sandboxes turned out not to have is not tried again: only another
    image brings it, and each try costs the making of a sandbox."""
    max_call_delay: float = 5.0
    """A person who has just started the engine and calls again is not made to wait out ``max_delay``."""
    worth_waiting: float = 1.0
    """A call made so shortly before the next attempt waits for it: it learns of the cause of then, or gets
    its sandbox, in less time than it takes to call again."""
    delay_jitter: float = 0.2
    """Share by which a delay is shortened at random: several servers of one person don't try in step."""
    failures_to_open: int = 3
    """Failures in a row after which calls are refused at once instead of waiting for the next attempt."""
    young_time: float = 3.0
    """A sandbox that dies unused before this age counts as a failed creation: no endless loop of
    creations from an image whose runner ends at once."""
    max_destroy_delay: float = 10.0
    """A destruction that can't be confirmed is repeated for ever and keeps its place; it costs one call."""

    check_interval: float = 5.0
    """Between two signs of life asked of an idle sandbox: one that was paused is found out within this
    time and two seconds, for the cost of a few bytes."""
    trust_time: float = 0.02
    """A sandbox that isn't watched and whose last sign of life is older is asked for one when it is handed
    out. That takes about a millisecond; a script given to one that was paused would be lost after its whole time.
    Shorter than anyone needs to pause one; ``math.inf`` leaves it to the checks between."""
    create_timeout: float = 1800.0
    """The first creation may build or pull the image over a slow line; drivers bound their own calls."""
    destroy_timeout: float = 20.0
    """A removal takes a quarter of a second; after this one it is given up and repeated."""
    close_timeout: float = 3.0
    """The server has five seconds to end. Eight removals at once take about one."""
    reap_interval: float = 300.0
    """Between two sweeps of what dead servers left."""

    def __post_init__(self) -> None:
        problems = [*self._size_problems(), *self._time_problems()]
        if problems:
            raise ConfigurationError("the pool can't be set up: " + "; ".join(problems))

    def _size_problems(self) -> list[str]:
        problems = [
            f"{name} is {number}, the least is {least}"
            for name, number, least in (
                ("idle_target", self.idle_target, 0),
                ("max_total", self.max_total, 1),
                ("max_creating", self.max_creating, 1),
                ("max_waiting", self.max_waiting, 0),
                ("max_other_pythons", self.max_other_pythons, 0),
                ("failures_to_open", self.failures_to_open, 1),
            )
            if number < least
        ]
        if self.idle_target > self.max_total:
            problems.append(
                f"idle_target {self.idle_target} is above max_total {self.max_total}; "
                "keep fewer warm or allow more sandboxes"
            )
        return problems

    def _time_problems(self) -> list[str]:
        positive = {
            "idle_timeout": self.idle_timeout,
            "max_age": self.max_age,
            "first_delay": self.first_delay,
            "max_delay": self.max_delay,
            "absent_time": self.absent_time,
            "max_call_delay": self.max_call_delay,
            "max_destroy_delay": self.max_destroy_delay,
            "check_interval": self.check_interval,
            "create_timeout": self.create_timeout,
            "destroy_timeout": self.destroy_timeout,
            "close_timeout": self.close_timeout,
            "reap_interval": self.reap_interval,
        }
        not_negative = {
            "quiet_time": self.quiet_time,
            "settle_time": self.settle_time,
            "recent_time": self.recent_time,
            "young_time": self.young_time,
            "trust_time": self.trust_time,
            "worth_waiting": self.worth_waiting,
        }
        problems = [
            f"{name} is {value:g} s, it must be above 0" for name, value in positive.items() if not value > 0
        ]
        problems += [
            f"{name} is {value:g} s, it can't be below 0"
            for name, value in not_negative.items()
            if not value >= 0
        ]
        if not 0 <= self.delay_jitter < 1 or math.isnan(self.delay_jitter):
            problems.append(f"delay_jitter is {self.delay_jitter:g}, it must be from 0 to below 1")
        return problems
