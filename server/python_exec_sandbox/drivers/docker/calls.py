"""Blocking calls in worker threads that can be ended from outside."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from python_exec_sandbox.errors import DriverError, EngineUnreachable

T = TypeVar("T")

# How long a call whose caller was cancelled may go on: a create that succeeds after all is then known.
CANCEL_GRACE_SECONDS = 1.0


class Cuttable(Protocol):
    """A client whose call under way can be ended from another thread."""

    def cut(self) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Cuttable)


class Lender(Protocol[C]):
    """Where a call gets its client from; called in the call's thread."""

    def lend(self, *, long: bool) -> C: ...

    def take_back(self, client: C) -> None: ...

    def translate(self, error: Exception, doing: str) -> DriverError: ...


class Call(Generic[C, T]):
    """One call. Its outcome is kept rather than raised: a task group would wrap an error."""

    def __init__(self, lender: Lender[C], doing: str, work: Callable[[C], T], *, long: bool) -> None:
        self._lender = lender
        self._doing = doing
        self._work = work
        self._long = long
        self._results: list[T] = []
        self._error: DriverError | None = None
        self._client: C | None = None
        self._cut = False

    async def run(self, limiter: anyio.CapacityLimiter) -> T:
        """Do the work in a thread of ``limiter``, with a client that no other call uses meanwhile.

        The thread is never abandoned. When cancelled, the call gets :data:`CANCEL_GRACE_SECONDS` and is
        cut then.
        """
        ended = anyio.Event()
        async with anyio.create_task_group() as watch:
            watch.start_soon(self._cut_when_cancelled, ended)
            try:
                await anyio.to_thread.run_sync(self._work_in_thread, limiter=limiter, abandon_on_cancel=False)
            finally:
                ended.set()
            watch.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint_if_cancelled()  # what a cut call says is not what its caller asked
        if self._error is not None:
            raise self._error
        return self._results.pop()

    async def _cut_when_cancelled(self, ended: anyio.Event) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(CANCEL_GRACE_SECONDS, shield=True):
                await ended.wait()
            if not ended.is_set():
                self._end_from_outside()

    def _end_from_outside(self) -> None:
        # In this order, and the opposite one in _give_back: a client that was given back is never cut.
        self._cut = True
        if (client := self._client) is not None:
            client.cut()

    def _work_in_thread(self) -> None:
        try:
            self._client = client = self._lender.lend(long=self._long)
            if self._cut:
                client.cut()
            self._results.append(self._work(client))
        except Exception as error:  # noqa: BLE001  # the SDK lets errors of four libraries through
            self._error = self._lender.translate(error, self._doing)
            if self._error is not error:
                self._error.__cause__ = error
        self._give_back()

    def _give_back(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        if self._long or self._cut or isinstance(self._error, EngineUnreachable):
            client.close()
        else:
            self._lender.take_back(client)
