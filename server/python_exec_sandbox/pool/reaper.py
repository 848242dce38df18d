"""Sweeps up, from time to time, what servers that died left behind."""

import logging
from collections.abc import Callable

import anyio

from python_exec_sandbox.drivers.base import Driver

_log = logging.getLogger(__name__)

_SWEEP_TIMEOUT = 60.0
"""A sweep lists and removes a handful of sandboxes; an engine that needs longer hangs."""


async def reap_forever(driver: Driver, interval: float, reaped: Callable[[int], None]) -> None:
    """Sweep now and every ``interval`` seconds until cancelled; ``reaped`` hears how many went.

    A sweep that fails is logged and left to the next one: nothing waits for it.
    """
    while True:
        await _sweep(driver, reaped)
        await anyio.sleep(interval)  # nothing tells of a server that died


async def _sweep(driver: Driver, reaped: Callable[[int], None]) -> None:
    try:
        with anyio.fail_after(_SWEEP_TIMEOUT):
            count = await driver.sweep()
    except Exception as error:  # noqa: BLE001 - a broken sweep, whatever the reason, must not end the pool
        _log.warning("what dead servers left could not be looked for, tried again later: %s", error)
        return
    if count:
        _log.info("removed %d sandboxes that dead servers had left", count)
        reaped(count)
