"""Brings packages that scripts often need into the store while nothing else is to be done."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from python_exec_sandbox.environments.store import EnvironmentStore
from python_exec_sandbox.errors import DriverError
from python_exec_sandbox.model.environment import BuildFailed, Warmed

logger = logging.getLogger(__name__)

START_SECONDS = 60.0
"""A server that lives for less, started by a client to look at its tools or by a test, downloads nothing."""

QUIET_SECONDS = 20.0
"""Without a call for so long, nobody is likely to call in the next second."""

LOOK_SECONDS = 2.0

INSTALL_SECONDS = 600.0
"""For one package: a slow line is no reason to never have it."""

LEAST_STORE_BYTES = 3 * 1024**3
"""The packages take one; in a smaller store they would drive out what somebody asked for."""


RETRY_SECONDS = 1800.0
"""After a failure: the engine may have been started meanwhile, or the index be there again."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """``activity`` counts what is being done now, and what was done since the start."""

    store: EnvironmentStore
    python: str
    activity: Callable[[], tuple[int, int]]
    start_seconds: float = START_SECONDS
    quiet_seconds: float = QUIET_SECONDS
    look_seconds: float = LOOK_SECONDS
    retry_seconds: float = RETRY_SECONDS

    async def run(self) -> None:
        """One package after the other, each in a quiet time and given up for whatever somebody asks for, until
        all have had their turn. What was done is remembered in the store."""
        await anyio.sleep(self.start_seconds)  # a short-lived server does nothing of this
        while True:
            await self._until_quiet()
            outcome = await self._next()
            if isinstance(outcome, str):
                logger.info("no package was installed ahead: %s", outcome)
                await anyio.sleep(self.retry_seconds)  # nothing tells of an index that is there again
            elif outcome is not None:  # else it gave way to what somebody waits for
                if outcome.package:
                    logger.info("installed ahead: %s; %s left", outcome.package, outcome.left)
                if not outcome.left:
                    return

    async def _next(self) -> Warmed | str | None:
        """What became of the next package; as text, why nothing did."""
        try:
            outcome = await self.store.warm(self.python, INSTALL_SECONDS)
        except DriverError as error:
            return str(error)
        return (outcome.text or outcome.fault) if isinstance(outcome, BuildFailed) else outcome

    async def _until_quiet(self) -> None:
        """Return once nothing was done for ``quiet_seconds``."""
        last, since = self.activity(), anyio.current_time()
        while self._is_busy(last) or anyio.current_time() - since < self.quiet_seconds:
            await anyio.sleep(self.look_seconds)  # nobody waits for this
            now = self.activity()
            if now != last or self._is_busy(now):
                last, since = now, anyio.current_time()

    def _is_busy(self, activity: tuple[int, int]) -> bool:
        return activity[0] > 0 or self.store.is_building
