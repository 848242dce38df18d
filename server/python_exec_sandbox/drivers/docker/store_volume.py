"""The volume of environments: found, and emptied of what nobody uses."""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from python_exec_sandbox.drivers.docker.failure import EngineRefused
from python_exec_sandbox.drivers.docker.labels import SHARED
from python_exec_sandbox.drivers.leftovers import Kind, Leftover
from python_exec_sandbox.errors import DriverError
from python_exec_sandbox.model.environment import BuildOutcome, BuildRequest, Task, Trimmed

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.gateway import Gateway

logger = logging.getLogger(__name__)

TRIM_SECONDS = 300.0
"""Removing a hundred thousand files takes some seconds; a slow disk gets more."""

Build = Callable[[BuildRequest, Callable[[str], None]], Awaitable[BuildOutcome]]


async def find_store(gateway: "Gateway", store: str) -> list[Leftover]:
    """The volume ``store``, if there is one.

    Raises:
        DriverError: the engine could not be asked.
    """
    if await gateway.volume(store) is None:
        return []
    return [Leftover(Kind.STORE, store, "installed packages; what a running script uses stays", (store,))]


async def remove_store(gateway: "Gateway", store: str, build: Build) -> None:
    """Remove the volume; one that is in use, or that a person made, is only emptied of what no sandbox holds.

    Raises:
        DriverError: the engine refused.
    """
    labels = await gateway.volume(store)
    if labels is None:
        return
    if SHARED in labels:
        try:
            await gateway.remove_volume(store)
        except EngineRefused as refusal:
            if refusal.is_missing:
                return
            if not refusal.is_conflict:
                raise
        else:
            return
    request = BuildRequest("", (), task=Task.TRIM, install_seconds=TRIM_SECONDS)
    outcome = await build(request, logger.info)
    if not isinstance(outcome, Trimmed):
        raise DriverError(f"The volume {store} could not be emptied: {outcome}.")
