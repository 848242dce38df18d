"""The sandbox image is found, built or pulled once, whoever asks and whoever gives up asking."""

from collections.abc import AsyncIterator

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from python_exec_sandbox.drivers.docker.context import packaged_context, read_context
from python_exec_sandbox.drivers.docker.discovery import Candidate
from python_exec_sandbox.drivers.docker.gateway import Gateway
from python_exec_sandbox.drivers.docker.image import ImageKeeper
from python_exec_sandbox.drivers.docker.options import DockerOptions, PullPolicy
from python_exec_sandbox.errors import EngineUnreachable, ImageUnavailable
from python_exec_sandbox.stream.protocol import PROTOCOL_VERSION
from tests.support.fake_engine import Cut, FakeEngine, Late, Refuse

pytestmark = pytest.mark.anyio

FIT = {"python-exec-sandbox.protocol": str(PROTOCOL_VERSION)}
BUILD = "POST /build"
PULL = "POST /images/create"
PACKAGED_TAG = read_context(packaged_context(), None).tag


@pytest.fixture
async def tasks() -> AsyncIterator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()


@pytest.fixture
async def gateway(engine: FakeEngine) -> AsyncIterator[Gateway]:
    engine.built_labels = FIT
    with anyio.fail_after(10):
        connected = await Gateway.connect(Candidate(engine.address, "a test"))
    yield connected
    connected.close()


def keeper(tasks: anyio.abc.TaskGroup, options: DockerOptions | None = None) -> ImageKeeper:
    return ImageKeeper(options or DockerOptions(), tasks, anyio.CapacityLimiter(1))


async def test_a_missing_image_is_built_once_for_all_who_wait(
    engine: FakeEngine, gateway: Gateway, tasks: anyio.abc.TaskGroup
) -> None:
    images = keeper(tasks)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as waiters:
            for _ in range(4):
                waiters.start_soon(images.ensure, gateway)
        await images.ensure(gateway)
    assert engine.requests.count(BUILD) == 1
    assert list(engine.images) == [PACKAGED_TAG]


async def test_an_image_that_is_there_is_not_built(
    engine: FakeEngine, gateway: Gateway, tasks: anyio.abc.TaskGroup
) -> None:
    engine.images[PACKAGED_TAG] = FIT
    with anyio.fail_after(10):
        assert await keeper(tasks).ensure(gateway) == "sha256:" + "ab" * 32
    assert BUILD not in engine.requests


async def test_a_build_goes_on_when_the_one_who_waits_gives_up(
    engine: FakeEngine, gateway: Gateway, tasks: anyio.abc.TaskGroup
) -> None:
    images = keeper(tasks)
    late = engine.faults["build"] = Late()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as waiters:
            waiters.start_soon(images.ensure, gateway)
            assert await anyio.to_thread.run_sync(late.reached.wait, 5)
            assert images.activity == "building the sandbox image"
            waiters.cancel_scope.cancel()
        late.gate.set()
        await images.ensure(gateway)
    assert engine.requests.count(BUILD) == 1
    assert images.activity is None


async def test_a_failed_build_tells_the_step_the_log_and_how_to_load_the_image(
    engine: FakeEngine, gateway: Gateway, tasks: anyio.abc.TaskGroup
) -> None:
    engine.build_messages = [
        {"stream": "Step 3/9 : FROM debian"},
        {"stream": "some log line\n"},
        {"error": "pull access denied for debian"},
    ]
    images = keeper(tasks)
    with anyio.fail_after(10):
        with pytest.raises(ImageUnavailable) as failed:
            await images.ensure(gateway)
        engine.build_messages = []
        await images.ensure(gateway)  # the next one tries again
    text = str(failed.value)
    for words in (PACKAGED_TAG, "step 3/9", "| some log line", "pull access denied", "docker load -i"):
        assert words in text


async def test_an_engine_that_goes_away_in_a_build_is_not_blamed_on_the_image(
    engine: FakeEngine, gateway: Gateway, tasks: anyio.abc.TaskGroup
) -> None:
    engine.faults["image"] = Cut()
    with anyio.fail_after(10), pytest.raises(EngineUnreachable):
        await keeper(tasks).ensure(gateway)


@pytest.mark.parametrize(
    ("policy", "present", "pulls"),
    [
        (PullPolicy.MISSING, True, 0),
        (PullPolicy.MISSING, False, 1),
        (PullPolicy.ALWAYS, True, 1),
        (PullPolicy.ALWAYS, False, 1),
        (PullPolicy.NEVER, True, 0),
    ],
)
async def test_an_image_of_ones_own_is_pulled_as_the_policy_says(
    engine: FakeEngine,
    gateway: Gateway,
    tasks: anyio.abc.TaskGroup,
    policy: PullPolicy,
    present: bool,
    pulls: int,
) -> None:
    if present:
        engine.images["mine:1"] = FIT
    images = keeper(tasks, DockerOptions(image="mine:1", pull_policy=policy))
    with anyio.fail_after(10):
        await images.ensure(gateway)
        await images.ensure(gateway)
    assert engine.requests.count(PULL) == pulls
    assert BUILD not in engine.requests


async def test_a_missing_image_that_may_not_be_pulled_says_how_to_get_it(
    gateway: Gateway, tasks: anyio.abc.TaskGroup
) -> None:
    images = keeper(tasks, DockerOptions(image="mine:1", pull_policy=PullPolicy.NEVER))
    with anyio.fail_after(10), pytest.raises(ImageUnavailable, match=r"mine:1 .*`docker pull mine:1`"):
        await images.ensure(gateway)


async def test_a_pull_that_is_refused_names_the_image_and_the_cause(
    engine: FakeEngine, gateway: Gateway, tasks: anyio.abc.TaskGroup
) -> None:
    engine.faults["pull"] = Refuse(404, "manifest for mine:1 not found: manifest unknown")
    images = keeper(tasks, DockerOptions(image="mine:1"))
    with anyio.fail_after(10), pytest.raises(ImageUnavailable, match=r"mine:1 .*manifest unknown"):
        await images.ensure(gateway)


async def test_the_progress_of_a_pull_adds_up_its_layers(
    engine: FakeEngine, gateway: Gateway, tasks: anyio.abc.TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def downloading(layer: str, current: int) -> dict[str, object]:
        detail = {"current": current, "total": 60_000_000}
        return {"status": "Downloading", "progressDetail": detail, "id": layer}

    engine.pull_messages = [
        {"status": "Pulling from mine", "id": "1"},
        downloading("a", 10_000_000),
        downloading("b", 30_000_000),
        {"status": "Download complete", "progressDetail": {}, "id": "b"},
    ]
    said: list[str] = []
    images = keeper(tasks, DockerOptions(image="mine:1"))
    monkeypatch.setattr(images, "_say", said.append)
    with anyio.fail_after(10):
        await images.ensure(gateway)
    assert said == ["pulling mine:1: 10 of 60 MB", "pulling mine:1: 40 of 120 MB"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [({}, "is no sandbox image"), ({"python-exec-sandbox.protocol": "99"}, "speaks runner protocol 99")],
)
async def test_an_image_that_does_not_fit_is_refused(
    engine: FakeEngine, gateway: Gateway, tasks: anyio.abc.TaskGroup, labels: dict[str, str], words: str
) -> None:
    engine.images["mine:1"] = labels
    images = keeper(tasks, DockerOptions(image="mine:1"))
    with anyio.fail_after(10), pytest.raises(ImageUnavailable, match=words):
        await images.ensure(gateway)
