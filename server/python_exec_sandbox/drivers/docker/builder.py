"""Builds environments, each in a container of its own that ends with the build."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from python_exec_sandbox.drivers.docker.build_spec import BuilderSpec
from python_exec_sandbox.drivers.docker.channel import AttachedChannel
from python_exec_sandbox.drivers.docker.chunked import JsonLines
from python_exec_sandbox.drivers.docker.containers import Containers, Made
from python_exec_sandbox.drivers.docker.keeper import ContainerKeeper
from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, BuildOutcome, BuildRequest
from python_exec_sandbox.model.result import Loss
from python_exec_sandbox.stream.building import Progress, parse_message, request_line

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.gateway import Gateway

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""All that a builder may say. The longest honest answer has some hundred kilobytes."""


class ContainerBuilder:
    """Carries one request to a builder and its answer back."""

    def __init__(self, containers: Containers, tasks: anyio.abc.TaskGroup) -> None:
        self._containers = containers
        self._tasks = tasks

    async def build(
        self, gateway: "Gateway", spec: BuilderSpec, request: BuildRequest, progress: Callable[[str], None]
    ) -> BuildOutcome:
        """The outcome within ``request.install_seconds`` from the container's start on.

        Raises:
            DriverError: there is no container to build in.
        """
        made = Made()
        try:
            channel = await self._containers.start(gateway, made, spec.body())
            outcome = await self._follow(channel, request, progress)
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

    async def _follow(
        self, channel: AttachedChannel, request: BuildRequest, progress: Callable[[str], None]
    ) -> BuildOutcome | None:
        """What the builder says of the build; ``None`` when it ended without a word."""
        with anyio.move_on_after(request.install_seconds):
            try:
                await channel.send(request_line(request))
                return await _last_message(channel, progress)
            except ProtocolViolation as error:
                return BuildFailed(BuildFault.FAULT, str(error))
            except OSError as error:
                logger.debug("a builder's stream broke: %s", error)
                return None
        return BuildFailed(BuildFault.TIME)


async def _last_message(channel: AttachedChannel, progress: Callable[[str], None]) -> BuildOutcome | None:
    lines = JsonLines()
    received = 0
    while data := await channel.receive():
        received += len(data)
        if received > MAX_ANSWER_BYTES:
            raise ProtocolViolation(f"the builder sent more than {MAX_ANSWER_BYTES} bytes")
        for message in lines.feed(data):
            said = parse_message(message)
            if not isinstance(said, Progress):
                return said
            progress(said.words)
    return None


async def _explained(keeper: ContainerKeeper) -> BuildFailed:
    """Why a builder ended without an answer."""
    loss, detail = await keeper.explain_loss()
    return BuildFailed(BuildFault.MEMORY if loss is Loss.MEMORY else BuildFault.FAULT, detail)
