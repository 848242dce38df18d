"""A driver in memory for tests of the pool: sandboxes that do nothing, and faults on demand.

``FakeDriver(Fault(...), Fault(...))``: the first sandbox made meets the first fault, and so on; when the
list is used up, or for ``None`` in it, sandboxes behave.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel

from python_exec_sandbox.drivers.base import RunWatcher
from python_exec_sandbox.errors import DriverError
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.result import RunReport, StopReason


@dataclass
class Fault:
    """What goes wrong with one sandbox; nothing by default."""

    create_gate: anyio.Event | None = None
    """Making it waits for this."""
    create_error: Exception | None = None
    """Making it fails (after the gate)."""
    create_ignores_cancel: bool = False
    """Making it can't be interrupted, as with a call to the engine in a thread."""
    born_dead: bool = False
    watch_error: Exception | None = None
    """Waiting for its end fails."""
    destroy_gate: anyio.Event | None = None
    """Destroying it waits for this; an event that is never set makes it endless."""
    destroy_failures: int = 0
    """So many attempts to destroy it fail."""
    destroy_error: Exception = field(default_factory=lambda: DriverError("the engine did not confirm"))


class FakeSandbox:
    """Lives until it is destroyed or :meth:`die` is called; counts what is done to it."""

    def __init__(self, sandbox_id: str, python: str, fault: Fault) -> None:
        self.id = sandbox_id
        self.python = python
        self.pythons = (python,)
        self.fault = fault
        self.ended = anyio.Event()
        self.runs = 0
        self.destroy_calls = 0
        self.destroyed = False
        self.watched = False
        self.silent = False
        """As when it was paused: nothing ended, nothing answers."""
        self.check_gate: anyio.Event | None = None
        """Its answer to a check waits for this."""
        self.check_error: Exception | None = None
        if fault.born_dead:
            self.die()

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    def die(self) -> None:
        """It ends by itself."""
        self.ended.set()

    async def check(self) -> bool:
        if self.check_error is not None:
            raise self.check_error
        if self.check_gate is not None:
            await self.check_gate.wait()
        return self.alive and not self.silent

    async def wait_ended(self) -> None:
        if self.fault.watch_error is not None:
            raise self.fault.watch_error
        await self.ended.wait()

    async def run(self, job: Job, watcher: RunWatcher) -> RunReport:
        self.runs += 1
        if self.runs > 1:
            raise RuntimeError(f"{self.id} was used before")
        return RunReport(StopReason.EXITED, exit_code=0)

    async def destroy(self) -> None:
        self.destroy_calls += 1
        if self.destroyed:
            raise AssertionError(f"{self.id} was destroyed twice")
        if self.fault.destroy_gate is not None:
            await self.fault.destroy_gate.wait()
        else:
            await anyio.lowlevel.checkpoint()
        if self.destroy_calls <= self.fault.destroy_failures:
            raise self.fault.destroy_error
        self.destroyed = True
        self.ended.set()


class FakeDriver:
    """Fulfils :class:`~python_exec_sandbox.drivers.base.Driver` and keeps the books of all it made."""

    name = "fake"

    def __init__(self, *faults: Fault | None) -> None:
        self.activity: str | None = None
        self.faults: list[Fault | None] = list(faults)
        self.made: list[FakeSandbox] = []
        self.create_calls: list[str] = []
        self.creating = 0
        self.most_creating = 0
        self.most_places = 0
        self.sweeps: Iterator[int | Exception] = iter(())
        """What each sweep finds or raises; none when used up."""
        self.sweep_calls = 0
        self._numbers = count(1)

    @property
    def standing(self) -> list[FakeSandbox]:
        """Those whose end was not confirmed."""
        return [sandbox for sandbox in self.made if not sandbox.destroyed]

    async def create(self, python: str) -> FakeSandbox:
        self.create_calls.append(python)
        fault = (self.faults.pop(0) if self.faults else None) or Fault()
        self.creating += 1
        self.most_creating = max(self.most_creating, self.creating)
        self.most_places = max(self.most_places, self.creating + len(self.standing))
        try:
            with anyio.CancelScope(shield=fault.create_ignores_cancel):
                await self._wait(fault)
            if fault.create_error is not None:
                raise fault.create_error
            sandbox = FakeSandbox(f"box-{next(self._numbers)}", python, fault)
            self.made.append(sandbox)
            return sandbox
        finally:
            self.creating -= 1

    async def _wait(self, fault: Fault) -> None:
        if fault.create_gate is not None:
            await fault.create_gate.wait()
        else:
            await anyio.lowlevel.checkpoint()

    async def sweep(self) -> int:
        self.sweep_calls += 1
        found = next(self.sweeps, 0)
        if isinstance(found, Exception):
            raise found
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
