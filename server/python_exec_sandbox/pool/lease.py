"""A call for a sandbox, and the exclusive use of one."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio

from python_exec_sandbox.drivers.base import Sandbox
from python_exec_sandbox.errors import PoolError


class Call:
    """One place in the queue, and what came of it."""

    __slots__ = ("_settled", "at_once", "outcome", "ticket")

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.outcome: Sandbox | PoolError | None = None
        self.at_once = False
        self._settled: anyio.Event | None = None  # most calls are settled before anybody waits

    def settle(self, outcome: Sandbox | PoolError) -> None:
        self.outcome = outcome
        if self._settled is not None:
            self._settled.set()

    async def wait(self) -> None:
        """Return when it is settled. Only one task waits."""
        if self.outcome is None:
            self._settled = anyio.Event()
            await self._settled.wait()


class Lease:
    """One sandbox, for one run, until :meth:`finish`; a context manager that finishes on exit.

    ``waited_seconds`` is how long the call waited for it.
    """

    __slots__ = ("_finish", "_finished", "sandbox", "waited_seconds")

    def __init__(self, sandbox: Sandbox, waited_seconds: float, finish: Callable[[], None]) -> None:
        self.sandbox = sandbox
        self.waited_seconds = waited_seconds
        self._finish = finish
        self._finished = False

    def finish(self) -> None:
        """Give the sandbox up, used or not: it is destroyed in the background and never given out again.

        Returns at once, doesn't raise, and may be called again, also after the pool has closed.
        """
        if not self._finished:
            self._finished = True
            self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
