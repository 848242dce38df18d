"""The pool's decisions: inputs -> actions. No clock, no chance, no await of its own.

A sandbox is in exactly one of four sets, and holds a place (of ``max_total``) in each of them::

    creating ──created──> idle ──Grant──> leased ──finished──> ending ──destroyed──> (gone)
        └──failed──> (gone)  └──died, retired──────────────────^

A call waits in the queue until a sandbox of its version is idle, and never while one is.
Every input ends in :meth:`PoolState._settle`, which looks at the whole and returns what is to be done.
"""

import math
from collections.abc import Callable, Iterable
from enum import Enum, auto

from python_exec_sandbox.pool.absent import AbsentPythons
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
from python_exec_sandbox.pool.circuit import Circuit
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.endings import Endings
from python_exec_sandbox.pool.plan import WarmPlan
from python_exec_sandbox.pool.records import Attempt, Census, Member
from python_exec_sandbox.pool.stats import Counters, PoolPhase

_AGE_SPREAD = 0.25
"""Share of ``max_age`` over which the ages of sandboxes are spread."""
_CLOSED_TEXT = "the server is shutting down and starts no more scripts"


def _counted(names: Iterable[str]) -> dict[str, int]:
    """How often each is there. Every input counts some, and ``Counter`` takes five times as long for a few."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


class _Mode(Enum):
    SERVING = auto()
    DRAINING = auto()
    CLOSING = auto()


class PoolState:
    """Who has which sandbox, who waits, and what is to be done next.

    Each input method takes ``now`` (monotonic seconds, never going back) and returns the actions to carry
    out, in order. ``jitter`` returns a number from 0 to below 1.
    """

    def __init__(self, config: PoolConfig, jitter: Callable[[], float]) -> None:
        self._config = config
        self._jitter = jitter
        self._circuit = Circuit(config, jitter)
        self._plan = WarmPlan(config)
        self._absent = AbsentPythons(config.absent_time)
        self._mode = _Mode.SERVING
        self._asleep = not config.fill_on_open
        self._creating: dict[int, Attempt] = {}
        self._idle: dict[str, Member] = {}
        self._leased: dict[str, Member] = {}
        self._ending = Endings(config, self._background_at)
        self._waiting: dict[int, str] = {}
        self._attempts = 0
        self._generation = 0
        self._last_call = float("-inf")
        self._quiet_since = float("-inf")
        self._fill_since: float | None = None
        self._settled_at = float("-inf")
        self._out: list[Action] = []
        self.counters = Counters()
        self.last_error: str | None = None

    # What can be asked

    @property
    def idle_ids(self) -> tuple[str, ...]:
        return tuple(self._idle)

    @property
    def phase(self) -> PoolPhase:
        if self._mode is not _Mode.SERVING:
            return PoolPhase.DRAINING if self._mode is _Mode.DRAINING else PoolPhase.CLOSED
        if self._circuit.phase is not PoolPhase.RUNNING:
            return self._circuit.phase
        return PoolPhase.ASLEEP if self._asleep else PoolPhase.RUNNING

    @property
    def total(self) -> int:
        return len(self._creating) + len(self._idle) + len(self._leased) + len(self._ending)

    @property
    def busy(self) -> bool:
        """Whether a call waits or runs."""
        return bool(self._waiting or self._leased)

    def census(self) -> Census:
        return Census(
            creating={attempt: record.python for attempt, record in self._creating.items()},
            idle={sandbox_id: member.python for sandbox_id, member in self._idle.items()},
            leased=frozenset(self._leased),
            ending=self._ending.census(),
            waiting=dict(self._waiting),
        )

    def retry_seconds(self, now: float) -> float | None:
        """How long until a call may try again; ``None`` while nothing fails."""
        if self._circuit.phase is PoolPhase.RUNNING:
            return None
        return max(0.0, self._circuit.retry_at - now)

    @property
    def wake_at(self) -> float | None:
        """When :meth:`tick` has something to do if nothing else happens before. Later than the last input;
        it may have passed since."""
        return min((at for at in self._moments() if at > self._settled_at), default=None)

    # Inputs

    def open(self, now: float) -> list[Action]:
        self._last_call = now
        return self._settle(now)

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        return self._settle(now)

    def request(self, ticket: int, python: str, now: float) -> list[Action]:
        """A call wants a sandbox of this version; it is granted or refused in the answer, or waits."""
        if self._mode is not _Mode.SERVING:
            return [Refuse(ticket, RefusalKind.CLOSED, _CLOSED_TEXT)]
        self._last_call = now
        self._asleep = False
        self._plan.asked(python, now)
        refusal = None if self._oldest_idle(python) else self._refusal(ticket, python, now)
        if refusal:
            self._out.append(refusal)
        else:
            self._waiting[ticket] = python
        return self._settle(now)

    def withdraw(self, ticket: int, now: float) -> list[Action]:
        """The call was cancelled or has waited long enough."""
        self._waiting.pop(ticket, None)
        return self._settle(now)

    def unclaimed(self, sandbox_id: str, now: float, *, alive: bool) -> list[Action]:
        """Nobody took a granted sandbox, it was never used: it is the next call's."""
        member = self._leased.pop(sandbox_id, None)
        if member is not None:
            self._idle[sandbox_id] = member
            if not alive:
                return self.died(sandbox_id, now)
            self._retire_if_outdated(member, now)
        return self._settle(now)

    def finished(self, sandbox_id: str, now: float) -> list[Action]:
        """A run is over, its sandbox used up. Nothing happens for a sandbox that isn't in use."""
        if self._leased.pop(sandbox_id, None) is None:
            return []
        self._last_call = now
        self._quiet_since = now
        self._circuit.proved()
        self._ending.add(sandbox_id, now)
        return self._settle(now)

    def created(self, attempt: int, sandbox_id: str, now: float, *, alive: bool) -> list[Action]:
        record = self._creating.pop(attempt)
        self.counters.created += 1
        self.counters.create_ms += (now - record.started_at) * 1000
        lifetime = self._config.max_age * (1 - _AGE_SPREAD * self._jitter())
        member = Member(sandbox_id, record.python, record.generation, record.round, now, now + lifetime)
        self._idle[sandbox_id] = member
        if self._mode is _Mode.CLOSING:
            self._retire(sandbox_id, RetireReason.QUIET, now)
        elif not alive:
            return self.died(sandbox_id, now)
        else:
            self._circuit.succeeded(now)
            self._absent.discard(record.python)
            self._retire_if_outdated(member, now)
        return self._settle(now)

    def create_failed(self, attempt: int, cause: str, now: float, *, lasting: bool) -> list[Action]:
        """``lasting``: further attempts are bound to fail until a person does something."""
        record = self._creating.pop(attempt)
        self.counters.create_failures += 1
        self._creation_failed(record.round, cause, now, lasting=lasting)
        return self._settle(now)

    def python_unavailable(self, attempt: int, cause: str, now: float) -> list[Action]:
        """Sandboxes lack this attempt's version: only calls for it are refused, the circuit isn't concerned."""
        record = self._creating.pop(attempt)
        self.counters.create_failures += 1
        self.last_error = cause
        if record.generation == self._generation:
            self._absent.add(record.python, cause, now)
            self._refuse_absent(now)
        return self._settle(now)

    def create_abandoned(self, attempt: int, now: float) -> list[Action]:
        self._creating.pop(attempt)
        return self._settle(now)

    def died(self, sandbox_id: str, now: float) -> list[Action]:
        """A sandbox ended by itself. Only unused ones matter here: a run tells of its own sandbox's loss."""
        member = self._idle.pop(sandbox_id, None)
        if member is None:
            return []
        self.counters.found_dead += 1
        self._ending.add(sandbox_id, now)
        age = now - member.ready_at
        if age < self._config.young_time:
            cause = f"sandbox {sandbox_id} ended by itself {age:.1f} s after it was ready"
            self._creation_failed(member.round, cause, now, lasting=False)
        return self._settle(now)

    def destroyed(self, sandbox_id: str, now: float) -> list[Action]:
        self._ending.confirmed(sandbox_id)
        self.counters.destroyed += 1
        return self._settle(now)

    def destroy_failed(self, sandbox_id: str, cause: str, now: float) -> list[Action]:
        """The end could not be confirmed: the sandbox keeps its place, it may well be there."""
        self._ending.failed(sandbox_id, now)
        self.counters.destroy_failures += 1
        self.last_error = cause
        return self._settle(now)

    def new_generation(self, now: float) -> list[Action]:
        """The image changed: unused sandboxes of the old one are given up, those in the making on arrival."""
        self._generation += 1
        self._absent.clear()
        for member in list(self._idle.values()):
            self._retire_if_outdated(member, now)
        return self._settle(now)

    def drain(self, now: float) -> list[Action]:
        """No new calls; those waiting and running go on."""
        if self._mode is _Mode.SERVING:
            self._mode = _Mode.DRAINING
        return self._settle(now)

    def close(self, now: float) -> list[Action]:
        """Everything ends now, running scripts too."""
        if self._mode is _Mode.CLOSING:
            return []
        self._mode = _Mode.CLOSING
        self._out += [Refuse(ticket, RefusalKind.CLOSED, _CLOSED_TEXT) for ticket in self._waiting]
        self._out += [Abandon(attempt) for attempt in self._creating]
        self._waiting.clear()
        for sandbox_id in [*self._leased, *self._idle]:
            self._ending.add(sandbox_id, now)
        self._leased.clear()
        self._idle.clear()
        return self._settle(now)

    # The one place where it is decided what happens next

    def _settle(self, now: float) -> list[Action]:
        self._settled_at = now
        lacking = 0
        if self._mode is not _Mode.CLOSING:
            self._serve()
            self._doze(now)
            awake = self._mode is _Mode.SERVING and not self._asleep
            targets = self._plan.targets(now) if awake else {}
            self._retire_unwanted(targets, now)
            lacking = self._create_for_waiters(now)
            self._make_room(lacking, now)
            self._fill(targets, now)
        closing = self._mode is _Mode.CLOSING
        self._out += [Destroy(sandbox_id) for sandbox_id in self._ending.begin(now, lacking, closing=closing)]
        out, self._out = self._out, []
        return out

    def _serve(self) -> None:
        for ticket, python in list(self._waiting.items()):
            member = self._oldest_idle(python)
            if member is not None:
                del self._waiting[ticket]
                self._leased[member.sandbox_id] = self._idle.pop(member.sandbox_id)
                self._out.append(Grant(ticket, member.sandbox_id))

    def _doze(self, now: float) -> None:
        if not self.busy and now >= self._last_call + self._config.idle_timeout:
            self._asleep = True

    def _retire_unwanted(self, targets: dict[str, int], now: float) -> None:
        held = _counted(member.python for member in self._idle.values())
        spare = RetireReason.SURPLUS if targets else RetireReason.QUIET
        for member in sorted(
            self._idle.values(), key=lambda member: (now < member.expires_at, member.ready_at)
        ):
            expired = now >= member.expires_at
            if held[member.python] > targets.get(member.python, 0):
                self._retire(member.sandbox_id, RetireReason.AGE if expired else spare, now)
                held[member.python] -= 1
            elif expired and self._blocks_its_replacement():
                self._retire(member.sandbox_id, RetireReason.AGE, now)
                held[member.python] -= 1

    def _create_for_waiters(self, now: float) -> int:
        """Begin what the queue needs, oldest call first; returns how many calls lack a place for it."""
        coming = self._coming()
        uncovered = []
        for python in self._waiting.values():
            if coming.get(python, 0) > 0:
                coming[python] -= 1
            else:
                uncovered.append(python)
        started = 0
        while started < len(uncovered) and self._may_create(now, needed=True):
            self._create(uncovered[started], now)
            started += 1
        if not self._circuit.allows(now, needed=True):
            return 0
        return max(0, len(uncovered) - started - (self._config.max_total - self.total))

    def _make_room(self, lacking: int, now: float) -> None:
        oldest_first = sorted(self._idle.values(), key=lambda member: member.ready_at)
        for member in oldest_first[: max(0, lacking - self._ending.soon_free)]:
            self._retire(member.sandbox_id, RetireReason.ROOM, now)

    def _fill(self, targets: dict[str, int], now: float) -> None:
        missing = self._missing(targets, now)
        if not missing:
            self._fill_since = None
            return
        if self._fill_since is None:
            self._fill_since = now
        if now >= self._background_at(self._fill_since):
            while missing and self._may_create(now, needed=False):
                self._create(missing.pop(0), now)

    def _missing(self, targets: dict[str, int], now: float) -> list[str]:
        """Versions to make so that the pool is full, one entry each; none while a call lacks a sandbox."""
        spare = self._coming()
        for python in self._waiting.values():
            spare[python] = spare.get(python, 0) - 1
            if spare[python] < 0:
                return []
        for member in self._idle.values():
            if now < member.expires_at:
                spare[member.python] = spare.get(member.python, 0) + 1
        return [
            python
            for python, target in targets.items()
            if self._absent.text(python, now) is None
            for _ in range(target - spare.get(python, 0))
        ]

    # Smaller steps

    def _refusal(self, ticket: int, python: str, now: float) -> Refuse | None:
        if absent := self._absent.text(python, now):
            return Refuse(ticket, RefusalKind.PYTHON, absent)
        if len(self._waiting) >= self._config.max_waiting:
            wait = "call waits" if len(self._waiting) == 1 else "calls wait"
            text = (
                f"{len(self._waiting)} {wait} for a sandbox already and the most allowed is "
                f"{self._config.max_waiting}; call again when some have ended, or raise --max-waiting"
            )
            return Refuse(ticket, RefusalKind.BUSY, text)
        if not self._creating and not self._may_hope(now):
            return Refuse(ticket, RefusalKind.UNAVAILABLE, self._unavailable_text(now))
        return None

    def _may_hope(self, now: float) -> bool:
        """Whether the next attempt to make a sandbox is soon enough for a call to wait for it."""
        soon = now + self._config.worth_waiting
        return self._circuit.phase is not PoolPhase.OPEN or self._circuit.allows(soon, needed=True)

    def _unavailable_text(self, now: float) -> str:
        """With the time of the next attempt, unless it is over before anyone can call again."""
        text = f"no sandbox can be made at present: {self._circuit.cause}"
        seconds = math.ceil(self._circuit.retry_at - now)
        return f"{text} (not tried again for {seconds} s)" if seconds > 1 else text

    def _refuse_absent(self, now: float) -> None:
        for ticket, python in tuple(self._waiting.items()):
            if absent := self._absent.text(python, now):
                del self._waiting[ticket]
                self._out.append(Refuse(ticket, RefusalKind.PYTHON, absent))

    def _creation_failed(self, began_in_round: int, cause: str, now: float, *, lasting: bool) -> None:
        self.last_error = cause
        news = self._circuit.failed(now, began_in_round, cause, lasting=lasting)
        if self._circuit.phase is PoolPhase.OPEN and (news or not self._may_hope(now)):
            text = self._unavailable_text(now)
            self._out += [Refuse(ticket, RefusalKind.UNAVAILABLE, text) for ticket in self._waiting]
            self._waiting.clear()

    def _oldest_idle(self, python: str) -> Member | None:
        fitting = (member for member in self._idle.values() if member.python == python)
        return min(fitting, key=lambda member: member.ready_at, default=None)

    def _coming(self) -> dict[str, int]:
        return _counted(
            made.python for made in self._creating.values() if made.generation == self._generation
        )

    def _may_create(self, now: float, *, needed: bool) -> bool:
        free = self.total < self._config.max_total and len(self._creating) < self._circuit.max_creating
        return free and self._circuit.allows(now, needed=needed)

    def _create(self, python: str, now: float) -> None:
        self._attempts += 1
        self._creating[self._attempts] = Attempt(python, self._generation, self._circuit.round, now)
        self._out.append(Create(self._attempts, python))

    def _blocks_its_replacement(self) -> bool:
        """An expired sandbox is replaced first and let go then; where all places are taken, and no
        replacement is on its way, it goes before."""
        return self.total >= self._config.max_total and not self._ending and not self._creating

    def _retire_if_outdated(self, member: Member, now: float) -> None:
        if member.generation != self._generation:
            self._retire(member.sandbox_id, RetireReason.GENERATION, now)

    def _retire(self, sandbox_id: str, reason: RetireReason, now: float) -> None:
        del self._idle[sandbox_id]
        self._ending.add(sandbox_id, now)
        self.counters.retired += 1
        self._out.append(Retired(sandbox_id, reason))

    def _background_at(self, since: float) -> float:
        """When work that was wanted ``since`` and that no call waits for may begin: it would slow down
        scripts that run and creations that calls wait for."""
        at_latest = since + self._config.settle_time
        return at_latest if self.busy else min(at_latest, self._quiet_since + self._config.quiet_time)

    def _moments(self) -> list[float]:
        """All instants at which a decision may change by the mere passing of time."""
        moments = self._ending.moments()
        if self._mode is _Mode.CLOSING:
            return moments
        moments += [member.expires_at for member in self._idle.values()]
        moments += self._plan.moments()
        moments += self._absent.moments()
        if self._fill_since is not None:
            moments += [max(self._background_at(self._fill_since), self._circuit.probe_at)]
        if self._waiting:
            moments += [self._circuit.retry_at]
        if not self._asleep and not self.busy:
            moments += [self._last_call + self._config.idle_timeout]
        return moments
