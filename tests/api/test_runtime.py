from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest

from python_exec_sandbox.api import runtime as runtime_module
from python_exec_sandbox.api.runtime import Backend, Runtime
from python_exec_sandbox.errors import ConfigurationError, PoolClosed, PoolUnavailable
from tests.support.fake_serving import ObedientExecutor

pytestmark = pytest.mark.anyio


class Openings:
    """A backend whose opening and closing can be watched and held up."""

    def __init__(self, error: Exception | None = None, close_seconds: float = 0.0) -> None:
        self.opened = anyio.Event()
        self.closing = anyio.Event()
        self.closed = anyio.Event()
        self.error = error
        self.close_seconds = close_seconds
        self.count = 0

    def __call__(self) -> AbstractAsyncContextManager[Backend]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Backend]:
        self.count += 1
        if self.error is not None:
            raise self.error
        self.opened.set()
        try:
            yield Backend(ObedientExecutor(), lambda: None)
        finally:
            self.closing.set()
            await anyio.sleep(self.close_seconds)
            self.closed.set()


async def test_the_backend_is_opened_by_the_first_call_and_kept() -> None:
    openings = Openings()
    runtime = Runtime(openings)
    async with runtime.opened():
        assert not openings.opened.is_set()
        with anyio.fail_after(2):
            assert await runtime.backend() is await runtime.backend()
    assert openings.count == 1
    assert openings.closed.is_set()
    assert runtime.closed.is_set()


async def test_it_is_opened_soon_after_the_tools_were_listed() -> None:
    openings = Openings()
    runtime = Runtime(openings)
    async with runtime.opened():
        await anyio.lowlevel.checkpoint()
        runtime.want_soon()
        with anyio.fail_after(runtime_module.LONGEST_REST_SECONDS / 2):
            await openings.opened.wait()


async def test_it_is_opened_for_a_client_that_never_lists() -> None:
    openings = Openings()
    async with Runtime(openings).opened():
        with anyio.fail_after(runtime_module.LONGEST_REST_SECONDS + 2):
            await openings.opened.wait()


async def test_without_a_call_nothing_is_opened_and_closing_is_immediate() -> None:
    openings = Openings()
    with anyio.fail_after(0.5):
        async with Runtime(openings).opened():
            pass
    assert openings.count == 0


async def test_closing_waits_for_the_backend_also_when_cancelled() -> None:
    openings = Openings(close_seconds=0.05)
    runtime = Runtime(openings)
    with anyio.CancelScope() as scope:
        async with runtime.opened():
            await runtime.backend()
            scope.cancel()
            await anyio.sleep_forever()
    assert openings.closed.is_set()


async def test_closing_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "CLOSE_SECONDS", 0.05)
    openings = Openings(close_seconds=60)
    runtime = Runtime(openings)
    with anyio.fail_after(5):
        async with runtime.opened():
            await runtime.backend()
    assert openings.closing.is_set()
    assert not openings.closed.is_set()
    assert runtime.closed.is_set()


async def test_an_error_of_opening_is_the_answer_to_each_call() -> None:
    runtime = Runtime(Openings(ConfigurationError("no such runtime")))
    async with runtime.opened():
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="no such runtime"):
                await runtime.backend()


async def test_a_fault_of_ours_in_opening_is_told_and_ends_nothing() -> None:
    runtime = Runtime(Openings(ZeroDivisionError("a fault")))
    async with runtime.opened():
        with pytest.raises(PoolUnavailable, match="a fault"):
            await runtime.backend()


async def test_a_call_during_the_end_is_refused() -> None:
    runtime = Runtime(Openings())
    async with runtime.opened():
        await runtime.backend()
    with pytest.raises(PoolClosed):
        await runtime.backend()
