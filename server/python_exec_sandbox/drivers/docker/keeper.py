"""The driver's side of one container: why it ended, and its certain end."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from python_exec_sandbox.drivers.docker.channel import AttachedChannel
from python_exec_sandbox.drivers.docker.events import EventFeed, Fate
from python_exec_sandbox.model.result import Loss

# Under the two seconds that the contract allows. A removal's event follows the death within 0.1-0.3 s.
EXPLAIN_SECONDS = 1.8

# An engine that is well answers in milliseconds, and one that is gone refuses at once. One that is going may
# answer once more.
ASK_SECONDS = 0.5
_ASK_AGAIN_SECONDS = 0.2


class Asked(Protocol):
    """The engine, as far as it is asked about a loss."""

    @property
    def address(self) -> str: ...

    async def answers(self) -> bool: ...


class ContainerKeeper:
    """A :class:`~python_exec_sandbox.drivers.attached.Keeper` for a container.

    ``remove`` ends the container and returns when the engine has confirmed it.
    """

    def __init__(
        self,
        channel: AttachedChannel,
        fate: Fate,
        feed: EventFeed,
        engine: Asked,
        remove: Callable[[], Awaitable[None]],
    ) -> None:
        self._channel = channel
        self._fate = fate
        self._feed = feed
        self._engine = engine
        self._remove = remove
        self._subscription = feed.subscription

    @property
    def watched(self) -> bool:
        """As the protocol says: while the engine's events have been heard without a gap."""
        return self._subscription is not None and self._subscription == self._feed.subscription

    @property
    def halted(self) -> bool:
        return self._fate.paused

    async def explain_loss(self) -> tuple[Loss, str]:
        """By the engine's events, as far as they come in time; or by their end, if that comes first."""
        with anyio.move_on_after(EXPLAIN_SECONDS):
            async with anyio.create_task_group() as waits:
                waits.start_soon(self._await_interruption, waits.cancel_scope)
                await self._fate_is_clear()
                waits.cancel_scope.cancel()
        if self._fate.is_clear or not self._feed.interrupted.is_set():
            return self._fate.explain(self._channel.diagnosis)
        if await self._engine_is_well():
            return Loss.KILLED, f"the container engine at {self._engine.address} ended its connections"
        return Loss.KILLED, f"the container engine at {self._engine.address} went away"

    async def _engine_is_well(self) -> bool:
        with anyio.move_on_after(ASK_SECONDS):
            if not await self._engine.answers():
                return False
            await anyio.sleep(_ASK_AGAIN_SECONDS)  # an engine that is going may answer once more
            return await self._engine.answers()
        return False

    async def _fate_is_clear(self) -> None:
        await self._fate.died.wait()
        if not self._fate.is_clear:
            await self._fate.destroyed.wait()

    async def _await_interruption(self, waits: anyio.CancelScope) -> None:
        await self._feed.interrupted.wait()
        waits.cancel()

    async def remove(self) -> None:
        self._channel.close()
        await self._remove()
