"""The driver's side of one container: why it ended, and its certain end."""

from collections.abc import Awaitable, Callable

import anyio

from python_exec_sandbox.drivers.docker.channel import AttachedChannel
from python_exec_sandbox.drivers.docker.events import Fate
from python_exec_sandbox.model.result import Loss

# Under the two seconds that the contract allows. A removal's event follows the death within 0.1-0.3 s.
EXPLAIN_SECONDS = 1.8


class ContainerKeeper:
    """A :class:`~python_exec_sandbox.drivers.attached.Keeper` for a container.

    ``remove`` ends the container and returns when the engine has confirmed it.
    """

    def __init__(self, channel: AttachedChannel, fate: Fate, remove: Callable[[], Awaitable[None]]) -> None:
        self._channel = channel
        self._fate = fate
        self._remove = remove

    async def explain_loss(self) -> tuple[Loss, str]:
        """By the engine's events, as far as they come in time."""
        with anyio.move_on_after(EXPLAIN_SECONDS):
            await self._fate.died.wait()
            if not self._fate.is_clear:
                await self._fate.destroyed.wait()
        return self._fate.explain(self._channel.diagnosis)

    async def remove(self) -> None:
        self._channel.close()
        await self._remove()
