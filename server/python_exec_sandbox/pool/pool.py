"""The pool: warm sandboxes, made ahead, each given away once.

:class:`PoolState` decides, this module acts. Whatever happens, happens in tasks of the pool's own: a call
that is cancelled only gives back its place in the queue.
"""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count
from types import TracebackType
from typing import Self, TypeVarTuple, assert_never

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from python_exec_sandbox.drivers.base import Driver, Sandbox
from python_exec_sandbox.errors import (
    ConfigurationError,
    CreateFailed,
    DriverError,
    EngineUnreachable,
    ImageUnavailable,
    PoolBusy,
    PoolClosed,
    PoolError,
    PoolTimeout,
    PoolUnavailable,
    PythonUnavailable,
)
from python_exec_sandbox.pool.actions import (
    Abandon,
    Action,
    Create,
    Destroy,
    Grant,
    RefusalKind,
    Refuse,
    Retired,
)
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.lease import Call, Lease
from python_exec_sandbox.pool.observer import NO_OBSERVER, PoolObserver
from python_exec_sandbox.pool.reaper import reap_forever
from python_exec_sandbox.pool.state import PoolState
from python_exec_sandbox.pool.stats import PoolPhase, PoolStats, timeout_text
from python_exec_sandbox.pool.vitals import Vitals

_log = logging.getLogger(__name__)

_LASTING = (EngineUnreachable, ImageUnavailable, ConfigurationError)
"""Failures that a second attempt doesn't mend: a person must not wait through three to learn of them."""

_Args = TypeVarTuple("_Args")

_REFUSALS: dict[RefusalKind, type[PoolError]] = {
    RefusalKind.BUSY: PoolBusy,
    RefusalKind.UNAVAILABLE: PoolUnavailable,
    RefusalKind.PYTHON: PoolUnavailable,
    RefusalKind.CLOSED: PoolClosed,
}


class Pool:
    """Warm sandboxes for calls::

        async with Pool(driver, PoolConfig()) as pool:
            with await pool.acquire("3.13", timeout=60) as lease:
                report = await lease.sandbox.run(job, watcher)

    Entering starts to fill it and waits for nothing. Leaving destroys every sandbox, those in use too, and
    takes at most ``close_timeout`` seconds, also when it is cancelled. An exception of the body passes
    through as it is.
    """

    def __init__(self, driver: Driver, config: PoolConfig, observer: PoolObserver = NO_OBSERVER) -> None:
        self._driver = driver
        self._config = config
        self._observer = observer
        self._state = PoolState(config, random.random)
        self._phase = self._state.phase
        self._tickets = count(1)
        self._calls: dict[int, Call] = {}
        self._sandboxes: dict[str, Sandbox] = {}
        self._vitals = Vitals(config.check_interval, config.trust_time)
        self._watches: dict[str, anyio.CancelScope] = {}
        self._creations: dict[int, anyio.CancelScope] = {}
        self._last_failure: Exception | None = None
        self._armed_for = float("inf")
        self._scopes: set[anyio.CancelScope] = set()
        self._stopped = False

    # Life

    async def __aenter__(self) -> Self:
        self._rearm = anyio.Event()
        self._changed = anyio.Event()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._start(self._keep_time)
        self._start(reap_forever, self._driver, self._config.reap_interval, self._reaped)
        self._apply(self._state.open(_now()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self._close()
        if isinstance(error, anyio.get_cancelled_exc_class()):
            return await self._tasks.__aexit__(kind, error, trace)
        await self._tasks.__aexit__(None, None, None)
        return None

    def _start(self, work: Callable[[*_Args], Awaitable[None]], *args: *_Args) -> None:
        """Begin a task of the pool. When whatever the pool lives in is cancelled, its tasks go on: they are
        needed once more, to destroy. :meth:`_close` ends them within its bound."""
        scope = anyio.CancelScope(shield=True)
        if self._stopped:
            scope.cancel()
        self._scopes.add(scope)
        self._tasks.start_soon(self._shielded, scope, partial(work, *args))

    async def _shielded(self, scope: anyio.CancelScope, work: Callable[[], Awaitable[None]]) -> None:
        with scope:
            await work()
        self._scopes.discard(scope)

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(self._config.close_timeout):
                self._apply(self._state.close(_now()))
                while self._state.total:
                    await self._changed.wait()
            if self._state.total:
                _log.warning(
                    "%d sandboxes could not be destroyed within %g s; they end by themselves with this server",
                    self._state.total,
                    self._config.close_timeout,
                )
            self._stopped = True
            for scope in list(self._scopes):
                scope.cancel()

    async def drain(self) -> None:
        """Take no more calls and return when the last one that waited or ran has finished.

        Idle sandboxes are destroyed meanwhile. Cancelling it changes nothing but the wait.
        """
        self._apply(self._state.drain(_now()))
        while self._state.busy:
            await self._changed.wait()

    def new_generation(self) -> None:
        """The image changed: no sandbox made from the old one is given out from now on."""
        self._apply(self._state.new_generation(_now()))

    # Calls

    async def acquire(self, python: str, timeout: float) -> Lease:  # noqa: ASYNC109 - the message needs it
        """A sandbox made for this version, for the caller alone, until ``finish``.

        Returns without giving way to other tasks when a warm one is there that gave a sign of life lately,
        else waits its turn for at most ``timeout`` seconds, and two more for a sandbox that fell silent.
        Cancelled or not, nothing is lost: what was meant for this call goes to the next.

        Raises:
            PoolBusy: too many calls wait already.
            PoolTimeout: none became free in time.
            PoolUnavailable: none can be made; names the last cause (also as ``__cause__``), or that
                sandboxes lack this version.
            PoolClosed: the pool drains or is closed.
        """
        await checkpoint_if_cancelled()
        began_at = _now()
        while True:
            call = Call(next(self._tickets))
            sandbox = await self._granted(call, python, began_at + timeout)
            if sandbox is None:
                raise PoolTimeout(
                    timeout_text(python, timeout, self.stats(), self._config.max_total, self._driver.activity)
                )
            if await self._answers(sandbox):
                return self._lease(sandbox, _now() - began_at, at_once=call.at_once)
            await self._check_idle()

    async def _granted(self, call: Call, python: str, deadline: float) -> Sandbox | None:
        """What the state gives this call; ``None`` when it gives nothing in time."""
        self._calls[call.ticket] = call
        try:
            self._drop_dead()
            self._apply(self._state.request(call.ticket, python, _now()))
            call.at_once = call.outcome is not None
            if not call.at_once:
                with anyio.move_on_after(deadline - _now()):
                    await call.wait()
        except BaseException:
            self._give_up(call)
            raise
        if call.outcome is None:
            self._give_up(call)
            return None
        del self._calls[call.ticket]
        if isinstance(call.outcome, PoolError):
            raise call.outcome
        return call.outcome

    async def _answers(self, sandbox: Sandbox) -> bool:
        """Whether a granted sandbox is there for sure. If not, it goes; when the call is cancelled before
        that is known, it is left to the next one."""
        if self._vitals.is_fresh(sandbox):
            return True
        try:
            answered = await self._vitals.ask(sandbox)
        except BaseException:
            self._apply(self._state.unclaimed(sandbox.id, _now(), alive=sandbox.alive))
            raise
        if not answered:
            _log.warning("sandbox %s fell silent before it was used", sandbox.id)
            self._observer.found_dead(sandbox.id)
            self._apply(self._state.unclaimed(sandbox.id, _now(), alive=False))
        return answered

    async def _check_idle(self) -> None:
        """Where one fell silent others may have, for the same reason: ask all at the same time."""
        async with anyio.create_task_group() as tasks:
            for sandbox_id in self._state.idle_ids:
                tasks.start_soon(self._check, self._sandboxes[sandbox_id])

    async def _check(self, sandbox: Sandbox) -> None:
        if not await self._vitals.ask(sandbox):
            self._died(sandbox.id)

    def stats(self) -> PoolStats:
        state, census = self._state, self._state.census()
        return PoolStats(
            creating=len(census.creating),
            idle=len(census.idle),
            leased=len(census.leased),
            destroying=len(census.ending),
            waiting=len(census.waiting),
            **asdict(state.counters),
            phase=state.phase,
            last_error=state.last_error,
            retry_seconds=state.retry_seconds(_now()),
        )

    def _lease(self, sandbox: Sandbox, waited_seconds: float, *, at_once: bool) -> Lease:
        counters = self._state.counters
        counters.granted += 1
        counters.granted_at_once += at_once
        counters.wait_ms += waited_seconds * 1000
        self._observer.granted(sandbox.id, waited_seconds)
        return Lease(sandbox, waited_seconds, partial(self._finished, sandbox.id))

    def _finished(self, sandbox_id: str) -> None:
        self._apply(self._state.finished(sandbox_id, _now()))

    def _give_up(self, call: Call) -> None:
        """Withdraw the call; a sandbox that it was granted meanwhile goes to the next."""
        del self._calls[call.ticket]
        if call.outcome is None:
            self._apply(self._state.withdraw(call.ticket, _now()))
        elif not isinstance(call.outcome, PoolError):
            sandbox = call.outcome
            self._apply(self._state.unclaimed(sandbox.id, _now(), alive=sandbox.alive))

    def _drop_dead(self) -> None:
        """Before a hand-over: what died and whose watcher has not run yet."""
        for sandbox_id in self._state.idle_ids:
            if not self._sandboxes[sandbox_id].alive:
                self._died(sandbox_id)

    def _died(self, sandbox_id: str) -> None:
        if self._is_idle(sandbox_id):
            _log.warning("sandbox %s ended by itself or fell silent before it was used", sandbox_id)
            self._observer.found_dead(sandbox_id)
            self._apply(self._state.died(sandbox_id, _now()))

    def _is_idle(self, sandbox_id: str) -> bool:
        return sandbox_id in self._state.idle_ids

    def _refused(self, kind: RefusalKind, text: str) -> PoolError:
        error = _REFUSALS[kind](text)
        if kind is RefusalKind.UNAVAILABLE:
            error.__cause__ = self._last_failure
        elif kind is RefusalKind.PYTHON:
            error.__cause__ = PythonUnavailable(text)
        return error

    # Acting on what the state decides

    def _apply(self, actions: Sequence[Action]) -> None:
        """Carry out ``actions`` without waiting for anything."""
        for action in actions:
            match action:
                case Grant(ticket, sandbox_id):
                    self._calls[ticket].settle(self._sandboxes[sandbox_id])
                case Refuse(ticket, kind, text):
                    self._calls[ticket].settle(self._refused(kind, text))
                case Create(attempt, python):
                    self._creations[attempt] = anyio.CancelScope()
                    self._start(self._create, attempt, python)
                case Abandon(attempt):
                    self._creations[attempt].cancel()
                case Destroy(sandbox_id):
                    self._start(self._destroy, self._sandboxes[sandbox_id])
                case Retired(sandbox_id, reason):
                    _log.debug("sandbox %s is given up unused: %s", sandbox_id, reason)
                    self._observer.retired(sandbox_id, reason)
                case _:
                    assert_never(action)
        self._after_change()

    def _after_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        phase = self._state.phase
        if phase is not self._phase:
            self._tell_phase(self._phase, phase)
            self._phase = phase
        wake = self._state.wake_at
        if wake is not None and wake < self._armed_for:
            self._rearm.set()

    def _tell_phase(self, before: PoolPhase, after: PoolPhase) -> None:
        _log.info("the pool went from %s to %s", before, after)
        self._observer.phase_changed(before, after)

    async def _create(self, attempt: int, python: str) -> None:
        began_at = _now()
        sandbox: Sandbox | None = None
        error: Exception | None = None
        limit = self._config.create_timeout
        with self._creations[attempt], anyio.move_on_after(limit) as clock:
            try:
                sandbox = await self._driver.create(python)
            except Exception as failure:  # noqa: BLE001 - a fault of a driver must not end the pool
                error = failure
        del self._creations[attempt]
        if clock.cancelled_caught:
            error = CreateFailed(
                f"no sandbox was ready after {limit:g} s, the longest time allowed; given up"
            )
        if sandbox is not None:
            self._created(attempt, sandbox, _now() - began_at)
        elif error is not None:
            self._create_failed(attempt, python, error)
        else:
            self._apply(self._state.create_abandoned(attempt, _now()))

    def _created(self, attempt: int, sandbox: Sandbox, seconds: float) -> None:
        _log.debug("sandbox %s with Python %s is ready after %.3f s", sandbox.id, sandbox.python, seconds)
        self._sandboxes[sandbox.id] = sandbox
        self._vitals.born(sandbox.id)
        self._watches[sandbox.id] = watch = anyio.CancelScope()
        self._start(self._watch, sandbox, watch)
        self._observer.created(sandbox.id, sandbox.python, seconds)
        alive = sandbox.alive
        if not alive:
            self._observer.found_dead(sandbox.id)
        self._apply(self._state.created(attempt, sandbox.id, _now(), alive=alive))

    def _create_failed(self, attempt: int, python: str, error: Exception) -> None:
        trace = None if isinstance(error, DriverError) else error
        _log.warning("no sandbox with Python %s could be made: %s", python, error, exc_info=trace)
        self._last_failure = error
        self._observer.create_failed(python, error)
        cause = str(error) or type(error).__name__
        if isinstance(error, PythonUnavailable):
            self._apply(self._state.python_unavailable(attempt, cause, _now()))
        else:
            lasting = isinstance(error, _LASTING)
            self._apply(self._state.create_failed(attempt, cause, _now(), lasting=lasting))

    async def _watch(self, sandbox: Sandbox, scope: anyio.CancelScope) -> None:
        """Hear at once when it ends by itself, and soon when it falls silent, as long as it exists."""
        with scope:
            while not await self._is_lost(sandbox):
                pass
            self._died(sandbox.id)

    async def _is_lost(self, sandbox: Sandbox) -> bool:
        """Whether it ended before the next check, or is unused and doesn't answer that check."""
        if await self._vitals.ended_meanwhile(sandbox):
            return True
        return self._is_idle(sandbox.id) and not await self._vitals.ask(sandbox) and self._is_idle(sandbox.id)

    async def _destroy(self, sandbox: Sandbox) -> None:
        began_at = _now()
        error: Exception | None = None
        limit = self._config.destroy_timeout
        with anyio.move_on_after(limit) as clock:
            try:
                await sandbox.destroy()
            except Exception as failure:  # noqa: BLE001 - a fault of a driver must not end the pool
                error = failure
        if clock.cancelled_caught:
            error = DriverError(f"its end was not confirmed within {limit:g} s")
        if error is None:
            self._watches.pop(sandbox.id).cancel()
            del self._sandboxes[sandbox.id]
            self._vitals.gone(sandbox.id)
            self._observer.destroyed(sandbox.id, _now() - began_at)
            self._apply(self._state.destroyed(sandbox.id, _now()))
        else:
            self._destroy_failed(sandbox, error)

    def _destroy_failed(self, sandbox: Sandbox, error: Exception) -> None:
        trace = None if isinstance(error, DriverError) else error
        _log.warning("sandbox %s was not destroyed, tried again later: %s", sandbox.id, error, exc_info=trace)
        self._observer.destroy_failed(sandbox.id, error)
        cause = str(error) or type(error).__name__
        self._apply(self._state.destroy_failed(sandbox.id, cause, _now()))

    async def _keep_time(self) -> None:
        """Give the state its tick whenever the passing of time changes something."""
        while True:
            self._rearm = anyio.Event()
            wake = self._state.wake_at
            self._armed_for = float("inf") if wake is None else wake
            with anyio.move_on_after(self._armed_for - _now()):
                await self._rearm.wait()
            if _now() >= self._armed_for:  # else an input has come, and that has settled things itself
                self._apply(self._state.tick(_now()))

    def _reaped(self, count: int) -> None:
        self._state.counters.orphans_reaped += count
        self._observer.orphans_reaped(count)


def _now() -> float:
    return time.monotonic()
