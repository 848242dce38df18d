"""Sandboxes as containers: finds the engine and the image, makes a container, and sees to its end.

Nothing here imports the docker SDK; the first :meth:`DockerDriver.create` does, in a worker thread.
"""

import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc
import anyio.to_thread

from python_exec_sandbox.drivers.attached import AttachedSandbox
from python_exec_sandbox.drivers.docker.build_spec import CPU_SHARES, LEAST_CPU_SHARES, BuilderSpec
from python_exec_sandbox.drivers.docker.builder import ContainerBuilder
from python_exec_sandbox.drivers.docker.connection import Connection
from python_exec_sandbox.drivers.docker.containers import Containers, Made
from python_exec_sandbox.drivers.docker.events import EventFeed
from python_exec_sandbox.drivers.docker.facts import Labelled
from python_exec_sandbox.drivers.docker.failure import EngineRefused, create_failure
from python_exec_sandbox.drivers.docker.image import ImageKeeper
from python_exec_sandbox.drivers.docker.labels import INSTANCE, container_labels, owner_of
from python_exec_sandbox.drivers.docker.leftovers import find_leftovers, remove_leftover
from python_exec_sandbox.drivers.docker.network import NetworkKeeper
from python_exec_sandbox.drivers.docker.options import DockerOptions, Network
from python_exec_sandbox.drivers.docker.spec import SandboxSpec
from python_exec_sandbox.drivers.docker.store_volume import find_store, remove_store
from python_exec_sandbox.drivers.docker.telling import driver_facts
from python_exec_sandbox.drivers.docker.users import FIRST_UID, UID_COUNT
from python_exec_sandbox.drivers.identity import Life, ServerIdentity, life_of, own_identity
from python_exec_sandbox.drivers.leftovers import Kind, Leftover
from python_exec_sandbox.drivers.user_ids import UserIds
from python_exec_sandbox.errors import ConfigurationError, DriverError, EngineUnreachable, ImageUnavailable
from python_exec_sandbox.model.environment import BuildOutcome, BuildRequest, Task
from python_exec_sandbox.model.facts import DriverFacts

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.gateway import Gateway

logger = logging.getLogger(__name__)

# From the start of the container until an interpreter waits in it: about a second on an idle machine, many
# times that while others are being made on a small one.
READY_SECONDS = 30.0

# Reading a few files and importing the SDK.
_THREADS = 2

_OUTWARD: dict[Network, tuple[str, ...]] = {
    Network.NONE: (),
    Network.FILTERED: ("--outward", "yes"),
    Network.FULL: (),
}
"""What the runner is told of connections to the outside."""


class DockerDriver:
    """A :class:`~python_exec_sandbox.drivers.base.Driver` over a Docker (or compatible) engine."""

    name = "docker"

    def __init__(self, options: DockerOptions) -> None:
        self._options = options
        self._stack = contextlib.AsyncExitStack()
        self._server: ServerIdentity | None = None

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._feed = EventFeed()
        self._images = ImageKeeper(self._options, self._tasks, self._threads)
        self._network = NetworkKeeper(self._options.network)
        self._users = UserIds(FIRST_UID, UID_COUNT)
        self._connection = Connection(
            self._options.docker_host,
            f"{INSTANCE}={self._options.instance}",
            self._feed,
            self._tasks,
            self._threads,
        )
        self._containers = Containers(self._connection, self._feed, self._drop)
        self._builder_network = NetworkKeeper(Network.FULL)  # whatever scripts may reach
        self._builder = ContainerBuilder(self._containers, self._tasks)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every pump, and with it its stream: containers that the pool has left end with their input."""
        self._connection.close()
        self._tasks.cancel_scope.cancel()
        await self._stack.__aexit__(kind, error, trace)

    @property
    def activity(self) -> str | None:
        """What keeps :meth:`create` busy, in words for a person."""
        return "looking for a container engine" if self._connection.connecting else self._images.activity

    async def create(self, python: str) -> AttachedSandbox:
        """As the contract says. The container is named before the engine hears of it, so that it can be
        removed even if the answer to its making was lost.

        Raises:
            ConfigurationError: beside the contract's errors, for options that only show here to be wrong.
        """
        gateway = await self._connection.gateway()
        try:
            try:
                return await self._create(gateway, python)
            except EngineRefused as refusal:
                if not self._network.forget_if_gone(refusal):
                    raise
                return await self._create(gateway, python)  # with a network that is made again
        except EngineRefused as refusal:
            raise self._refused(refusal) from refusal
        except EngineUnreachable:
            self._drop(gateway)
            raise

    async def _create(self, gateway: "Gateway", python: str) -> AttachedSandbox:
        image = await self._images.ensure(gateway)
        network = await self._network.mode(gateway)
        with self._users.lent() as uid:
            spec = await self._spec(gateway, image, python, network, uid)
            made = Made(on_gone=lambda: self._users.give_back(uid))
            return await self._make(gateway, made, spec.body(), python)

    async def build(self, request: BuildRequest, progress: Callable[[str], None]) -> BuildOutcome:
        """As the contract of :class:`~python_exec_sandbox.drivers.building.Builder` says, in a container."""
        gateway = await self._connection.gateway()
        try:
            try:
                return await self._build(gateway, request, progress)
            except EngineRefused as refusal:
                if not self._builder_network.forget_if_gone(refusal):
                    raise
                return await self._build(gateway, request, progress)  # with a network that is made again
        except EngineRefused as refusal:
            raise self._refused(refusal) from refusal
        except EngineUnreachable:
            self._drop(gateway)
            raise

    async def _build(
        self, gateway: "Gateway", request: BuildRequest, progress: Callable[[str], None]
    ) -> BuildOutcome:
        spec = BuilderSpec(
            image=await self._images.ensure(gateway),
            network=await self._builder_network.mode(gateway),
            store=self._options.store,
            labels=await self._labels(),
            runtime=self._options.runtime,
            ca_bundle=await self._ca_bundle(gateway),
            cpu_shares=LEAST_CPU_SHARES if request.task is Task.WARM else CPU_SHARES,
        )
        if request.source is None:
            return await self._builder.build(gateway, spec, request, progress)
        uid = self._users.take()
        try:
            return await self._builder.build_from_source(
                gateway, spec.source_body(uid), spec, request, progress
            )
        finally:
            self._users.give_back(uid)

    def _refused(self, refusal: EngineRefused) -> DriverError:
        failure = create_failure(refusal, self._options.image or "built from this package")
        if isinstance(failure, ImageUnavailable):
            self._images.forget()
        return failure

    def _drop(self, gateway: "Gateway") -> None:
        self._connection.drop(gateway)
        self._images.forget()  # the next engine may be another one

    async def _spec(self, gateway: "Gateway", image: str, python: str, network: str, uid: int) -> SandboxSpec:
        options = self._options
        return SandboxSpec(
            image=image,
            python=python,
            limits=options.limits,
            network=network,
            uid=uid,
            labels=await self._labels(),
            store=options.store,
            runtime=options.runtime,
            ca_bundle=await self._ca_bundle(gateway),
            environment=options.environment,
            runner_arguments=(*options.runner_arguments, *_OUTWARD[options.network]),
        )

    async def _labels(self) -> dict[str, str]:
        if self._server is None:
            self._server = await anyio.to_thread.run_sync(own_identity, limiter=self._threads)
        return container_labels(self._options.instance, self._server, datetime.now(UTC))

    async def _ca_bundle(self, gateway: "Gateway") -> Path | None:
        if (bundle := self._options.ca_bundle) is None:
            return None
        if not gateway.candidate.is_local:
            raise ConfigurationError(
                f"The CA bundle {bundle} can't be given to sandboxes of the engine at "
                f"{gateway.candidate.address}, which doesn't share this machine's files. Build it into an image "
                "and name that with --image, or leave out --ca-bundle."
            )
        return await anyio.to_thread.run_sync(_resolved_file, bundle, limiter=self._threads)

    async def _make(
        self, gateway: "Gateway", made: Made, body: dict[str, object], python: str
    ) -> AttachedSandbox:
        try:
            channel = await self._containers.start(gateway, made, body)
            made.fate.on_pause = channel.close  # nobody waits for one that somebody stopped
            if made.fate.paused:
                channel.close()
            keeper = self._containers.keeper(gateway, made, channel)
            sandbox = AttachedSandbox(sandbox_id=made.id, python=python, channel=channel, keeper=keeper)
            self._tasks.start_soon(sandbox.pump)
            await sandbox.wait_ready(READY_SECONDS)
            made.fate.on_pause = None
        except BaseException:  # a cancellation leaves nothing behind either
            await self._containers.clean_up(gateway, made)
            raise
        return sandbox

    async def facts(self) -> DriverFacts:
        """The engine and the image of now; neither pulls nor builds anything.

        Raises:
            DriverError: the engine doesn't answer, or refuses to.
        """
        gateway = await self._connection.gateway()
        try:
            about = await gateway.about()
            reference, image = await self._images.look(gateway)
        except EngineUnreachable:
            self._drop(gateway)
            raise
        return driver_facts(gateway.candidate, about, reference, image)

    async def leftovers(self, *, environments: bool = False) -> list[Leftover]:
        """What is ours on the engine and in nobody's use; with the ``environments`` of packages if asked for.

        Raises:
            DriverError: the engine could not be asked.
        """
        gateway = await self._connection.gateway()
        reference, _ = await self._images.look(gateway)
        dead = [container.id for container in await self._left_behind(gateway)]
        store = await find_store(gateway, self._options.store) if environments else []
        return [*await find_leftovers(gateway, dead, reference), *store]

    async def remove(self, leftover: Leftover) -> None:
        """Remove one of them.

        Raises:
            DriverError: the engine refused, as it does for what came into use meanwhile.
        """
        gateway = await self._connection.gateway()
        if leftover.kind is Kind.STORE:
            await remove_store(gateway, leftover.name, self.build)
        else:
            await remove_leftover(gateway, leftover)

    async def sweep(self) -> int:
        """As the contract says. A container counts as left behind when its server is certainly dead."""
        gateway = await self._connection.gateway()
        removed = 0
        try:
            for container in await self._left_behind(gateway):
                await self._containers.remove_by(gateway, Made(container.id))
                removed += 1
        except EngineUnreachable:
            self._drop(gateway)
            raise
        if removed:
            logger.info("removed %s sandboxes that dead servers had left", removed)
        return removed

    async def _left_behind(self, gateway: "Gateway") -> list[Labelled]:
        """The containers whose servers are certainly dead."""
        found = []
        for container in await gateway.containers(INSTANCE):
            owner = owner_of(container.labels)
            if owner is None or container.labels.get(INSTANCE) == self._options.instance:
                continue
            if await anyio.to_thread.run_sync(life_of, owner, limiter=self._threads) is Life.DEAD:
                found.append(container)
        return found


def _resolved_file(path: Path) -> Path:
    """The file itself; engines don't follow links of ours."""
    try:
        resolved = path.resolve(strict=True)
    except OSError as error:
        raise ConfigurationError(f"The CA bundle {path} can't be read: {error}.") from error
    if not resolved.is_file():
        raise ConfigurationError(f"The CA bundle {path} is not a file.")
    return resolved
