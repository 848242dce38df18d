"""The Docker driver shows every behaviour, on the real engine, attacks on the runner among them."""

import os
from collections.abc import AsyncIterator

import pytest

from integration.support.engine import Engine
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.options import DockerOptions
from tests.support.conformance import Behaviour, observe, shown_by

pytestmark = pytest.mark.anyio

DOCKER_DIFFERENCES: dict[str, str] = {}
"""Behaviour -> why this driver can't show it. None."""


@pytest.fixture
async def driver(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DockerDriver]:
    monkeypatch.setitem(os.environ, "CONFORMANCE_SECRET", "must not be seen")
    async with DockerDriver(DockerOptions()) as made:
        yield made


@pytest.mark.parametrize(
    "behaviour", shown_by(DOCKER_DIFFERENCES), ids=lambda behaviour: f"docker: {behaviour.name}"
)
async def test_the_docker_driver_shows(driver: DockerDriver, behaviour: Behaviour) -> None:
    outcome = await observe(driver, behaviour)
    assert outcome.driver == "docker"
    behaviour.expect(outcome)
