"""Each of these bugs, put into a copy of the pool's pure modules, is found by a table or by a random life."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from python_exec_sandbox.pool.state import PoolState
from tests.pool.machine import PoolLife
from tests.pool.tables import TABLES, check

PACKAGE = "python_exec_sandbox.pool"


@dataclass(frozen=True)
class Bug:
    """``old`` stands once in the module and is replaced by ``new``."""

    module: str
    old: str
    new: str


BUGS = {
    "a used sandbox goes back to idle": Bug(
        "state",
        "self._ending.add(sandbox_id, now)\n        return self._settle(now)\n\n    def created",
        "self._idle[sandbox_id] = Member(sandbox_id, '3.13', self._generation, 0, now, now + 999)\n"
        "        return self._settle(now)\n\n    def created",
    ),
    "the newest call is served first": Bug(
        "state",
        "for ticket, python in list(self._waiting.items()):",
        "for ticket, python in reversed(list(self._waiting.items())):",
    ),
    "any version will do": Bug("state", "if member.python == python)", "if True)"),
    "the newest sandbox is given first": Bug(
        "state",
        "return min(fitting, key=lambda member: member.ready_at, default=None)",
        "return max(fitting, key=lambda member: member.ready_at, default=None)",
    ),
    "those being destroyed hold no place": Bug("state", " + len(self._leased) + len(self._ending)", " + len(self._leased)"),
    "those in the making hold no place": Bug("state", "return len(self._creating) + len(self._idle)", "return len(self._idle)"),
    "the bound of creations is one too high": Bug(
        "state", "len(self._creating) < self._circuit.max_creating", "len(self._creating) <= self._circuit.max_creating"
    ),
    "the bound of places is one too high": Bug(
        "state", "free = self.total < self._config.max_total", "free = self.total <= self._config.max_total"
    ),
    "the queue has no bound": Bug("state", "if len(self._waiting) >= self._config.max_waiting:", "if False:"),
    "the queue is one too long": Bug(
        "state", "if len(self._waiting) >= self._config.max_waiting:", "if len(self._waiting) > self._config.max_waiting:"
    ),
    "a withdrawn call stays in the queue": Bug("state", "self._waiting.pop(ticket, None)", "pass"),
    "two creations for one call": Bug(
        "state", "if coming.get(python, 0) > 0:", "if coming.get(python, 0) > 99:"
    ),
    "an old image's creation counts for a call": Bug(
        "state", "made.generation == self._generation", "made.generation <= self._generation"
    ),
    "an old image's sandbox is kept": Bug("state", "if member.generation != self._generation:", "if False:"),
    "no room is made for another version": Bug("state", "self._make_room(lacking, now)", "pass"),
    "more idle ones go than places are needed": Bug("state", "lacking - self._ending.soon_free", "lacking"),
    "a stuck destruction counts as a place to come": Bug(
        "endings", "ending.retry_at is None for ending", "ending.since >= 0 for ending"
    ),
    "filling never starts": Bug("state", "self._fill(targets, now)", "pass"),
    "filling goes on while scripts run": Bug(
        "state", "return at_latest if self.busy else", "return self._quiet_since if self.busy else"
    ),
    "filling takes places that calls need": Bug("state", "if spare[python] < 0:", "if False:"),
    "the settling time has no end": Bug("state", "since + self._config.settle_time", "since + 9999.0"),
    "no moment of calm after a run": Bug("state", "self._quiet_since + self._config.quiet_time", "self._quiet_since"),
    "the end of a run is not noted": Bug("state", "self._quiet_since = now\n", "pass\n"),
    "no timer for filling": Bug(
        "state",
        "moments += [max(self._background_at(self._fill_since), self._circuit.probe_at)]",
        "pass",
    ),
    "no timer for the next attempt": Bug("state", "moments += [self._circuit.retry_at]", "pass"),
    "no timer for destroying": Bug("state", "moments = self._ending.moments()", "moments: list[float] = []"),
    "no timer for sleep": Bug("state", "if not self._asleep and not self.busy:\n            moments", "if False:\n            moments"),
    "the timer goes by the clock and not by the last input": Bug(
        "state", "if at > self._settled_at)", "if at > self._settled_at + 1.0)"
    ),
    "the pool never sleeps": Bug("state", "self._asleep = True", "pass"),
    "the pool never wakes up": Bug("state", "self._asleep = False", "pass"),
    "the end of a run is no call": Bug(
        "state", "self._last_call = now\n        self._quiet_since", "self._quiet_since"
    ),
    "old ones are not replaced": Bug(
        "state", "if now < member.expires_at:\n                spare", "if True:\n                spare"
    ),
    "an old one goes although its replacement is on its way": Bug(
        "state", "not self._ending and not self._creating", "not self._ending"
    ),
    "all old ones go at once": Bug("state", "not self._ending and not self._creating", "not self._creating"),
    "surplus ones stay": Bug("state", "if held[member.python] > targets.get(member.python, 0):", "if False:"),
    "a dead one stays idle": Bug(
        "state", "member = self._idle.pop(sandbox_id, None)\n        if member is None", "member = self._idle.get(sandbox_id)\n        if member is None"
    ),
    "one that came up dead is given": Bug("state", "elif not alive:", "elif False:"),
    "an unclaimed one is lost": Bug("state", "self._idle[sandbox_id] = member\n            if not alive", "pass\n            if not alive"),
    "young deaths are no failures": Bug("state", "if age < self._config.young_time:", "if False:"),
    "who waits is not told that the circuit opened": Bug(
        "state", "self._waiting.clear()\n\n    def _oldest", "pass\n\n    def _oldest"
    ),
    "the open circuit lets calls wait": Bug(
        "state", "if not self._creating and not self._may_hope(now):", "if False:"
    ),
    "the open circuit refuses although an attempt is on": Bug(
        "state", "if not self._creating and not self._may_hope(now):", "if not self._may_hope(now):"
    ),
    "the open circuit withholds warm ones": Bug(
        "state", "refusal = None if self._oldest_idle(python) else", "refusal ="
    ),
    "draining takes calls": Bug("state", "if self._mode is not _Mode.SERVING:\n            return [Refuse", "if self._mode is _Mode.CLOSING:\n            return [Refuse"),
    "closing forgets what is in use": Bug("state", "for sandbox_id in [*self._leased, *self._idle]:", "for sandbox_id in [*self._idle]:"),
    "closing forgets who waits": Bug(
        "state", "self._out += [Refuse(ticket, RefusalKind.CLOSED, _CLOSED_TEXT) for ticket in self._waiting]", "pass"
    ),
    "closing waits for what is being made": Bug(
        "state", "self._out += [Abandon(attempt) for attempt in self._creating]", "pass"
    ),
    "closing puts destroying off": Bug("endings", "due = urgent > 0 or closing or", "due = urgent > 0 or"),
    "what comes too late at closing stays": Bug(
        "state", "if self._mode is _Mode.CLOSING:\n            self._retire", "if False:\n            self._retire"
    ),
    "destroyed twice": Bug("endings", "            if ending.busy:\n                continue\n", ""),
    "a place is free before the end is confirmed": Bug("endings", "ending.busy = True", "ending.busy = True\n                self._endings = {**self._endings}; del self._endings[sandbox_id]"),
    "a call that needs the place doesn't hurry destroying": Bug("endings", "due = urgent > 0 or", "due ="),
    "one call hurries all": Bug("endings", "urgent -= due", "pass"),
    "a failed destruction is not repeated": Bug("endings", "due = now >= ending.retry_at", "due = False"),
    "a failed destruction is repeated at once": Bug("endings", "due = now >= ending.retry_at", "due = True"),
    "delays of destroying don't grow": Bug("endings", "min(ending.tries, _MAX_DOUBLINGS)", "0"),
    "a failure is no failure": Bug("circuit", "PoolPhase.OPEN if opens else PoolPhase.FAILING", "PoolPhase.RUNNING"),
    "the circuit never opens": Bug("circuit", "opens = lasting or", "opens = False and"),
    "a lasting cause doesn't open it": Bug("circuit", "opens = lasting or", "opens ="),
    "attempts side by side count twice": Bug("circuit", "if began_in_round < self.round:", "if False:"),
    "success doesn't close it": Bug("circuit", "self.phase = PoolPhase.RUNNING\n            self._sound", "self._sound"),
    "many attempts at a time while failing": Bug(
        "circuit", "if self.phase is PoolPhase.RUNNING else 1", "if self.phase is PoolPhase.RUNNING else 2"
    ),
    "delays of attempts don't grow": Bug("circuit", "min(self._failures - 1, _MAX_DOUBLINGS)", "0"),
    "failures are never forgotten": Bug("circuit", "if self.phase is PoolPhase.RUNNING:\n            self._failures = 0", "if False:\n            self._failures = 0"),
    "no call waits for the next attempt": Bug("state", "soon = now + self._config.worth_waiting", "soon = now"),
    "an older attempt's failure refuses who waits for the next": Bug("state", "(news or not self._may_hope(now))", "True"),
    "who waited for an attempt that failed waits on": Bug("state", "(news or not self._may_hope(now))", "news"),
    "a call waits as long as filling": Bug("circuit", "now + min(delay, self._config.max_call_delay)", "now + delay"),
    "filling tries as often as calls": Bug("circuit", "self.probe_at = now + delay", "self.probe_at = now"),
    "an absent version's calls go on waiting": Bug("state", "            self._refuse_absent(now)\n", ""),
    "an absent version is tried again at once": Bug("state", "if absent := self._absent.text(python, now):\n            return", "if False:\n            return"),
    "an absent version is filled without end": Bug("state", "if self._absent.text(python, now) is None", "if True"),
    "an absent version counts against all": Bug(
        "state",
        "            self._refuse_absent(now)\n",
        "            self._refuse_absent(now)\n            self._creation_failed(record.round, cause, now, lasting=True)\n",
    ),
    "an old image's lack of a version counts": Bug("state", "if record.generation == self._generation:", "if True:"),
    "a new image is believed to lack the same versions": Bug("state", "self._absent.clear()", "pass"),
    "no timer for absent versions": Bug("state", "moments += self._absent.moments()", "pass"),
    "an absent version is absent for ever": Bug("absent", "if absence is None or now >= absence.until:", "if absence is None:"),
    "a version that was made is still absent": Bug("absent", "self._absences.pop(python, None)", "pass"),
    "versions are never forgotten": Bug("plan", "and now < self._forget_at(python)", ""),
    "versions without bound are kept warm": Bug(
        "plan", "if len(self._asked_at) > self._config.max_other_pythons:", "if False:"
    ),
    "more is wanted warm than there are places": Bug("plan", "if room > 0 and", "if"),
}  # fmt: skip


def _load(name: str, source: str) -> ModuleType:
    """A module of its own from this text; registered while it is made, as dataclasses look it up."""
    module = ModuleType(f"seeded_bug_{name}")
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, module.__name__, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module


@contextmanager
def broken(bug: Bug) -> Iterator[type[PoolState]]:
    """The state machine's class with this bug in it."""
    original = importlib.import_module(f"{PACKAGE}.{bug.module}")
    source = Path(str(original.__file__)).read_text(encoding="utf-8")
    assert source.count(bug.old) == 1, f"stands {source.count(bug.old)} times in {bug.module}.py: {bug.old}"
    changed = _load(bug.module, source.replace(bug.old, bug.new))
    state = changed
    if bug.module != "state":
        path = Path(str(importlib.import_module(f"{PACKAGE}.state").__file__))
        state = _load("state", path.read_text(encoding="utf-8"))
        for name, value in vars(changed).items():
            if isinstance(value, type) and value.__module__ == changed.__name__ and hasattr(state, name):
                setattr(state, name, value)
    yield state.PoolState


def found_by_tables(state_class: type[PoolState]) -> bool:
    for table in TABLES.values():
        try:
            check(table, state_class)
        except (AssertionError, LookupError, TypeError):
            return True
    return False


def found_by_lives(state_class: type[PoolState]) -> bool:
    """The same random lives every time, so that this can't be luck."""
    life = type("BrokenLife", (PoolLife,), {"state_class": state_class})
    try:
        run_state_machine_as_test(
            life,
            settings=settings(
                max_examples=150,
                stateful_step_count=30,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
                print_blob=False,
            ),
        )
    except (AssertionError, LookupError, TypeError):
        return True
    return False


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_found(name: str) -> None:
    with broken(BUGS[name]) as state_class:
        assert found_by_tables(state_class) or found_by_lives(state_class)


@pytest.mark.parametrize("module", ["state", "endings", "circuit", "plan", "absent"])
def test_a_copy_without_a_bug_passes(module: str) -> None:
    same = {"absent": "from dataclasses import dataclass"}.get(
        module, "from python_exec_sandbox.pool.config import PoolConfig"
    )
    with broken(Bug(module, same, same)) as state_class:
        assert state_class is not PoolState
        assert not found_by_tables(state_class)
