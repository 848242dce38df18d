"""Random lives of the pool's state machine against a bookkeeper who trusts nothing but its actions."""

import math
import random
from collections import Counter
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from python_exec_sandbox.pool.actions import Abandon, Action, Create, Destroy, Grant, Refuse, Retired
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.state import PoolState
from python_exec_sandbox.pool.stats import PoolPhase

PYTHONS = ["3.13", "3.14", "3.15"]
CALM_STEPS = 200
"""More inputs than any pool of this size needs to come to rest."""


class PoolLife(RuleBasedStateMachine):
    """``state_class`` may be a broken copy: then some life must fail."""

    state_class: ClassVar[type[PoolState]] = PoolState

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.generation = 0
        self.numbers = 0
        self.in_the_making: dict[int, tuple[str, int]] = {}
        self.unused: dict[str, tuple[str, int]] = {}
        self.in_use: set[str] = set()
        self.to_end: set[str] = set()
        self.being_destroyed: set[str] = set()
        self.waiting: dict[int, str] = {}
        self.born: dict[str, tuple[str, int]] = {}
        self.ready_at: dict[str, float] = {}

    @initialize(
        idle=st.integers(0, 3),
        total=st.integers(1, 5),
        creating=st.integers(1, 3),
        waiting=st.integers(0, 4),
        quiet=st.sampled_from([0.0, 0.05]),
        settle=st.sampled_from([0.0, 2.0]),
        fill_on_open=st.booleans(),
    )
    def open(
        self,
        idle: int,
        total: int,
        creating: int,
        waiting: int,
        quiet: float,
        settle: float,
        fill_on_open: bool,
    ) -> None:
        self.config = PoolConfig(
            idle_target=min(idle, total),
            max_total=total,
            max_creating=creating,
            max_waiting=waiting,
            quiet_time=quiet,
            settle_time=settle,
            fill_on_open=fill_on_open,
            absent_time=40.0,
            recent_time=50.0,
            idle_timeout=100.0,
            max_age=70.0,
        )
        self.state = self.state_class(self.config, random.Random(1).random)
        self.apply(self.state.open(self.now))

    # The books

    def apply(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Create(attempt, python):
                    assert attempt not in self.in_the_making
                    self.in_the_making[attempt] = (python, self.generation)
                case Abandon(attempt):
                    assert attempt in self.in_the_making
                case Destroy(sandbox_id):
                    assert sandbox_id in self.to_end, "destroyed before its end or twice"
                    self.to_end.remove(sandbox_id)
                    self.being_destroyed.add(sandbox_id)
                case Grant(ticket, sandbox_id):
                    self.check_grant(ticket, sandbox_id)
                case Refuse(ticket, _, text):
                    assert text
                    del self.waiting[ticket]
                case Retired(sandbox_id, _):
                    del self.unused[sandbox_id]
                    self.to_end.add(sandbox_id)

    def check_grant(self, ticket: int, sandbox_id: str) -> None:
        python, generation = self.unused[sandbox_id]
        assert self.waiting[ticket] == python, "made for another version"
        assert generation == self.generation, "made from an old image"
        assert ticket == min(t for t, wanted in self.waiting.items() if wanted == python), "jumped the queue"
        oldest = min(self.ready_at[i] for i, (made, _) in self.unused.items() if made == python)
        assert self.ready_at[sandbox_id] == oldest, "not the oldest"
        del self.waiting[ticket]
        del self.unused[sandbox_id]
        self.in_use.add(sandbox_id)

    # What can happen

    @rule(python=st.sampled_from(PYTHONS))
    def call(self, python: str) -> None:
        self.numbers += 1
        self.waiting[self.numbers] = python
        self.apply(self.state.request(self.numbers, python, self.now))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[ticket]
        self.apply(self.state.withdraw(ticket, self.now))

    @precondition(lambda self: self.in_use)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.finish_one(data.draw(st.sampled_from(sorted(self.in_use))))

    @precondition(lambda self: self.in_use)
    @rule(data=st.data(), alive=st.booleans())
    def nobody_took_it(self, data: st.DataObject, alive: bool) -> None:
        """As when a call is cancelled in the moment of its grant."""
        sandbox_id = data.draw(st.sampled_from(sorted(self.in_use)))
        self.in_use.remove(sandbox_id)
        if alive:
            self.unused[sandbox_id] = self.born[sandbox_id]
        else:
            self.to_end.add(sandbox_id)
        self.apply(self.state.unclaimed(sandbox_id, self.now, alive=alive))

    @precondition(lambda self: self.in_the_making)
    @rule(data=st.data(), alive=st.sampled_from([True, True, True, False]))
    def created(self, data: st.DataObject, alive: bool) -> None:
        self.create_one(data.draw(st.sampled_from(sorted(self.in_the_making))), alive=alive)

    @precondition(lambda self: self.in_the_making)
    @rule(data=st.data(), lasting=st.booleans())
    def create_failed(self, data: st.DataObject, lasting: bool) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.in_the_making)))
        del self.in_the_making[attempt]
        circuit = self.state._circuit
        known = circuit.round, circuit.phase
        self.apply(self.state.create_failed(attempt, "no space", self.now, lasting=lasting))
        # An attempt of an older round tells nothing new: a call that came since waits for the next one.
        if lasting and circuit.phase is PoolPhase.OPEN and (circuit.round, circuit.phase) != known:
            assert not self.waiting, "waits although nothing can be made"

    @precondition(lambda self: self.in_the_making)
    @rule(data=st.data())
    def python_unavailable(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.in_the_making)))
        python, generation = self.in_the_making.pop(attempt)
        circuit = self.state._circuit.phase
        self.apply(self.state.python_unavailable(attempt, f"no {python}", self.now))
        assert self.state._circuit.phase is circuit, "one version's absence concerns the others"
        if generation == self.generation:
            assert python not in self.waiting.values(), "waits for what isn't there"

    @precondition(lambda self: self.unused)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        sandbox_id = data.draw(st.sampled_from(sorted(self.unused)))
        del self.unused[sandbox_id]
        self.to_end.add(sandbox_id)
        self.apply(self.state.died(sandbox_id, self.now))

    @precondition(lambda self: self.being_destroyed)
    @rule(data=st.data())
    def destroyed(self, data: st.DataObject) -> None:
        self.destroy_one(data.draw(st.sampled_from(sorted(self.being_destroyed))))

    @precondition(lambda self: self.being_destroyed)
    @rule(data=st.data())
    def destroy_failed(self, data: st.DataObject) -> None:
        sandbox_id = data.draw(st.sampled_from(sorted(self.being_destroyed)))
        self.being_destroyed.remove(sandbox_id)
        self.to_end.add(sandbox_id)
        self.apply(self.state.destroy_failed(sandbox_id, "the engine hangs", self.now))

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 2.0, 30.0, 120.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def timer_rings(self) -> None:
        if self.state.wake_at is not None:
            self.now = max(self.now, self.state.wake_at)
            self.apply(self.state.tick(self.now))

    @rule()
    def image_changes(self) -> None:
        self.generation += 1
        self.apply(self.state.new_generation(self.now))

    @rule(really=st.sampled_from([False] * 9 + [True]))
    def drain(self, really: bool) -> None:
        if really:
            self.apply(self.state.drain(self.now))

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        """Runs end, engine calls succeed: then everyone is served and the pool is full."""
        for _ in range(CALM_STEPS):
            if not self.one_step_of_success():
                break
        else:
            raise AssertionError("the pool does not come to rest")
        assert not self.waiting
        assert not self.to_end
        idle = Counter(python for python, _ in self.unused.values())
        awake = not self.state._asleep and self.state.phase is not PoolPhase.DRAINING
        assert idle["3.13"] == (self.config.idle_target if awake else 0), "not full"
        assert idle["3.14"] <= 1
        assert idle["3.15"] <= 1

    def one_step_of_success(self) -> bool:
        if self.in_use:
            self.finish_one(min(self.in_use))
        elif self.in_the_making:
            self.create_one(min(self.in_the_making))
        elif self.being_destroyed:
            self.destroy_one(min(self.being_destroyed))
        elif self.to_end or self.waiting or self.work_is_due():
            if self.state.wake_at is None:
                raise AssertionError("something is to be done and no timer is set")
            self.now = max(self.now, self.state.wake_at)
            self.apply(self.state.tick(self.now))
        else:
            return False
        return True

    def work_is_due(self) -> bool:
        """Whether background work is still to come: put off by runs, or by failures before."""
        if any(self.now < at for at in self.state._absent.moments()):
            return True
        wake = self.state.wake_at
        put_off = max(self.config.quiet_time, self.config.settle_time)
        failing = self.state.retry_seconds(self.now) is not None
        return wake is not None and (failing or wake <= self.now + put_off)

    # Steps

    def create_one(self, attempt: int, *, alive: bool = True) -> None:
        self.numbers += 1
        sandbox_id = f"s{self.numbers}"
        self.ready_at[sandbox_id] = self.now
        made = self.born[sandbox_id] = self.in_the_making.pop(attempt)
        if alive:
            self.unused[sandbox_id] = made
        else:
            self.to_end.add(sandbox_id)
        self.apply(self.state.created(attempt, sandbox_id, self.now, alive=alive))

    def finish_one(self, sandbox_id: str) -> None:
        self.in_use.remove(sandbox_id)
        self.to_end.add(sandbox_id)
        self.apply(self.state.finished(sandbox_id, self.now))
        assert self.state.finished(sandbox_id, self.now) == []

    def destroy_one(self, sandbox_id: str) -> None:
        self.being_destroyed.remove(sandbox_id)
        self.apply(self.state.destroyed(sandbox_id, self.now))

    # What always holds

    @invariant()
    def every_sandbox_is_in_exactly_one_set(self) -> None:
        census = self.state.census()
        assert set(census.creating) == set(self.in_the_making)
        assert set(census.idle) == set(self.unused)
        assert set(census.leased) == self.in_use
        assert {i for i, busy in census.ending.items() if busy} == self.being_destroyed
        assert {i for i, busy in census.ending.items() if not busy} == self.to_end
        assert census.waiting == self.waiting

    @invariant()
    def the_bounds_hold(self) -> None:
        census = self.state.census()
        assert census.total == self.state.total <= self.config.max_total
        assert len(census.creating) <= self.config.max_creating
        assert len(census.waiting) <= self.config.max_waiting

    @invariant()
    def nothing_fit_is_idle_while_a_call_waits(self) -> None:
        idle = {python for python, _ in self.unused.values()}
        assert not idle & set(self.waiting.values())

    @invariant()
    def a_waiting_call_always_has_something_in_progress(self) -> None:
        if not self.waiting:
            return
        timer = self.state.wake_at is not None
        assert self.in_the_making or self.in_use or self.being_destroyed or timer
        coming = Counter(
            python for python, generation in self.in_the_making.values() if generation == self.generation
        )
        uncovered = (Counter(self.waiting.values()) - coming).total()
        free = self.config.max_total - self.state.total
        if uncovered and free and self.state.retry_seconds(self.now) is None:
            assert len(self.in_the_making) >= 1

    @invariant()
    def the_timer_is_set_after_the_last_input(self) -> None:
        wake = self.state.wake_at
        assert wake is None or (wake > self.state._settled_at and not math.isnan(wake))

    def teardown(self) -> None:
        """Closing refuses everyone and ends everything."""
        if not hasattr(self, "state"):
            return
        actions = self.state.close(self.now)
        self.to_end |= set(self.unused) | self.in_use
        self.unused.clear()
        self.in_use.clear()
        self.apply(actions)
        assert {action.attempt for action in actions if isinstance(action, Abandon)} == set(
            self.in_the_making
        )
        assert not self.waiting
        assert self.state.close(self.now) == []
        for attempt in list(self.in_the_making):
            del self.in_the_making[attempt]
            self.apply(self.state.create_abandoned(attempt, self.now))
        while self.being_destroyed or self.to_end:
            if not self.being_destroyed:
                assert self.state.wake_at is not None
                self.now = self.state.wake_at
                self.apply(self.state.tick(self.now))
            self.destroy_one(min(self.being_destroyed))
        assert self.state.total == 0
        assert self.state.phase is PoolPhase.CLOSED
        assert self.state.wake_at is None
