"""What the pool tells about itself."""

from dataclasses import dataclass
from enum import StrEnum


class PoolPhase(StrEnum):
    RUNNING = "running"
    FAILING = "failing"
    """The last creation failed; one attempt at a time, calls wait."""
    OPEN = "open"
    """The circuit is open: calls that need a new sandbox are refused at once, naming the cause."""
    ASLEEP = "asleep"
    """No call for a while, nothing is kept warm."""
    DRAINING = "draining"
    CLOSED = "closed"


@dataclass(slots=True)
class Counters:
    """What has happened since the pool was opened; times in milliseconds, summed up."""

    granted: int = 0
    granted_at_once: int = 0
    wait_ms: float = 0.0
    created: int = 0
    create_ms: float = 0.0
    create_failures: int = 0
    found_dead: int = 0
    retired: int = 0
    destroyed: int = 0
    destroy_failures: int = 0
    orphans_reaped: int = 0


@dataclass(frozen=True, slots=True)
class PoolStats:
    """One moment of a pool. The first five are numbers of now, the others have been counted since it
    was opened.

    * ``creating``, ``idle``, ``leased``, ``destroying``: sandboxes; their sum never exceeds ``max_total``.
    * ``waiting``: calls in the queue.
    * ``granted``: calls that got a sandbox; ``granted_at_once``: those that found a warm one.
    * ``wait_ms``: time that all granted calls waited, together.
    * ``created``, ``create_ms``: sandboxes made and the time that took, together.
    * ``create_failures``: attempts that made none. ``found_dead``: unused ones that died by themselves.
    * ``retired``: unused ones given up (age, new image, surplus, room, no calls).
    * ``destroyed``: ends confirmed. ``destroy_failures``: ends not confirmed at an attempt, repeated later.
    * ``orphans_reaped``: sandboxes of dead servers removed.
    * ``phase``; ``last_error`` is the last failure's text; ``retry_seconds`` the time until a call may try again.
    """

    creating: int
    idle: int
    leased: int
    destroying: int
    waiting: int
    granted: int
    granted_at_once: int
    wait_ms: float
    created: int
    create_ms: float
    create_failures: int
    found_dead: int
    retired: int
    destroyed: int
    destroy_failures: int
    orphans_reaped: int
    phase: PoolPhase
    last_error: str | None
    retry_seconds: float | None


def timeout_text(python: str, timeout: float, stats: PoolStats, max_total: int, activity: str | None) -> str:
    """Why a call that waited ``timeout`` seconds got nothing, and what to do."""
    text = (
        f"no sandbox with Python {python} became free within {timeout:g} s: {stats.leased} in use, "
        f"{stats.creating} being made, {stats.destroying} being removed (together at most {max_total}), "
        f"{stats.waiting} more calls waiting"
    )
    if activity:
        text += f"; at present: {activity}"
    if stats.last_error:
        text += f"; last error: {stats.last_error}"
    return text + "; call again later, or raise --max-sandboxes"
