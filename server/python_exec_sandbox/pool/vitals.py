"""Signs of life of sandboxes: asked for while they are idle, and remembered."""

import logging
import time

import anyio

from python_exec_sandbox.drivers.base import Sandbox

_log = logging.getLogger(__name__)


CHECK_SECONDS = 2.0
"""What a check may take (:meth:`Sandbox.check`)."""


class Vitals:
    """When each sandbox last gave a sign of life. Never raises for what a driver does."""

    def __init__(self, check_interval: float, trust_time: float) -> None:
        self._check_interval = check_interval
        self._trust_time = trust_time
        self._signs: dict[str, float] = {}

    def born(self, sandbox_id: str) -> None:
        self._signs[sandbox_id] = time.monotonic()

    def gone(self, sandbox_id: str) -> None:
        del self._signs[sandbox_id]

    def is_fresh(self, sandbox: Sandbox) -> bool:
        """Whether its last sign of life is young enough to be trusted. For one that is watched those of the
        regular checks are: they only have to show that the runner itself still answers."""
        trusted = self._check_interval + CHECK_SECONDS if sandbox.watched else self._trust_time
        return time.monotonic() - self._signs[sandbox.id] <= trusted

    async def ask(self, sandbox: Sandbox) -> bool:
        """Whether it answers now; takes at most as long as :meth:`Sandbox.check`."""
        try:
            answered = await sandbox.check()
        except Exception:  # noqa: BLE001 - a fault of a driver must not end the pool
            _log.exception("sandbox %s can't be asked for a sign of life and counts as lost", sandbox.id)
            return False
        if answered and sandbox.id in self._signs:
            self._signs[sandbox.id] = time.monotonic()
        return answered

    async def ended_meanwhile(self, sandbox: Sandbox) -> bool:
        """Wait for its end, but no longer than until the next check; whether it ended."""
        with anyio.move_on_after(self._check_interval):
            try:
                await sandbox.wait_ended()
            except Exception:  # noqa: BLE001 - as above
                _log.exception("sandbox %s can't be watched and counts as lost", sandbox.id)
            return True
        return False
