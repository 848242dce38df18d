"""Tables for the pool's state machine: at this time, this input, these actions."""

from dataclasses import dataclass, field
from typing import Any

from python_exec_sandbox.pool.actions import (
    Abandon,
    Action,
    Create,
    Destroy,
    Grant,
    RefusalKind,
    Refuse,
    Retired,
    RetireReason,
)
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.state import PoolState

PY, OTHER, THIRD, FOURTH = "3.13", "3.14", "3.15", "3.12"

AGE, GENERATION, SURPLUS, ROOM, QUIET = (
    RetireReason.AGE,
    RetireReason.GENERATION,
    RetireReason.SURPLUS,
    RetireReason.ROOM,
    RetireReason.QUIET,
)


def busy(ticket: int) -> Refuse:
    return Refuse(ticket, RefusalKind.BUSY, "")


def unavailable(ticket: int) -> Refuse:
    return Refuse(ticket, RefusalKind.UNAVAILABLE, "")


def absent(ticket: int) -> Refuse:
    return Refuse(ticket, RefusalKind.PYTHON, "")


def closed(ticket: int) -> Refuse:
    return Refuse(ticket, RefusalKind.CLOSED, "")


Row = tuple[float, str, tuple[Any, ...], list[Action]]


@dataclass(frozen=True)
class Table:
    """Rows in order; ``wake`` is when the timer is set to after the last one, if it matters."""

    config: dict[str, Any]
    rows: list[Row]
    wake: float | None = None
    facts: dict[str, object] = field(default_factory=dict)
    """Counters and properties of the state after the last row."""


def row(at: float, method: str, *args: Any, then: list[Action] | None = None) -> Row:
    return at, method, args, then or []


FLAGS = {"created": ("alive", True), "unclaimed": ("alive", True), "create_failed": ("lasting", False)}
"""Inputs with a flag, and what it is where a row says nothing."""


BASE = {"quiet_time": 0.0, "settle_time": 2.0, "worth_waiting": 0.0}
"""What a table's configuration adds to."""


def _call(state: PoolState, method: str, args: tuple[Any, ...], at: float) -> list[Action]:
    flags = {}
    if method in FLAGS:
        name, usual = FLAGS[method]
        flags[name] = args[-1] if isinstance(args[-1], bool) else usual
    actions: list[Action] = getattr(state, method)(*(a for a in args if not isinstance(a, bool)), at, **flags)
    return actions


def check(table: Table, state_class: type[PoolState]) -> None:
    """Raise ``AssertionError`` at the first row whose actions are others than the table's."""
    state = state_class(PoolConfig(**BASE | table.config), lambda: 0.0)
    for number, (at, method, args, expected) in enumerate(table.rows, 1):
        actions = _call(state, method, args, at)
        seen = [Refuse(a.ticket, a.kind, "") if isinstance(a, Refuse) else a for a in actions]
        assert seen == expected, f"row {number}, {method}{args} at {at}: {seen}, expected {expected}"
        assert all(a.text for a in actions if isinstance(a, Refuse)), f"row {number}: a refusal without words"
    if table.wake is not None:
        assert state.wake_at is not None, "no timer is set"
        assert abs(state.wake_at - table.wake) < 1e-9, f"wakes at {state.wake_at}, expected {table.wake}"
    for name, value in table.facts.items():
        seen_value = getattr(state.counters, name) if hasattr(state.counters, name) else getattr(state, name)
        assert seen_value == value, f"{name} is {seen_value}, expected {value}"


COLD = {"idle_target": 0}
"""Nothing in the background."""
ONE = {"idle_target": 1}

WARM_ONE = [
    row(0, "open", then=[Create(1, PY)]),
    row(1, "created", 1, "a"),
]
WARM_TWO = [
    row(0, "open", then=[Create(1, PY), Create(2, PY)]),
    row(1, "created", 1, "a"),
    row(2, "created", 2, "b"),
]

TABLES: dict[str, Table] = {
    "opening fills the pool, so many at a time": Table(
        {"idle_target": 3, "max_creating": 2},
        [
            row(0, "open", then=[Create(1, PY), Create(2, PY)]),
            row(1, "created", 1, "a", then=[Create(3, PY)]),
            row(1, "created", 3, "b"),
            row(1, "created", 2, "c"),
        ],
        facts={"created": 3, "create_ms": 2000.0},
    ),
    "a pool that is not filled when it is opened fills at the first call": Table(
        {"idle_target": 1, "fill_on_open": False},
        [
            row(0, "open"),
            row(1, "request", 1, PY, then=[Create(1, PY)]),
            row(2, "created", 1, "a", then=[Grant(1, "a")]),
            row(2, "finished", "a", then=[Create(2, PY), Destroy("a")]),
        ],
    ),
    "a call gets the oldest warm one": Table(
        {},
        [
            *WARM_TWO,
            row(3, "request", 1, PY, then=[Grant(1, "a")]),
            row(3, "request", 2, PY, then=[Grant(2, "b")]),
        ],
    ),
    "a call without a warm one gets the one that is ready first": Table(
        {},
        [
            row(0, "open", then=[Create(1, PY), Create(2, PY)]),
            row(0, "request", 1, PY),
            row(1, "created", 2, "b", then=[Grant(1, "b")]),
        ],
    ),
    "a call for another version gets one made for it": Table(
        ONE,
        [
            *WARM_ONE,
            row(2, "request", 1, OTHER, then=[Create(2, OTHER)]),
            row(3, "created", 2, "b", then=[Grant(1, "b")]),
        ],
    ),
    "the first to come is the first to be served, version by version": Table(
        COLD | {"max_creating": 3},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, OTHER, then=[Create(2, OTHER)]),
            row(0, "request", 3, PY, then=[Create(3, PY)]),
            row(1, "created", 3, "a", then=[Grant(1, "a")]),
            row(1, "created", 1, "b", then=[Grant(3, "b")]),
            row(1, "created", 2, "c", then=[Grant(2, "c")]),
        ],
    ),
    "the call that came first gets the next creation": Table(
        COLD | {"max_creating": 1},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, OTHER),
            row(0, "request", 3, PY),
            row(1, "created", 1, "a", then=[Grant(1, "a"), Create(2, OTHER)]),
        ],
    ),
    "a withdrawn call is not served": Table(
        COLD,
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, PY, then=[Create(2, PY)]),
            row(0, "withdraw", 1),
            row(1, "created", 1, "a", then=[Grant(2, "a")]),
        ],
    ),
    "what a withdrawn call has ordered fills the pool or goes": Table(
        ONE | {"max_creating": 1},
        [
            row(0, "open", then=[Create(1, PY)]),
            row(0, "request", 1, PY),
            row(1, "created", 1, "a", then=[Grant(1, "a")]),
            row(1, "request", 2, PY, then=[Create(2, PY)]),
            row(1, "withdraw", 2),
            row(2, "created", 2, "b"),
            row(2, "finished", "a", then=[Destroy("a")]),
        ],
    ),
    "a full queue refuses at once, but not who finds a warm one": Table(
        COLD | {"max_waiting": 1, "max_total": 2},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, PY, then=[busy(2)]),
            row(1, "created", 1, "a", then=[Grant(1, "a")]),
            row(1, "request", 3, PY, then=[Create(2, PY)]),
            row(1, "request", 4, PY, then=[busy(4)]),
        ],
    ),
    "with no room in the queue a warm one is given all the same": Table(
        ONE | {"max_waiting": 0, "max_total": 1},
        [*WARM_ONE, row(2, "request", 1, PY, then=[Grant(1, "a")]), row(2, "request", 2, PY, then=[busy(2)])],
    ),
    "a used sandbox is destroyed and holds its place until that is confirmed": Table(
        COLD | {"max_total": 1},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(1, "created", 1, "a", then=[Grant(1, "a")]),
            row(1, "request", 2, PY),
            row(2, "finished", "a", then=[Destroy("a")]),
            row(3, "destroyed", "a", then=[Create(2, PY)]),
        ],
        facts={"destroyed": 1},
    ),
    "finishing again does nothing": Table(
        COLD,
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(1, "created", 1, "a", then=[Grant(1, "a")]),
            row(2, "finished", "a", then=[Destroy("a")]),
            row(2, "finished", "a"),
            row(3, "destroyed", "a"),
            row(3, "finished", "a"),
        ],
    ),
    "filling waits while a script runs, for the settling time at most": Table(
        ONE,
        [
            *WARM_ONE,
            row(10, "request", 1, PY, then=[Grant(1, "a")]),
            row(11.9, "tick"),
            row(12, "tick", then=[Create(2, PY)]),
        ],
    ),
    "the timer is set to the end of the settling time": Table(
        ONE, [*WARM_ONE, row(10, "request", 1, PY, then=[Grant(1, "a")])], wake=12
    ),
    "destroying waits while another script runs, and both go at its end": Table(
        {},
        [
            *WARM_TWO,
            row(10, "request", 1, PY, then=[Grant(1, "a")]),
            row(10, "request", 2, PY, then=[Grant(2, "b")]),
            row(10.5, "finished", "a"),
            row(11, "finished", "b", then=[Create(3, PY), Create(4, PY), Destroy("a"), Destroy("b")]),
        ],
    ),
    "destroying waits for the settling time at most": Table(
        {"idle_target": 2, "max_total": 2},
        [
            *WARM_TWO,
            row(10, "request", 1, PY, then=[Grant(1, "a")]),
            row(10, "request", 2, PY, then=[Grant(2, "b")]),
            row(10.5, "finished", "a"),
            row(12.4, "tick"),
            row(12.5, "tick", then=[Destroy("a")]),
        ],
    ),
    "work in the background waits a moment after a run for the next one": Table(
        ONE | {"quiet_time": 0.5},
        [
            *WARM_ONE,
            row(10, "request", 1, PY, then=[Grant(1, "a")]),
            row(10.25, "finished", "a"),
            row(10.7, "tick"),
            row(10.75, "tick", then=[Create(2, PY), Destroy("a")]),
        ],
    ),
    "the timer is set to that moment": Table(
        ONE | {"quiet_time": 0.5},
        [*WARM_ONE, row(10, "request", 1, PY, then=[Grant(1, "a")]), row(10.25, "finished", "a")],
        wake=10.75,
    ),
    "a creation that a call waits for is not put off": Table(
        ONE,
        [
            *WARM_ONE,
            row(10, "request", 1, PY, then=[Grant(1, "a")]),
            row(10, "request", 2, PY, then=[Create(2, PY)]),
        ],
    ),
    "filling waits while a call waits for its creation": Table(
        ONE | {"max_total": 3, "max_creating": 3},
        [
            *WARM_ONE,
            row(10, "request", 1, OTHER, then=[Create(2, OTHER)]),
            row(12, "tick", then=[Create(3, OTHER)]),
        ],
    ),
    "destroying is not put off when a call needs the place": Table(
        {"idle_target": 2, "max_total": 2},
        [
            *WARM_TWO,
            row(10, "request", 1, PY, then=[Grant(1, "a")]),
            row(10, "request", 2, PY, then=[Grant(2, "b")]),
            row(10.5, "finished", "a"),
            row(10.6, "request", 3, PY, then=[Destroy("a")]),
            row(10.7, "request", 4, PY),
            row(11, "destroyed", "a", then=[Create(3, PY)]),
        ],
    ),
    "only as many are hurried as places are needed": Table(
        {"idle_target": 3, "max_total": 3, "max_creating": 3},
        [
            row(0, "open", then=[Create(1, PY), Create(2, PY), Create(3, PY)]),
            row(1, "created", 1, "a"),
            row(1, "created", 2, "b"),
            row(1, "created", 3, "c"),
            row(10, "request", 1, PY, then=[Grant(1, "a")]),
            row(10, "request", 2, PY, then=[Grant(2, "b")]),
            row(10, "request", 3, PY, then=[Grant(3, "c")]),
            row(10, "finished", "a"),
            row(10, "finished", "b"),
            row(10, "request", 4, PY, then=[Destroy("a")]),
        ],
    ),
    "a version that has no place beside the default one is not kept warm": Table(
        {"idle_target": 1, "max_total": 1},
        [
            *WARM_ONE,
            row(2, "request", 1, OTHER, then=[Retired("a", ROOM), Destroy("a")]),
            row(3, "destroyed", "a", then=[Create(2, OTHER)]),
            row(3, "withdraw", 1),
            row(4, "created", 2, "b", then=[Retired("b", SURPLUS), Destroy("b")]),
            row(5, "destroyed", "b", then=[Create(3, PY)]),
        ],
    ),
    "an idle one of another version makes room, the oldest first": Table(
        {"idle_target": 2, "max_total": 2},
        [
            *WARM_TWO,
            row(3, "request", 1, OTHER, then=[Retired("a", ROOM), Destroy("a")]),
            row(4, "destroyed", "a", then=[Create(3, OTHER)]),
            row(5, "created", 3, "c", then=[Grant(1, "c")]),
        ],
        facts={"retired": 1},
    ),
    "no idle one is given up when a place is about to be free": Table(
        {"idle_target": 2, "max_total": 3, "max_other_pythons": 0},
        [
            *WARM_TWO,
            row(3, "request", 1, OTHER, then=[Create(3, OTHER)]),
            row(4, "created", 3, "c", then=[Grant(1, "c")]),
            row(5, "finished", "c", then=[Destroy("c")]),
            row(5, "request", 2, OTHER),
            row(6, "destroyed", "c", then=[Create(4, OTHER)]),
        ],
    ),
    "one that can't be destroyed counts as no place": Table(
        {"idle_target": 2, "max_total": 3, "max_other_pythons": 0},
        [
            *WARM_TWO,
            row(3, "request", 1, OTHER, then=[Create(3, OTHER)]),
            row(4, "created", 3, "c", then=[Grant(1, "c")]),
            row(5, "finished", "c", then=[Destroy("c")]),
            row(5, "destroy_failed", "c", "hangs"),
            row(5, "request", 2, OTHER, then=[Retired("a", ROOM), Destroy("a")]),
        ],
    ),
    "one of each version asked for lately is kept warm": Table(
        ONE | {"max_total": 4, "max_creating": 1},
        [
            *WARM_ONE,
            row(2, "request", 1, OTHER, then=[Create(2, OTHER)]),
            row(3, "created", 2, "b", then=[Grant(1, "b")]),
            row(4, "finished", "b", then=[Create(3, OTHER), Destroy("b")]),
            row(5, "destroyed", "b"),
            row(5, "created", 3, "c"),
        ],
    ),
    "a version not asked for any more is let go": Table(
        ONE | {"recent_time": 100.0},
        [
            *WARM_ONE,
            row(2, "request", 1, OTHER, then=[Create(2, OTHER)]),
            row(3, "withdraw", 1),
            row(3, "created", 2, "b"),
            row(101.9, "tick"),
            row(102, "tick", then=[Retired("b", SURPLUS), Destroy("b")]),
        ],
    ),
    "only so many versions are remembered, the newest": Table(
        {"idle_target": 1, "max_creating": 3, "max_other_pythons": 1},
        [
            *WARM_ONE,
            row(2, "request", 1, OTHER, then=[Create(2, OTHER)]),
            row(2, "withdraw", 1),
            row(3, "created", 2, "b"),
            row(4, "request", 2, THIRD, then=[Retired("b", SURPLUS), Create(3, THIRD)]),
        ],
    ),
    "a dead one is not given": Table(
        {"young_time": 0.0},
        [
            *WARM_TWO,
            row(5, "died", "a", then=[Create(3, PY), Destroy("a")]),
            row(5, "request", 1, PY, then=[Grant(1, "b")]),
            row(5, "died", "a"),
        ],
        facts={"found_dead": 1},
    ),
    "the death of one in use is the run's matter": Table(
        ONE,
        [*WARM_ONE, row(5, "request", 1, PY, then=[Grant(1, "a")]), row(5, "died", "a")],
        facts={"found_dead": 0},
    ),
    "one that dies young counts as a failed creation": Table(
        ONE | {"first_delay": 1.0},
        [
            *WARM_ONE,
            row(2, "died", "a", then=[Destroy("a")]),
            row(2.5, "tick"),
            row(3, "tick", then=[Create(2, PY)]),
        ],
        facts={"found_dead": 1, "create_failures": 0},
    ),
    "one that comes up dead is never given": Table(
        COLD | {"first_delay": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(1, "created", 1, "a", False),
            row(2, "tick", then=[Create(2, PY)]),
            row(3, "created", 2, "b", then=[Grant(1, "b"), Destroy("a")]),
        ],
    ),
    "an unclaimed one goes to the next call": Table(
        ONE | {"max_total": 1},
        [
            *WARM_ONE,
            row(2, "request", 1, PY, then=[Grant(1, "a")]),
            row(2, "request", 2, PY),
            row(2, "unclaimed", "a", then=[Grant(2, "a")]),
        ],
    ),
    "an unclaimed one that nobody waits for is the oldest again": Table(
        {},
        [
            *WARM_TWO,
            row(3, "request", 1, PY, then=[Grant(1, "a")]),
            row(3, "unclaimed", "a"),
            row(3, "request", 2, PY, then=[Grant(2, "a")]),
        ],
    ),
    "an unclaimed one that has died is destroyed": Table(
        ONE | {"young_time": 0.0, "max_total": 1},
        [
            *WARM_ONE,
            row(2, "request", 1, PY, then=[Grant(1, "a")]),
            row(2, "unclaimed", "a", False, then=[Destroy("a")]),
        ],
    ),
    "an unclaimed one of an old image is not given again": Table(
        ONE | {"max_total": 1},
        [
            *WARM_ONE,
            row(2, "request", 1, PY, then=[Grant(1, "a")]),
            row(2, "request", 2, PY),
            row(2, "new_generation"),
            row(2, "unclaimed", "a", then=[Retired("a", GENERATION), Destroy("a")]),
        ],
    ),
    "after a failure one attempt at a time, after a growing delay, while calls wait": Table(
        COLD | {"first_delay": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, PY, then=[Create(2, PY)]),
            row(1, "create_failed", 1, "no space"),
            row(1, "create_failed", 2, "no space"),
            row(1.9, "tick"),
            row(2, "tick", then=[Create(3, PY)]),
            row(3, "create_failed", 3, "no space"),
            row(4.9, "tick"),
            row(5, "tick", then=[Create(4, PY)]),
            row(6, "created", 4, "a", then=[Grant(1, "a"), Create(5, PY)]),
        ],
        facts={"create_failures": 3, "last_error": "no space"},
    ),
    "the timer is set to the next attempt": Table(
        COLD | {"first_delay": 1.0},
        [row(0, "request", 1, PY, then=[Create(1, PY)]), row(1, "create_failed", 1, "no space")],
        wake=2,
    ),
    "the third failure in a row opens the circuit and refuses who waits": Table(
        COLD | {"first_delay": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(1, "create_failed", 1, "no space"),
            row(2, "tick", then=[Create(2, PY)]),
            row(2, "request", 2, PY),
            row(2, "create_failed", 2, "no space"),
            row(4, "tick", then=[Create(3, PY)]),
            row(4, "create_failed", 3, "no space", then=[unavailable(1), unavailable(2)]),
            row(5, "request", 3, PY, then=[unavailable(3)]),
        ],
        facts={"phase": "open"},
    ),
    "a cause that lasts opens it at once": Table(
        COLD | {"first_delay": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(1, "create_failed", 1, "no engine", True, then=[unavailable(1)]),
            row(1.9, "request", 2, PY, then=[unavailable(2)]),
            row(2, "request", 3, PY, then=[Create(2, PY)]),
            row(2, "request", 4, PY),
            row(3, "created", 2, "a", then=[Grant(3, "a"), Create(3, PY)]),
        ],
        facts={"phase": "running"},
    ),
    "an attempt that began before the failure changes nothing for a call that waits for the next": Table(
        COLD | {"first_delay": 1.0, "worth_waiting": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, PY, then=[Create(2, PY)]),
            row(1, "create_failed", 1, "no engine", True, then=[unavailable(1), unavailable(2)]),
            row(1.1, "request", 3, PY),
            row(1.2, "create_failed", 2, "cut off"),
            row(2, "tick", then=[Create(3, PY)]),
            row(3, "created", 3, "a", then=[Grant(3, "a")]),
        ],
    ),
    "a call that waited for an attempt is refused when it fails and the next is far": Table(
        COLD | {"first_delay": 5.0, "worth_waiting": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, PY, then=[Create(2, PY)]),
            row(1, "create_failed", 1, "no engine", True, then=[unavailable(1), unavailable(2)]),
            row(1.1, "request", 3, PY),
            row(1.2, "create_failed", 2, "cut off", then=[unavailable(3)]),
        ],
    ),
    "a call shortly before the next attempt waits for it, an earlier one doesn't": Table(
        COLD | {"first_delay": 5.0, "worth_waiting": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(1, "create_failed", 1, "no engine", True, then=[unavailable(1)]),
            row(4.9, "request", 2, PY, then=[unavailable(2)]),
            row(5.1, "request", 3, PY),
            row(6, "tick", then=[Create(2, PY)]),
            row(7, "create_failed", 2, "still no engine", True, then=[unavailable(3)]),
        ],
    ),
    "of attempts side by side one may open it": Table(
        COLD | {"first_delay": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, PY, then=[Create(2, PY)]),
            row(1, "create_failed", 1, "no space"),
            row(1, "create_failed", 2, "no engine", True, then=[unavailable(1), unavailable(2)]),
        ],
    ),
    "while an attempt is on a call waits for its end": Table(
        COLD | {"first_delay": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "request", 2, PY, then=[Create(2, PY)]),
            row(1, "create_failed", 1, "no engine", True, then=[unavailable(1), unavailable(2)]),
            row(1.1, "request", 3, PY),
            row(1.2, "created", 2, "a", then=[Grant(3, "a")]),
        ],
    ),
    "a call never waits longer than the bound for the next attempt, filling does": Table(
        ONE | {"first_delay": 30.0, "max_call_delay": 5.0},
        [
            row(0, "open", then=[Create(1, PY)]),
            row(0, "create_failed", 1, "no engine", True),
            row(4.9, "request", 1, PY, then=[unavailable(1)]),
            row(5, "tick"),
            row(5, "request", 2, PY, then=[Create(2, PY)]),
        ],
    ),
    "filling tries again by itself": Table(
        ONE | {"first_delay": 30.0},
        [
            row(0, "open", then=[Create(1, PY)]),
            row(0, "create_failed", 1, "no engine", True),
            row(29.9, "tick"),
            row(30, "tick", then=[Create(2, PY)]),
        ],
    ),
    "a version that sandboxes lack refuses its own calls only": Table(
        COLD | {"max_creating": 3},
        [
            row(0, "request", 1, OTHER, then=[Create(1, OTHER)]),
            row(0, "request", 2, OTHER, then=[Create(2, OTHER)]),
            row(0, "request", 3, PY, then=[Create(3, PY)]),
            row(1, "python_unavailable", 1, "no 3.14", then=[absent(1), absent(2)]),
            row(1, "python_unavailable", 2, "no 3.14"),
            row(1, "request", 4, OTHER, then=[absent(4)]),
            row(2, "created", 3, "a", then=[Grant(3, "a")]),
            row(2, "request", 5, THIRD, then=[Create(4, THIRD)]),
        ],
        facts={"phase": "running", "create_failures": 2, "last_error": "no 3.14"},
    ),
    "a version that sandboxes lack is tried again after a while": Table(
        COLD | {"absent_time": 60.0},
        [
            row(0, "request", 1, OTHER, then=[Create(1, OTHER)]),
            row(1, "python_unavailable", 1, "no 3.14", then=[absent(1)]),
            row(60.9, "request", 2, OTHER, then=[absent(2)]),
            row(61, "request", 3, OTHER, then=[Create(2, OTHER)]),
            row(62, "created", 2, "a", then=[Grant(3, "a")]),
            row(62, "request", 4, OTHER, then=[Create(3, OTHER)]),
        ],
    ),
    "the pool isn't filled with a version that sandboxes lack before that": Table(
        ONE | {"absent_time": 60.0, "idle_timeout": 500.0},
        [
            row(0, "open", then=[Create(1, PY)]),
            row(1, "python_unavailable", 1, "no 3.13"),
            row(1, "request", 1, OTHER, then=[Create(2, OTHER)]),
            row(2, "created", 2, "a", then=[Grant(1, "a")]),
            row(3, "finished", "a", then=[Create(3, OTHER), Destroy("a")]),
            row(4, "created", 3, "b"),
            row(5, "destroyed", "a"),
            row(60.9, "tick"),
            row(61, "tick", then=[Create(4, PY)]),
        ],
    ),
    "the timer is set to when a version that sandboxes lack is tried again": Table(
        ONE | {"absent_time": 60.0, "idle_timeout": 500.0},
        [row(0, "open", then=[Create(1, PY)]), row(1, "python_unavailable", 1, "no 3.13")],
        wake=61,
    ),
    "a new image may have the version": Table(
        COLD,
        [
            row(0, "request", 1, OTHER, then=[Create(1, OTHER)]),
            row(1, "python_unavailable", 1, "no 3.14", then=[absent(1)]),
            row(2, "new_generation"),
            row(2, "request", 2, OTHER, then=[Create(2, OTHER)]),
            row(3, "new_generation", then=[Create(3, OTHER)]),
            row(3, "python_unavailable", 2, "no 3.14"),
            row(4, "created", 3, "a", then=[Grant(2, "a")]),
        ],
    ),
    "a version that is there after all is made again": Table(
        COLD | {"max_creating": 3},
        [
            row(0, "request", 1, OTHER, then=[Create(1, OTHER)]),
            row(0, "request", 2, OTHER, then=[Create(2, OTHER)]),
            row(1, "python_unavailable", 1, "no 3.14", then=[absent(1), absent(2)]),
            row(2, "created", 2, "a", then=[Retired("a", SURPLUS), Destroy("a")]),
            row(2, "request", 3, OTHER, then=[Create(3, OTHER)]),
        ],
    ),
    "a warm one is given although none can be made": Table(
        {},
        [
            row(0, "open", then=[Create(1, PY), Create(2, PY)]),
            row(1, "created", 1, "a"),
            row(2, "create_failed", 2, "no engine", True),
            row(2, "request", 1, PY, then=[Grant(1, "a")]),
        ],
    ),
    "failures before a run that went through are forgotten": Table(
        COLD | {"first_delay": 1.0},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(0, "create_failed", 1, "no space"),
            row(1, "tick", then=[Create(2, PY)]),
            row(1, "create_failed", 2, "no space"),
            row(3, "tick", then=[Create(3, PY)]),
            row(3, "created", 3, "a", then=[Grant(1, "a")]),
            row(3, "finished", "a", then=[Destroy("a")]),
            row(3, "request", 2, PY, then=[Create(4, PY)]),
            row(3, "create_failed", 4, "no space"),
        ],
        facts={"phase": "failing"},
    ),
    "a destruction that fails is repeated after a growing delay": Table(
        COLD | {"max_total": 1},
        [
            row(0, "request", 1, PY, then=[Create(1, PY)]),
            row(1, "created", 1, "a", then=[Grant(1, "a")]),
            row(1, "finished", "a", then=[Destroy("a")]),
            row(1, "destroy_failed", "a", "hangs"),
            row(1.4, "request", 2, PY),
            row(1.5, "tick", then=[Destroy("a")]),
            row(2, "destroy_failed", "a", "hangs"),
            row(2.9, "tick"),
            row(3, "tick", then=[Destroy("a")]),
            row(3, "destroyed", "a", then=[Create(2, PY)]),
        ],
        facts={"destroy_failures": 2, "last_error": "hangs"},
    ),
    "without a call for a time all is let go, and the next call fills it again": Table(
        {"idle_timeout": 100.0, "max_creating": 3},
        [
            *WARM_TWO,
            row(99.9, "tick"),
            row(
                100,
                "tick",
                then=[Retired("a", QUIET), Retired("b", QUIET), Destroy("a"), Destroy("b")],
            ),
            row(101, "destroyed", "a"),
            row(101, "destroyed", "b"),
            row(200, "request", 1, PY, then=[Create(3, PY)]),
            row(201, "created", 3, "c", then=[Grant(1, "c")]),
            row(202, "tick", then=[Create(4, PY), Create(5, PY)]),
        ],
    ),
    "the end of a run counts as a call": Table(
        ONE | {"idle_timeout": 100.0},
        [
            *WARM_ONE,
            row(2, "request", 1, PY, then=[Grant(1, "a")]),
            row(4, "tick", then=[Create(2, PY)]),
            row(5, "created", 2, "b"),
            row(150, "finished", "a", then=[Destroy("a")]),
            row(151, "destroyed", "a"),
            row(249.9, "tick"),
            row(250, "tick", then=[Retired("b", QUIET), Destroy("b")]),
        ],
    ),
    "the timer is set to the time of sleep": Table(ONE | {"idle_timeout": 100.0}, [*WARM_ONE], wake=100),
    "an old one is replaced first and let go then": Table(
        ONE | {"max_age": 50.0},
        [
            *WARM_ONE,
            row(50.9, "tick"),
            row(51, "tick", then=[Create(2, PY)]),
            row(52, "created", 2, "b", then=[Retired("a", AGE), Destroy("a")]),
        ],
    ),
    "an old one goes before its replacement where there is no place for both": Table(
        {"idle_target": 2, "max_total": 2, "max_age": 50.0},
        [
            *WARM_TWO,
            row(60, "tick", then=[Retired("a", AGE), Destroy("a")]),
            row(61, "destroyed", "a", then=[Create(3, PY)]),
        ],
    ),
    "an old one is kept while its replacement takes the last place": Table(
        {"idle_target": 1, "max_total": 2, "max_age": 50.0},
        [
            *WARM_ONE,
            row(51, "tick", then=[Create(2, PY)]),
            row(52, "tick"),
            row(53, "created", 2, "b", then=[Retired("a", AGE), Destroy("a")]),
        ],
    ),
    "an old one is kept while none can be made": Table(
        {"idle_target": 2, "max_total": 2, "max_age": 50.0, "first_delay": 50.0},
        [
            row(0, "open", then=[Create(1, PY), Create(2, PY)]),
            row(1, "created", 1, "a"),
            row(1, "create_failed", 2, "no space"),
            row(51, "tick", then=[Create(3, PY)]),
            row(52, "create_failed", 3, "no space"),
            row(53, "request", 1, PY, then=[Grant(1, "a")]),
        ],
    ),
    "a new image retires the idle ones, and those in the making when they come": Table(
        {"idle_target": 2, "max_creating": 1},
        [
            row(0, "open", then=[Create(1, PY)]),
            row(1, "created", 1, "a", then=[Create(2, PY)]),
            row(2, "new_generation", then=[Retired("a", GENERATION), Destroy("a")]),
            row(2, "request", 1, PY),
            row(3, "created", 2, "b", then=[Retired("b", GENERATION), Create(3, PY)]),
            row(4, "created", 3, "c", then=[Grant(1, "c")]),
        ],
    ),
    "draining serves who waits and takes no more": Table(
        ONE | {"max_total": 1},
        [
            *WARM_ONE,
            row(2, "request", 1, PY, then=[Grant(1, "a")]),
            row(2, "request", 2, PY),
            row(3, "drain"),
            row(3, "request", 3, PY, then=[closed(3)]),
            row(4, "finished", "a", then=[Destroy("a")]),
            row(5, "destroyed", "a", then=[Create(2, PY)]),
            row(6, "created", 2, "b", then=[Grant(2, "b")]),
            row(7, "finished", "b", then=[Destroy("b")]),
            row(8, "destroyed", "b"),
        ],
        facts={"phase": "draining", "total": 0, "busy": False},
    ),
    "draining lets idle ones go": Table(
        ONE, [*WARM_ONE, row(2, "drain", then=[Retired("a", QUIET), Destroy("a")])]
    ),
    "closing ends everything at once": Table(
        {"idle_target": 2, "max_total": 4, "max_creating": 1},
        [
            row(0, "open", then=[Create(1, PY)]),
            row(1, "created", 1, "a", then=[Create(2, PY)]),
            row(2, "created", 2, "b"),
            row(3, "request", 1, PY, then=[Grant(1, "a")]),
            row(3, "request", 2, OTHER, then=[Create(3, OTHER)]),
            row(3, "request", 3, OTHER),
            row(4, "close", then=[closed(2), closed(3), Abandon(3), Destroy("a"), Destroy("b")]),
            row(4, "close"),
            row(4, "request", 4, PY, then=[closed(4)]),
            row(4, "finished", "a"),
            row(5, "create_abandoned", 3),
            row(5, "destroyed", "a"),
            row(5, "destroyed", "b"),
        ],
        facts={"phase": "closed", "total": 0, "wake_at": None},
    ),
    "what comes too late at closing is destroyed": Table(
        ONE,
        [
            row(0, "open", then=[Create(1, PY)]),
            row(1, "close", then=[Abandon(1)]),
            row(2, "created", 1, "a", then=[Retired("a", QUIET), Destroy("a")]),
        ],
    ),
    "closing hurries what was put off": Table(
        {"quiet_time": 0.5},
        [
            *WARM_TWO,
            row(3, "request", 1, PY, then=[Grant(1, "a")]),
            row(3, "request", 2, PY, then=[Grant(2, "b")]),
            row(3, "finished", "a"),
            row(3, "finished", "b"),
            row(3, "close", then=[Destroy("a"), Destroy("b")]),
        ],
    ),
}
