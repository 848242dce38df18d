"""Packages that are in the store before anybody asks run where no index can be reached, on the real engine."""

from pathlib import Path

import pytest

from integration.support.engine import Engine
from integration.support.servers import CERTIFICATES
from integration.support.stores import own_store
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.network import NetworkKeeper
from python_exec_sandbox.drivers.docker.options import DockerOptions, Network
from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.environments.store import EnvironmentStore
from python_exec_sandbox.model.environment import Warmed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

OPEN = 0.0
"""No time for which an answer of the index would be good: it is asked again each time."""


async def test_what_was_installed_ahead_needs_no_index_alone_or_with_what_came_with_it(
    engine: Engine,
) -> None:
    said: list[str] = []
    bundle = CERTIFICATES.get("SSL_CERT_FILE")
    with own_store(engine) as volume:
        options = DockerOptions(store=volume, ca_bundle=Path(bundle) if bundle else None)
        async with DockerDriver(options) as driver, EnvironmentStore(driver, OPEN) as store:
            outcome = await store.warm("3.13", 100.0)
            assert isinstance(outcome, Warmed), outcome
            assert (outcome.package, outcome.left) == ("requests", 15)
            driver._builder_network = NetworkKeeper(Network.NONE)
            alone = await store.obtain("3.13", ("requests",), 60.0, said.append)
            assert isinstance(alone, Environment), alone
            assert alone.reused
            both = await store.obtain("3.13", ("idna", "requests"), 60.0, said.append)
            assert isinstance(both, Environment), both
            assert "requests" in {package.name for package in both.packages}
    assert "the package index can't be reached; using what it said before" in said
