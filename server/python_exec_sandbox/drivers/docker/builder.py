"""Builds environments, each in a container of its own that ends with the build."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from python_exec_sandbox.drivers.docker.build_spec import BuilderSpec
from python_exec_sandbox.drivers.docker.containers import Containers, Made
from python_exec_sandbox.drivers.docker.keeper import ContainerKeeper
from python_exec_sandbox.drivers.following import Carry, Feed, first_bytes, follow
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, BuildOutcome, BuildRequest
from python_exec_sandbox.model.result import Loss

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.gateway import Gateway


class ContainerBuilder:
    """Carries one request to a builder and its answer back."""

    def __init__(self, containers: Containers, tasks: anyio.abc.TaskGroup) -> None:
        self._containers = containers
        self._tasks = tasks

    async def build(
        self,
        gateway: "Gateway",
        spec: BuilderSpec,
        request: BuildRequest,
        progress: Callable[[str], None],
        feed: Feed | None = None,
    ) -> BuildOutcome:
        """The outcome within ``request.install_seconds`` from the container's start on.

        Raises:
            DriverError: there is no container to build in.
        """
        made = Made()
        try:
            channel = await self._containers.start(gateway, made, spec.body())
            outcome = await follow(channel, request, progress, feed)
            if outcome is None:
                outcome = await _explained(self._containers.keeper(gateway, made, channel))
        except BaseException:  # nothing of a build goes on when nobody waits for it
            await self._containers.clean_up(gateway, made)
            raise
        if isinstance(outcome, BuildFailed):
            await self._containers.clean_up(gateway, made)
        else:  # its work is done, and it ends by itself; the script needn't wait for that
            channel.close()
            self._tasks.start_soon(self._containers.clean_up, gateway, made)
        return outcome

    async def build_from_source(
        self,
        gateway: "Gateway",
        body: Mapping[str, Any],
        spec: BuilderSpec,
        request: BuildRequest,
        progress: Callable[[str], None],
    ) -> BuildOutcome:
        """As :meth:`build`, with what a build sandbox, made from ``body``, makes of the sources.

        Its bytes go on to the builder unread. It is removed as soon as it has said them.

        Raises:
            DriverError: there is no container to build in.
        """
        assert request.source is not None
        place = Made()
        try:
            channel = await self._containers.start(gateway, place, body)
            began = anyio.current_time()
            keeper = self._containers.keeper(gateway, place, channel)
            with anyio.move_on_after(request.install_seconds):
                first = await first_bytes(channel, replace(request, installer=request.source))
                if not first:
                    return await _explained(keeper)
                left = request.install_seconds - (anyio.current_time() - began)
                feed = Carry(
                    channel, first, lambda: self._tasks.start_soon(self._containers.clean_up, gateway, place)
                )
                outcome = await self.build(
                    gateway, spec, replace(request, install_seconds=max(left, 0.0)), progress, feed
                )
                return await _explained(keeper) if feed.is_cut else outcome
            return BuildFailed(BuildFault.TIME)
        finally:
            await self._containers.clean_up(gateway, place)


async def _explained(keeper: ContainerKeeper) -> BuildFailed:
    """Why a builder ended without an answer."""
    loss, detail = await keeper.explain_loss()
    return BuildFailed(BuildFault.MEMORY if loss is Loss.MEMORY else BuildFault.FAULT, detail)
