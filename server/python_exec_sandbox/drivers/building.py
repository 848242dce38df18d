"""The contract of what builds environments; a driver may have it beside its sandboxes."""

from collections.abc import Callable
from typing import Protocol

from python_exec_sandbox.model.environment import BuildOutcome, BuildRequest


class Builder(Protocol):
    """Makes environments in a store that all sandboxes of the driver see, read-only, at the same place."""

    async def build(self, request: BuildRequest, progress: Callable[[str], None]) -> BuildOutcome:
        """The environment for ``request``, found or made; or why there is none.

        ``progress`` gets words for a person who waits; it must return at once. No code of the packages runs,
        unless ``request.source`` asks for that: then in a sandbox that can't see or change the store, nor see any
        credential, and that is gone afterwards. A driver without such a place answers
        ``BuildFault.NEEDS_SOURCE``. When cancelled, everything that was started for it is ended, and nothing half-built can be seen.

        Raises:
            DriverError: there is no place to build in.
        """
