"""A build against the fake engine, whose containers play the builder."""

import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import anyio
import anyio.to_thread
import pytest

from python_exec_sandbox.drivers import following
from python_exec_sandbox.drivers.docker.build_spec import BuilderSpec
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.options import DockerOptions, Network
from python_exec_sandbox.errors import CreateFailed
from python_exec_sandbox.model.environment import (
    BuildFailed,
    BuildFault,
    BuildOutcome,
    BuildRequest,
    BuiltEnvironment,
    InstallerSettings,
    Package,
    Task,
    Warmed,
)
from python_exec_sandbox.stream.protocol import PROTOCOL_VERSION
from tests.support.fake_engine import FakeEngine, Refuse, RunnerEnd

pytestmark = pytest.mark.anyio

BOUND = 10.0
REQUEST = BuildRequest("3.13", ("six",), resolution_seconds=60.0, install_seconds=5.0)
NAME = "0123456789abcdef" * 2
BUILT = {"type": "built", "id": NAME, "reused": False, "packages": [["six", "1"]], "fresh_seconds": 60.0}


def saying(*messages: object, until_hung_up: bool = True) -> Callable[[RunnerEnd], None]:
    """A builder that reads its request, says these messages, and ends."""

    def play(end: RunnerEnd) -> None:
        request = b""
        while not request.endswith(b"\n"):
            request += end.receive()
        assert json.loads(request)["requirements"] == ["six"]
        for message in messages:
            end.send(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        while until_hung_up and end.receive():
            pass
        end.engine.end_container(end.container, 0)

    return play


@pytest.fixture
def options(engine: FakeEngine) -> DockerOptions:
    engine.images["mine:1"] = {"python-exec-sandbox.protocol": str(PROTOCOL_VERSION)}
    return DockerOptions(docker_host=engine.address, image="mine:1", network=Network.NONE)


@pytest.fixture
async def driver(options: DockerOptions) -> AsyncIterator[DockerDriver]:
    async with DockerDriver(options) as opened:
        yield opened


async def build(driver: DockerDriver, words: list[str] | None = None, seconds: float = 5.0) -> BuildOutcome:
    heard = words if words is not None else []
    with anyio.fail_after(BOUND):
        return await driver.build(replace(REQUEST, install_seconds=seconds), heard.append)


async def until_gone(engine: FakeEngine) -> None:
    with anyio.fail_after(BOUND):
        while engine.containers:  # noqa: ASYNC110  # the fake engine lives in threads, which set no such event
            await anyio.sleep(0.01)


async def test_an_environment_comes_back_with_what_was_said_on_the_way(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.player = saying({"type": "progress", "words": "resolving"}, BUILT)
    words: list[str] = []
    outcome = await build(driver, words)
    assert outcome == BuiltEnvironment(f"/store/envs/{NAME}", (Package("six", "1"),), False, 60.0)
    assert words == ["resolving"]
    await until_gone(engine)


async def test_a_builder_has_the_network_and_the_store_even_where_scripts_have_neither(
    engine: FakeEngine, options: DockerOptions
) -> None:
    bodies: list[dict[str, object]] = []
    answer = saying(BUILT)

    def play(end: RunnerEnd) -> None:
        bodies.append(end.container.body)
        answer(end)

    engine.player = play
    async with DockerDriver(replace(options, store="my-store", instance="me")) as driver:
        await build(driver)
    (body,) = bodies
    assert body["Cmd"] == ["build"]
    host = body["HostConfig"]
    assert isinstance(host, dict)
    assert host["NetworkMode"] == engine.networks[0]["Id"]
    (mount,) = host["Mounts"]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == ("my-store", "/store", False)
    labels = body["Labels"]
    assert isinstance(labels, dict)
    assert labels["python-exec-sandbox.instance"] == "me", "so that it is swept like any other"


async def test_what_nobody_waits_for_gets_the_least_of_the_processor(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    shares: list[object] = []

    def play(end: RunnerEnd) -> None:
        host = end.container.body["HostConfig"]
        assert isinstance(host, dict)
        shares.append(host["CpuShares"])
        answer(end)

    engine.player = play
    with anyio.fail_after(BOUND):
        answer = saying(BUILT)
        await driver.build(REQUEST, lambda _: None)
        answer = saying({"type": "warmed", "package": "six", "left": 1})
        assert await driver.build(replace(REQUEST, task=Task.WARM), lambda _: None) == Warmed("six", 1)
    assert shares == [256, 2]


async def test_a_failure_is_an_outcome_and_its_container_is_gone(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.player = saying({"type": "failed", "cause": "installer", "text": "error: no such thing"})
    assert await build(driver) == BuildFailed(BuildFault.INSTALLER, "error: no such thing")
    assert engine.containers == {}


async def test_a_builder_that_takes_too_long_is_removed(engine: FakeEngine, driver: DockerDriver) -> None:
    engine.player = saying()
    assert await build(driver, seconds=0.2) == BuildFailed(BuildFault.TIME)
    assert engine.containers == {}


@pytest.mark.parametrize(
    ("causes", "fault"),
    [(("oom",), BuildFault.MEMORY), (("kill",), BuildFault.FAULT), ((), BuildFault.FAULT)],
)
async def test_a_builder_that_dies_is_explained_by_the_engines_events(
    engine: FakeEngine, driver: DockerDriver, causes: tuple[str, ...], fault: BuildFault
) -> None:
    def die(end: RunnerEnd) -> None:
        end.receive()
        end.engine.end_container(end.container, 137, *causes)

    engine.player = die
    outcome = await build(driver)
    assert isinstance(outcome, BuildFailed)
    assert outcome.fault is fault


@pytest.mark.parametrize("said", [{"type": "boast"}, BUILT | {"id": "../../x"}, b"x" * 2_000_000 + b"\n"])
async def test_what_no_builder_says_ends_it(engine: FakeEngine, driver: DockerDriver, said: object) -> None:
    engine.player = saying(said)
    outcome = await build(driver)
    assert isinstance(outcome, BuildFailed)
    assert outcome.fault is BuildFault.FAULT
    await until_gone(engine)


async def test_a_builder_that_never_stops_talking_is_ended(
    engine: FakeEngine, driver: DockerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MAX_ANSWER_BYTES", 10_000)
    engine.player = saying(*[{"type": "progress", "words": "x" * 100}] * 200, until_hung_up=False)
    outcome = await build(driver)
    assert isinstance(outcome, BuildFailed)
    assert "more than 10000 bytes" in outcome.text


async def test_a_cancelled_build_leaves_no_container(engine: FakeEngine, driver: DockerDriver) -> None:
    begun = threading.Event()

    def play(end: RunnerEnd) -> None:
        end.receive()
        begun.set()
        while end.receive():
            pass

    engine.player = play
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as calls:
            calls.start_soon(driver.build, REQUEST, lambda words: None)
            await anyio.to_thread.run_sync(begun.wait, BOUND)
            calls.cancel_scope.cancel()
    assert engine.containers == {}


async def test_an_engine_that_makes_no_container_is_an_error(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.faults["create"] = Refuse(500, "no space left on device")
    with pytest.raises(CreateFailed, match="no space left"):
        await build(driver)
    assert engine.containers == {}


def test_what_a_builder_is_made_from_changes_only_on_purpose() -> None:
    body = BuilderSpec(image="sha256:01", network="0a", store="s", labels={"a": "b"}, runtime="runsc").body()
    host = body.pop("HostConfig")
    assert body == {
        "Image": "sha256:01",
        "Cmd": ["build"],
        "User": "0:0",
        "WorkingDir": "/",
        "Hostname": "builder",
        "Env": [],
        "Labels": {"a": "b"},
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
    }
    assert host["CapDrop"] == ["ALL"]
    assert "CapAdd" not in host
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] is host["AutoRemove"] is True
    assert host["Memory"] == host["MemorySwap"] == 1024**3
    assert host["PidsLimit"] == 512
    assert host["LogConfig"] == {"Type": "none", "Config": {}}
    assert host["Runtime"] == "runsc"


SOURCE = replace(
    REQUEST, installer=InstallerSettings("secret = true"), source=InstallerSettings("public = true")
)


def lines_of(end: RunnerEnd, count: int) -> list[bytes]:
    data = b""
    while data.count(b"\n") < count and (piece := end.receive()):
        data += piece
    return data.splitlines()


async def test_what_a_build_sandbox_says_goes_to_the_builder_unread_and_both_are_gone(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    heard: dict[str, list[bytes]] = {}
    bodies: dict[str, dict[str, object]] = {}

    def play(end: RunnerEnd) -> None:
        (command,) = end.container.body["Cmd"]
        bodies[command] = end.container.body
        if command == "build-source":
            heard[command] = lines_of(end, 1)
            end.send(b"whatever ")
            end.send(b"it is\nand more")
        else:
            heard[command] = lines_of(end, 2)
            end.send(json.dumps(BUILT).encode() + b"\n")
        while end.receive():
            pass
        end.engine.end_container(end.container, 0)

    engine.player = play
    with anyio.fail_after(BOUND):
        outcome = await driver.build(SOURCE, lambda words: None)
    assert isinstance(outcome, BuiltEnvironment)
    assert json.loads(heard["build-source"][0])["installer"]["config"] == "public = true"
    request, passed_on = heard["build"]
    assert json.loads(request)["installer"]["config"] == "secret = true"
    assert json.loads(request)["from_source"] is True
    assert passed_on == b"whatever it is"
    host = bodies["build-source"]["HostConfig"]
    assert isinstance(host, dict)
    assert host["Mounts"] == []
    assert host["CapDrop"] == ["ALL"]
    assert bodies["build-source"]["User"] != "0:0"
    await until_gone(engine)


@pytest.mark.parametrize(
    ("sent", "causes", "fault"),
    [
        (b"", ("oom",), BuildFault.MEMORY),
        (b"", (), BuildFault.FAULT),
        (b"half a line", ("oom",), BuildFault.MEMORY),
    ],
)
async def test_a_build_sandbox_that_dies_is_explained(
    engine: FakeEngine, driver: DockerDriver, sent: bytes, causes: tuple[str, ...], fault: BuildFault
) -> None:
    def play(end: RunnerEnd) -> None:
        lines_of(end, 1)
        if end.container.body["Cmd"] == ["build-source"]:
            end.send(sent)
            end.engine.end_container(end.container, 137, *causes)
            return
        while end.receive():
            pass

    engine.player = play
    with anyio.fail_after(BOUND):
        outcome = await driver.build(SOURCE, lambda words: None)
    assert isinstance(outcome, BuildFailed)
    assert outcome.fault is fault
    assert engine.containers == {}


async def test_a_build_sandbox_that_never_stops_talking_is_ended(
    engine: FakeEngine, driver: DockerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MAX_BUILT_BYTES", 10_000)

    def play(end: RunnerEnd) -> None:
        lines_of(end, 1)
        if end.container.body["Cmd"] == ["build-source"]:
            end.send(b"x" * 20_000)
        while end.receive():
            pass

    engine.player = play
    with anyio.fail_after(BOUND):
        outcome = await driver.build(SOURCE, lambda words: None)
    assert isinstance(outcome, BuildFailed)
    assert "more than 10000 bytes" in outcome.text
    assert engine.containers == {}


async def test_a_build_sandbox_that_says_nothing_meets_the_limit(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.player = saying()
    with anyio.fail_after(BOUND):
        outcome = await driver.build(replace(SOURCE, install_seconds=0.2), lambda words: None)
    assert outcome == BuildFailed(BuildFault.TIME)
    assert engine.containers == {}
