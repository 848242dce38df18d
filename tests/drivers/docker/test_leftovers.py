"""What prune finds and removes, and what it leaves alone."""

import json
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import anyio
import anyio.to_thread
import pytest

from python_exec_sandbox.drivers.docker.context import packaged_context, read_context
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.labels import SHARED, container_labels
from python_exec_sandbox.drivers.docker.network import NETWORK_NAME
from python_exec_sandbox.drivers.docker.options import DockerOptions
from python_exec_sandbox.drivers.identity import ServerIdentity, own_identity
from python_exec_sandbox.drivers.leftovers import Kind, Leftover
from python_exec_sandbox.errors import DriverError
from tests.drivers.docker.test_driver import FIT
from tests.support.fake_engine import FakeContainer, FakeEngine, Refuse, RunnerEnd

pytestmark = pytest.mark.anyio


@pytest.fixture
async def driver(engine: FakeEngine) -> AsyncIterator[DockerDriver]:
    async with DockerDriver(DockerOptions(docker_host=engine.address)) as opened:
        yield opened


async def found(driver: DockerDriver) -> list[Leftover]:
    with anyio.fail_after(10):
        return await driver.leftovers()


def current_tag() -> str:
    return read_context(packaged_context(), None).tag


def sandbox_of(engine: FakeEngine, server: ServerIdentity) -> FakeContainer:
    return engine.add_container(container_labels("another", server, datetime.now(UTC)))


def dead(living: ServerIdentity) -> ServerIdentity:
    return ServerIdentity(living.pid, "0", living.boot_id)


async def test_on_a_clean_engine_nothing_is_found(driver: DockerDriver) -> None:
    assert await found(driver) == []


async def test_only_containers_of_dead_servers_are_found(engine: FakeEngine, driver: DockerDriver) -> None:
    living = await anyio.to_thread.run_sync(own_identity)
    sandbox_of(engine, living)
    sandbox_of(engine, ServerIdentity(os.getpid(), "1", "another machine"))
    left = sandbox_of(engine, dead(living))
    engine.add_container({"com.example": "not ours"})
    assert [(one.kind, one.handles) for one in await found(driver)] == [(Kind.CONTAINER, (left.id,))]


async def test_images_of_other_versions_are_found_but_not_the_current_nor_a_used_one_nor_a_persons_own(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    current = await anyio.to_thread.run_sync(current_tag)
    engine.add_image(current)
    engine.add_image("my-own:1")
    engine.add_image("python-exec-sandbox:5", "my-name:5")
    used = engine.add_image("python-exec-sandbox:2")
    engine.add_container({"com.example": "not ours"}).body["Image"] = used
    old = engine.add_image("python-exec-sandbox:3", "python-exec-sandbox:4")
    nameless = engine.add_image()
    images = {one.handles: one for one in await found(driver)}
    assert set(images) == {("python-exec-sandbox:3", "python-exec-sandbox:4"), (nameless,)}
    assert old not in str(images)
    assert all(one.size == 1024 * 1024 for one in images.values())


async def test_an_image_named_by_a_setting_is_the_current_one(engine: FakeEngine) -> None:
    engine.add_image("python-exec-sandbox:mine")
    options = DockerOptions(docker_host=engine.address, image="python-exec-sandbox:mine")
    async with DockerDriver(options) as driver:
        assert await found(driver) == []


async def test_the_network_is_found_when_no_container_is_on_it(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    network = engine.add_network(NETWORK_NAME)
    engine.add_network(f"{NETWORK_NAME}-2")
    assert [(one.kind, one.handles) for one in await found(driver)] == [(Kind.NETWORK, (network,))]
    engine.add_container({}).body["HostConfig"] = {"NetworkMode": network}
    assert await found(driver) == []


async def test_what_was_found_is_removed_and_nothing_else(engine: FakeEngine, driver: DockerDriver) -> None:
    living = await anyio.to_thread.run_sync(own_identity)
    kept = sandbox_of(engine, living)
    sandbox_of(engine, dead(living))
    engine.add_image("python-exec-sandbox:3", "python-exec-sandbox:4")
    engine.add_image()
    engine.add_image("my-own:1")
    engine.add_network(NETWORK_NAME)
    with anyio.fail_after(10):
        for one in await driver.leftovers():
            await driver.remove(one)
    assert list(engine.containers) == [kept.id]
    assert [image["RepoTags"] for image in engine.listed_images] == [["my-own:1"]]
    assert engine.networks == []


@pytest.mark.parametrize(("operation", "kind"), [("unimage", Kind.IMAGE), ("unmake", Kind.NETWORK)])
async def test_what_the_engine_refuses_stays_and_what_has_gone_meanwhile_is_fine(
    engine: FakeEngine, driver: DockerDriver, operation: str, kind: Kind
) -> None:
    one = Leftover(kind, "x", "", ("python-exec-sandbox:3",))
    with anyio.fail_after(10):
        engine.faults[operation] = Refuse(409, "conflict: it is in use")
        with pytest.raises(DriverError, match="in use"):
            await driver.remove(one)
        engine.faults[operation] = Refuse(404, "no such thing")
        await driver.remove(one)


async def test_the_driver_tells_of_its_engine_and_image_and_builds_none(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.info["Warnings"] = ["WARNING: No swap limit support"]
    with anyio.fail_after(10):
        facts = await driver.facts()
    lines = dict(facts.lines)
    assert "20.10.24, API 1.41" in lines["engine"]
    assert engine.address in lines["engine"]
    assert lines["engine's machine"] == "Test OS, 2 processors, control groups v2"
    assert lines["engine's warning"] == "No swap limit support"
    assert lines["image"].endswith("not there yet")
    assert facts.made_from is None
    assert facts.pending
    assert "POST /build" not in engine.requests


async def test_an_image_that_is_there_identifies_what_sandboxes_are_made_from(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.images[await anyio.to_thread.run_sync(current_tag)] = {}
    with anyio.fail_after(10):
        facts = await driver.facts()
    assert facts.made_from == "sha256:" + "ab" * 32
    assert not facts.pending


@pytest.mark.parametrize("answer", [{}, {"NCPU": "many", "Warnings": 3, "SecurityOptions": {"a": 1}}])
async def test_an_engine_that_says_nothing_of_itself_is_told_of_all_the_same(
    engine: FakeEngine, driver: DockerDriver, answer: dict[str, object]
) -> None:
    engine.info = answer
    with anyio.fail_after(10):
        facts = await driver.facts()
    assert dict(facts.lines)["engine's machine"] == ""


STORE = "python-exec-sandbox-store"
OURS = {SHARED: "true"}


def _builder_that(
    outcome: dict[str, object], requests: list[dict[str, object]]
) -> Callable[[RunnerEnd], None]:
    """Reads its request, answers ``outcome`` and ends."""

    def play(end: RunnerEnd) -> None:
        line = b""
        while not line.endswith(b"\n"):
            line += end.receive()
        requests.append(json.loads(line))
        end.send(json.dumps(outcome).encode() + b"\n")
        end.engine.end_container(end.container, 0)

    return play


async def test_installed_packages_are_found_only_when_they_are_asked_for(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    with anyio.fail_after(10):
        assert await driver.leftovers(environments=True) == []
        engine.volumes[STORE] = OURS
        assert await driver.leftovers() == []
        (one,) = await driver.leftovers(environments=True)
        assert (one.kind, one.name) == (Kind.STORE, STORE)
        await driver.remove(one)
        assert engine.volumes == {}
        await driver.remove(one)  # it has gone meanwhile


@pytest.mark.parametrize(("labels", "in_use"), [(OURS, True), ({}, False)])
async def test_a_store_that_is_in_use_or_a_persons_own_is_only_emptied(
    engine: FakeEngine, labels: dict[str, str], in_use: bool
) -> None:
    engine.images["mine:1"] = FIT
    engine.volumes[STORE] = labels
    if in_use:
        engine.faults["unvolume"] = Refuse(409, "remove x: volume is in use - [abc]")
    requests: list[dict[str, object]] = []
    engine.player = _builder_that({"type": "trimmed", "freed": 5}, requests)
    async with DockerDriver(DockerOptions(docker_host=engine.address, image="mine:1")) as driver:
        with anyio.fail_after(10):
            (one,) = await driver.leftovers(environments=True)
            await driver.remove(one)
            assert list(engine.volumes) == [STORE]
            assert [request["task"] for request in requests] == ["trim"]
            engine.player = _builder_that({"type": "failed", "cause": "fault", "text": "oops"}, requests)
            with pytest.raises(DriverError, match="oops"):
                await driver.remove(one)
