"""The way to an engine that may not be there yet, may hang, or may be restarted at any time."""

import logging
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.to_thread

from python_exec_sandbox.collector import permanent
from python_exec_sandbox.drivers.docker.discovery import find_engines, surroundings
from python_exec_sandbox.drivers.docker.events import EventFeed
from python_exec_sandbox.errors import EngineUnreachable

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.discovery import Candidate
    from python_exec_sandbox.drivers.docker.gateway import Gateway

logger = logging.getLogger(__name__)

# For all candidates together; with the grace of a cancelled call it makes the ten seconds after which a
# hung engine counts as unreachable.
CONNECT_SECONDS = 8.5


class Connection:
    """Finds the engine when it is needed, and finds it again after it went away.

    While connected, the engine's events go to ``feed``.
    """

    def __init__(
        self,
        address: str | None,
        label: str,
        feed: EventFeed,
        tasks: anyio.abc.TaskGroup,
        threads: anyio.CapacityLimiter,
    ) -> None:
        self._address = address
        self._label = label
        self._feed = feed
        self._tasks = tasks
        self._threads = threads
        self._lock = anyio.Lock()
        self._gateway: Gateway | None = None
        self._following: anyio.CancelScope | None = None
        self._failures = 0
        self._last_failure = ""
        self.connecting = False

    async def gateway(self) -> "Gateway":
        """An engine that answered at least once.

        Raises:
            EngineUnreachable: none does, within about ten seconds; the text lists what was tried.
            ConfigurationError: the address given can't be used.
        """
        seen = self._failures
        async with self._lock:
            if self._gateway is None:
                if self._failures != seen:  # or those who waited would try a hung engine one after the other
                    raise EngineUnreachable(self._last_failure)
                self._gateway = await self._connected()
                self._following = anyio.CancelScope()
                self._tasks.start_soon(self._follow, self._gateway, self._following)
            return self._gateway

    def drop(self, gateway: "Gateway") -> None:
        """Find the engine anew next time, as this one doesn't answer any more."""
        if self._gateway is gateway:
            self.close()

    def close(self) -> None:
        """Let go of the engine; calls under way end by themselves."""
        if self._following is not None:
            self._following.cancel()
        if self._gateway is not None:
            self._gateway.close()
        self._gateway = self._following = None

    async def _connected(self) -> "Gateway":
        self.connecting = True
        try:
            return await self._find()
        except EngineUnreachable as error:
            self._failures += 1
            self._last_failure = str(error)
            raise
        finally:
            self.connecting = False

    async def _find(self) -> "Gateway":
        view = await anyio.to_thread.run_sync(surroundings, limiter=self._threads)
        findings = await anyio.to_thread.run_sync(find_engines, view, self._address, limiter=self._threads)
        gateway_class = await anyio.to_thread.run_sync(_import_gateway, limiter=self._threads)
        failures: dict[str, str] = {}
        for candidate in findings.candidates:
            try:
                gateway = await _try(gateway_class, candidate, CONNECT_SECONDS / len(findings.candidates))
            except EngineUnreachable as error:
                failures[candidate.address] = str(error)
            else:
                logger.info("using the container engine at %s (%s)", candidate.address, candidate.origin)
                return gateway
        raise EngineUnreachable(findings.explain(failures))

    async def _follow(self, gateway: "Gateway", scope: anyio.CancelScope) -> None:
        with scope:
            await self._feed.follow(lambda: gateway.events(self._label))


async def _try(gateway_class: "type[Gateway]", candidate: "Candidate", seconds: float) -> "Gateway":
    with anyio.move_on_after(seconds):
        return await gateway_class.connect(candidate)
    raise EngineUnreachable(f"no answer within {seconds:.1f} s; it hangs, or is still starting")


def _import_gateway() -> "type[Gateway]":
    """Importing the SDK takes a few tenths of a second; nothing of it is needed before the first sandbox."""
    with permanent():
        from python_exec_sandbox.drivers.docker.gateway import Gateway  # noqa: PLC0415  # the reason is above

    return Gateway
