"""One container from its making to its certain end, whatever it is for."""

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from python_exec_sandbox.drivers.docker.channel import AttachedChannel
from python_exec_sandbox.drivers.docker.connection import Connection
from python_exec_sandbox.drivers.docker.events import EventFeed, Fate
from python_exec_sandbox.drivers.docker.failure import EngineRefused
from python_exec_sandbox.drivers.docker.keeper import ContainerKeeper
from python_exec_sandbox.errors import DriverError, EngineUnreachable

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.gateway import Gateway

logger = logging.getLogger(__name__)

# A removal takes 0.1-0.3 s; a busy engine gets more, but a hung one must not hold a place for ever.
REMOVE_SECONDS = 10.0

# After a failure or a cancellation, within the time a server has for its shutdown.
CLEANUP_SECONDS = 1.5

# While someone else's removal goes on, between two looks; the engine's event usually ends the wait before.
_GONE_POLL_SECONDS = 0.25

# The subscription is under way since the engine was found; without it a container only lacks explanations.
_EVENTS_SECONDS = 1.0


class Made:
    """What exists of a container so far; ``name`` is good for its removal from the first moment.

    ``on_gone`` is called once, when its removal was confirmed.
    """

    def __init__(self, name: str | None = None, on_gone: Callable[[], None] | None = None) -> None:
        self.name = name or f"python-exec-sandbox-{secrets.token_hex(8)}"
        self.on_gone = on_gone
        self.id = ""
        self.fate = Fate()
        self.channel: AttachedChannel | None = None


class Containers:
    """Makes containers that end with their attached stream, and removes them.

    ``drop`` is told of an engine that doesn't answer any more.
    """

    def __init__(self, connection: Connection, feed: EventFeed, drop: Callable[["Gateway"], None]) -> None:
        self._connection = connection
        self._feed = feed
        self._drop = drop

    async def start(self, gateway: "Gateway", made: Made, body: Mapping[str, Any]) -> AttachedChannel:
        """Make, attach to and start the container that ``body`` describes; the caller cleans up a failure.

        Raises:
            DriverError: the engine doesn't.
        """
        created = await gateway.create(made.name, body)
        for warning in created.warnings:
            logger.warning("the container engine says: %s", warning)
        made.fate = self._feed.watch(created.id)
        made.id = created.id
        made.channel = AttachedChannel(await gateway.attach(created.id))
        with anyio.move_on_after(_EVENTS_SECONDS):
            await self._feed.listening.wait()
        await gateway.start(created.id)
        return made.channel

    def keeper(self, gateway: "Gateway", made: Made, channel: AttachedChannel) -> ContainerKeeper:
        """Explains and ends the container."""
        return ContainerKeeper(channel, made.fate, self._feed, gateway, lambda: self.remove(made))

    async def clean_up(self, gateway: "Gateway", made: Made) -> None:
        """End whatever exists of a container, also when cancelled; a failure is only told to the log, as the
        container ends with its stream anyway."""
        if made.channel is not None:
            made.channel.close()
        with anyio.move_on_after(CLEANUP_SECONDS, shield=True) as scope:
            try:
                await self.remove_by(gateway, made)
            except DriverError as error:
                logger.warning("the container %s may be left: %s", made.name, error)
        if scope.cancelled_caught:
            logger.warning("the container %s may be left: no answer within %s s", made.name, CLEANUP_SECONDS)
        self._feed.forget(made.id)

    async def remove(self, made: Made) -> None:
        """End a container and confirm it.

        Raises:
            DriverError: not confirmed; the caller may try again.
        """
        gateway = await self._connection.gateway()
        try:
            with anyio.fail_after(REMOVE_SECONDS):
                await self.remove_by(gateway, made)
        except TimeoutError:
            raise DriverError(
                f"The container {made.name} was not gone within {REMOVE_SECONDS} s of its removal."
            ) from None
        except EngineUnreachable:
            self._drop(gateway)
            raise
        self._feed.forget(made.id)
        if (on_gone := made.on_gone) is not None:
            made.on_gone = None
            on_gone()

    async def remove_by(self, gateway: "Gateway", made: Made) -> None:
        """As :meth:`remove`, without a bound of its own."""
        if made.fate.destroyed.is_set():
            return
        try:
            await gateway.remove(made.name)
        except EngineRefused as refusal:
            if refusal.is_missing:
                return
            if not refusal.is_being_removed:
                raise
            # The container ended by itself, and the engine is at its automatic removal.
            while await gateway.exists(made.name):
                with anyio.move_on_after(_GONE_POLL_SECONDS):
                    await made.fate.destroyed.wait()
