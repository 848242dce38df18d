"""What the tools stand on, started behind the server's back.

``initialize`` must not wait for an engine, nor for the imports that talking to one takes: so the backend is
opened by a task of its own, after the client has its list of tools, or when a call needs it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from logging import getLogger
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.abc

from python_exec_sandbox.api.progress import Reporter
from python_exec_sandbox.errors import PoolClosed, PoolUnavailable, SandboxError
from python_exec_sandbox.model.facts import DriverFacts
from python_exec_sandbox.pool.stats import PoolStats
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult

if TYPE_CHECKING:
    from python_exec_sandbox.run.resolving import Resolver
    from python_exec_sandbox.script.intake import Examined  # imports packaging, which serving starts without

logger = getLogger(__name__)

# Clients ask for the tools at once; one that doesn't for so long will not be slowed by what follows.
LONGEST_REST_SECONDS = 1.0

# Between the list of tools being ready and the start of imports, so that they don't meet on the way out.
REST_AFTER_LISTING_SECONDS = 0.05

# Opening takes imports only, a second on a slow machine; an engine is not asked.
OPEN_SECONDS = 30.0

# The server has 5 s to end; the rest is for what surrounds this.
CLOSE_SECONDS = 4.0


class RunsScripts(Protocol):
    """The part of the executor that the tools use; see :class:`~python_exec_sandbox.run.executor.Executor`."""

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        """Run one script."""

    async def examine(self, request: RunRequest) -> "Examined":
        """What can be told of a script without a sandbox."""


async def nothing_to_tell() -> DriverFacts:
    """The facts of a driver that has none."""
    return DriverFacts()


@dataclass(frozen=True, slots=True)
class Backend:
    """An open backend.

    ``activity`` tells what keeps it from making sandboxes, or ``None``; ``pythons`` are the versions that scripts
    can choose, as far as that is known before one runs; ``stats`` the pool's numbers of now,
    if it has a pool; ``facts`` what the driver tells of itself, asked anew each time: it raises a
    ``SandboxError`` when the engine doesn't answer, and may take as long as that takes to find out.
    ``resolver`` tells versions of packages, where a store has them installed.
    ``has_fallback`` says that scripts run on the machine itself then, as the person allowed.
    """

    executor: RunsScripts
    activity: Callable[[], str | None]
    pythons: tuple[str, ...] = ()
    facts: Callable[[], Awaitable[DriverFacts]] = nothing_to_tell
    stats: Callable[[], PoolStats | None] = lambda: None
    has_fallback: bool = False
    resolver: "Resolver | None" = None


OpenBackend = Callable[[], AbstractAsyncContextManager[Backend]]


@dataclass(slots=True, eq=False)
class Runtime:
    """Opens the backend once it is wanted, holds it open, and closes it in bounded time."""

    open_backend: OpenBackend
    reporter: Reporter = field(default_factory=Reporter)
    """Tells the client of the progress of its calls while they are served."""
    stopping: anyio.Event = field(default_factory=anyio.Event)
    """Set when calls are no longer served."""
    closed: anyio.Event = field(default_factory=anyio.Event)
    """Set once nothing of the backend is left to close."""
    entered: bool = False
    _wanted: anyio.Event = field(default_factory=anyio.Event)
    _settled: anyio.Event = field(default_factory=anyio.Event)
    _rest: anyio.CancelScope = field(init=False)
    _holding: anyio.CancelScope = field(init=False)
    _backend: Backend | None = None
    _failure: SandboxError | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The time in which calls are served. Entering costs nothing; leaving takes at most
        ``CLOSE_SECONDS``, also when cancelled."""
        self._rest = anyio.CancelScope(deadline=anyio.current_time() + LONGEST_REST_SECONDS)
        self._holding = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            self.entered = True
            tasks.start_soon(self._hold)
            telling = anyio.CancelScope()
            tasks.start_soon(self._tell, telling)
            try:
                yield
            finally:
                self.stopping.set()
                self._wanted.set()
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await self.closed.wait()
                self._holding.cancel()
                telling.cancel()

    async def backend(self) -> Backend:
        """The open backend.

        Raises:
            SandboxError: it could not be opened, or is closing.
        """
        self._wanted.set()
        if not self._settled.is_set():
            with anyio.move_on_after(OPEN_SECONDS):
                await self._settled.wait()
        if self.stopping.is_set():
            raise PoolClosed("the server is shutting down; nothing was run")
        if self._failure is not None:
            raise self._failure
        if self._backend is None:
            raise PoolUnavailable(f"sandboxes could not be set up within {OPEN_SECONDS:g} s; try again")
        return self._backend

    def want_soon(self) -> None:
        """Let the backend be opened in a moment; what is being answered goes first."""
        self._rest.deadline = min(self._rest.deadline, anyio.current_time() + REST_AFTER_LISTING_SECONDS)

    async def _tell(self, scope: anyio.CancelScope) -> None:
        with scope:
            await self.reporter.run()

    async def _hold(self) -> None:
        try:
            with self._rest:
                await self._wanted.wait()
            with self._holding:
                if not self.stopping.is_set():
                    await self._hold_open()
        finally:
            self._settled.set()
            self.closed.set()

    async def _hold_open(self) -> None:
        try:
            async with self.open_backend() as backend:
                self._backend = backend
                self._settled.set()
                await self.stopping.wait()
        except SandboxError as error:
            logger.warning("no sandboxes: %s", error)
            self._failure = error
        except Exception as error:  # whatever failed, the server answers on and says so in each call
            logger.exception("the backend failed")
            self._failure = PoolUnavailable(f"sandboxes are not available: {error!r}; restart the server")
        finally:
            self._backend = None
