"""What two drivers left, as one: bubblewrap's on this machine, and Docker's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from python_exec_sandbox.api.backends import docker_options
from python_exec_sandbox.api.native import bubblewrap_options
from python_exec_sandbox.api.once import tell
from python_exec_sandbox.api.prune import HasLeftovers
from python_exec_sandbox.drivers.bubblewrap.driver import BubblewrapDriver
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.leftovers import Kind, Leftover
from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.settings import Settings

_OF_THIS_MACHINE = frozenset({Kind.GROUPS, Kind.FOLDER})


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Where one of the two can't be used here, it is said, and the other one is looked at."""

    native: HasLeftovers
    docker: HasLeftovers

    async def leftovers(self, *, environments: bool = False) -> list[Leftover]:
        found = []
        for driver in (self.native, self.docker):
            try:
                found += await driver.leftovers(environments=environments)
            except SandboxError as error:
                tell(f"not looked at: {error}")
        return found

    async def remove(self, leftover: Leftover) -> None:
        """Raises ``SandboxError`` when it could not be removed."""
        driver = self.native if leftover.kind in _OF_THIS_MACHINE else self.docker
        await driver.remove(leftover)


@asynccontextmanager
async def open_everywhere(settings: Settings) -> AsyncIterator[Everywhere]:
    """Both drivers as ``settings`` describe them; entering asks neither."""
    async with (
        BubblewrapDriver(bubblewrap_options(settings)) as native,
        DockerDriver(docker_options(settings)) as docker,
    ):
        yield Everywhere(native, docker)
