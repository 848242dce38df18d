"""The network of sandboxes is found or made, once per connection, whoever else makes it too."""

import json
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest

from python_exec_sandbox.drivers.docker import network as network_module
from python_exec_sandbox.drivers.docker.discovery import Candidate
from python_exec_sandbox.drivers.docker.failure import EngineRefused
from python_exec_sandbox.drivers.docker.gateway import Gateway
from python_exec_sandbox.drivers.docker.network import NETWORK_NAME, NetworkKeeper
from python_exec_sandbox.drivers.docker.options import Network
from python_exec_sandbox.errors import CreateFailed
from tests.support.fake_engine import FakeEngine, Late, Refuse

pytestmark = pytest.mark.anyio

LOOK = "GET /networks"
MAKE = "POST /networks/create"


@pytest.fixture
async def gateway(engine: FakeEngine) -> AsyncIterator[Gateway]:
    with anyio.fail_after(10):
        connected = await Gateway.connect(Candidate(engine.address, "a test"))
    yield connected
    connected.close()


async def test_without_a_network_none_is_looked_for(engine: FakeEngine, gateway: Gateway) -> None:
    with anyio.fail_after(10):
        assert await NetworkKeeper(Network.NONE).mode(gateway) == "none"
    assert LOOK not in engine.requests


async def test_a_missing_network_is_made_once_without_traffic_between_containers(
    engine: FakeEngine, gateway: Gateway
) -> None:
    keeper = NetworkKeeper(Network.FULL)
    modes: list[str] = []

    async def ask() -> None:
        modes.append(await keeper.mode(gateway))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(ask)
    assert engine.requests.count(MAKE) == 1
    assert set(modes) == {engine.networks[0]["Id"]}
    asked = json.loads(engine.bodies["network"])
    assert (asked["Name"], asked["Driver"]) == ("python-exec-sandbox", "bridge")
    assert asked["Options"] == {"com.docker.network.bridge.enable_icc": "false"}
    assert asked["Labels"] == {"python-exec-sandbox.shared": "true"}
    assert asked["CheckDuplicate"] is True


async def test_the_network_is_looked_up_once_per_connection(engine: FakeEngine, gateway: Gateway) -> None:
    made = engine.add_network(NETWORK_NAME)
    keeper = NetworkKeeper(Network.FULL)
    with anyio.fail_after(10):
        for _ in range(3):
            assert await keeper.mode(gateway) == made
        assert engine.requests.count(LOOK) == 1
        other = await Gateway.connect(Candidate(engine.address, "another connection"))
        assert await keeper.mode(other) == made
        other.close()
    assert engine.requests.count(LOOK) == 2
    assert MAKE not in engine.requests


async def test_of_several_networks_with_the_name_the_oldest_is_left(
    engine: FakeEngine, gateway: Gateway
) -> None:
    engine.add_network(NETWORK_NAME, created="2026-03-03")
    oldest = engine.add_network(NETWORK_NAME, created="2026-02-02")
    engine.add_network(NETWORK_NAME, created="2026-04-04")
    other = engine.add_network(NETWORK_NAME + "-of-someone", created="2025-01-01")
    modes: list[str] = []

    async def ask() -> None:
        modes.append(await NetworkKeeper(Network.FULL).mode(gateway))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):  # servers
                tasks.start_soon(ask)
    assert modes == [oldest] * 3
    assert {network["Id"] for network in engine.networks} == {oldest, other}


async def test_of_several_networks_the_one_in_use_is_left(engine: FakeEngine, gateway: Gateway) -> None:
    engine.add_network(NETWORK_NAME, created="2026-02-02")
    used = engine.add_network(NETWORK_NAME, created="2026-03-03")
    with anyio.fail_after(10):
        await gateway.create("name", {"HostConfig": {"NetworkMode": used}})
        assert await NetworkKeeper(Network.FULL).mode(gateway) == used


async def test_networks_that_can_not_be_told_apart_are_an_error_that_says_what_to_do(
    engine: FakeEngine, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "_PAUSE_SECONDS", (0.0, 0.01))
    engine.faults["unmake"] = Refuse(403, "network has active endpoints")
    for _ in range(2):
        engine.add_network(NETWORK_NAME)
    with anyio.fail_after(10), pytest.raises(CreateFailed, match=r"docker network rm.*--network none"):
        await NetworkKeeper(Network.FULL).mode(gateway)


async def test_a_network_that_another_server_made_meanwhile_is_taken(
    engine: FakeEngine, gateway: Gateway
) -> None:
    late = engine.faults["network"] = Late()
    modes: list[str] = []

    async def ask() -> None:
        modes.append(await NetworkKeeper(Network.FULL).mode(gateway))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            assert await anyio.to_thread.run_sync(late.reached.wait, 5)
            theirs = engine.add_network(NETWORK_NAME)
            late.gate.set()
    assert modes == [theirs]
    assert len(engine.networks) == 1


@pytest.mark.parametrize("wrong", [{"icc": "true"}, {"driver": "macvlan"}])
async def test_a_network_of_the_name_that_connects_its_containers_is_refused(
    engine: FakeEngine, gateway: Gateway, wrong: dict[str, str]
) -> None:
    engine.add_network(NETWORK_NAME, icc=wrong.get("icc", "false"))
    engine.networks[0]["Driver"] = wrong.get("driver", "bridge")
    with anyio.fail_after(10), pytest.raises(CreateFailed, match=r"docker network rm .*--network none"):
        await NetworkKeeper(Network.FULL).mode(gateway)


@pytest.mark.parametrize(
    ("status", "said", "advice"),
    [
        (
            500,
            "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network",
            "docker network prune",
        ),
        (403, "operation is not permitted", "Restart the engine"),
        (500, "unsupported bridge network option com.docker.network.bridge.enable_icc", "Restart the engine"),
        (500, "Failed to Setup IP tables: iptables failed: iptables: No chain", "restart the engine"),
    ],
)
async def test_a_network_that_can_not_be_made_names_the_cause_and_the_way_without(
    engine: FakeEngine, gateway: Gateway, status: int, said: str, advice: str
) -> None:
    engine.faults["network"] = Refuse(status, said)
    with anyio.fail_after(10), pytest.raises(CreateFailed) as failed:
        await NetworkKeeper(Network.FULL).mode(gateway)
    text = str(failed.value)
    assert said in text
    assert advice in text
    assert text.count("--network none") == 1


async def test_only_the_engines_word_about_this_network_makes_it_forgotten(
    engine: FakeEngine, gateway: Gateway
) -> None:
    keeper = NetworkKeeper(Network.FULL)
    with anyio.fail_after(10):
        mode = await keeper.mode(gateway)
        assert not keeper.forget_if_gone(EngineRefused("start", 404, "network 12ab not found"))
        assert not keeper.forget_if_gone(EngineRefused("start", 500, f"no space left for {mode}"))
        assert keeper.forget_if_gone(EngineRefused("start", 404, f"network {mode} not found"))
        assert not keeper.forget_if_gone(EngineRefused("start", 404, f"network {mode} not found"))
        assert await keeper.mode(gateway) == mode
        said = f"network {NETWORK_NAME} is ambiguous (2 matches found on name)"
        assert keeper.forget_if_gone(EngineRefused("start", 400, said))
    assert engine.requests.count(LOOK) == 3
