"""The pool on the real engine, through a real client: what happens behind its back, bursts, rest, engine restarts."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from docker.models.containers import Container
from mcp.types import CallToolResult

from integration.support.engine import Engine, processes_of, sandbox_image
from integration.support.own_engine import OwnEngine, own_engine, why_not
from integration.support.servers import RunningServer, StartServer, running_server, text_of
from python_exec_sandbox.drivers.docker.context import packaged_context, read_context

pytestmark = pytest.mark.anyio

WARM_SECONDS = 60.0
"""Within this the pool is full: a sandbox takes half a second, many times that beside other work."""

SILENT_SECONDS = 10.0
"""A call that meets a paused sandbox asks it, then the others, for 2 s each; the rest is a new sandbox."""

LOSS_SECONDS = 20.0
"""From the loss of a sandbox in the middle of a run to its result: 2 s beyond its limits at most, and time
for the engine to stop."""

REFUSAL_SECONDS = 10.0
"""A call without an engine is refused as soon as the socket refuses; the rest is the machine's other work."""

BACK_SECONDS = 30.0
"""From the engine's answer to the next successful call: 5 s until the next attempt, and a new sandbox."""

MAKING_SECONDS = 0.4
"""The least that a sandbox takes to be made: a call that waited far less found one."""

BUSY = "import subprocess\nprint('partial', flush=True)\nsubprocess.run(['sleep', '4711'])"
BUSY_WORD = "sleep 4711"
IDLE_WORD = "script.py"
"""On the command line of an interpreter that waits, or runs."""

WHICH = (
    "print([line for line in open('/proc/self/mountinfo') if ' / / ' in line][0]"
    ".partition('upperdir=')[2].partition(',')[0])"
)
"""Names the sandbox from inside: the layer of its root file system, new for each container."""


def facts(result: CallToolResult) -> dict[str, Any]:
    raw = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    [data] = [value for key, value in raw["_meta"].items() if key.endswith("/run")]
    return dict(data)


async def succeeds(server: RunningServer, number: int = 0, **arguments: object) -> None:
    shown = text_of(await server.execute(f"print('call', {number})", **arguments))
    assert shown.startswith("exit 0") and f"call {number}\n" in shown, shown


def with_process(containers: list[Container], word: str) -> list[Container]:
    return [container for container in containers if word in processes_of(container)]


async def full(engine: Engine, server: RunningServer, size: int) -> list[Container]:
    """The containers of the server, once ``size`` interpreters wait in them and none else is there."""
    with anyio.fail_after(WARM_SECONDS):
        while True:
            there = await anyio.to_thread.run_sync(engine.containers_of, server.pid)
            warm = await anyio.to_thread.run_sync(with_process, there, IDLE_WORD)
            if len(warm) == len(there) == size:
                return warm
            await anyio.sleep(0.1)  # polls another program


async def busy_one(engine: Engine, server: RunningServer) -> Container:
    with anyio.fail_after(WARM_SECONDS):
        while True:
            there = await anyio.to_thread.run_sync(engine.containers_of, server.pid)
            if found := await anyio.to_thread.run_sync(with_process, there, BUSY_WORD):
                return found[0]
            await anyio.sleep(0.05)  # polls another program


# -- Behind the server's back ------------------------------------------------------------------------

HARMS: dict[str, Callable[[Container], object]] = {
    "killed": lambda container: container.kill(),
    "removed": lambda container: container.remove(force=True),
    "paused": lambda container: container.pause(),
}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("harm", HARMS)
async def test_four_calls_in_a_row_succeed_after_all_idle_sandboxes_were(
    harm: str, size: int, start_server: StartServer, engine: Engine
) -> None:
    async with start_server("--pool-size", str(size)) as server:
        await succeeds(server)
        for container in await full(engine, server, size):
            await anyio.to_thread.run_sync(HARMS[harm], container)
        start = time.monotonic()
        await succeeds(server, 1)
        assert time.monotonic() - start < SILENT_SECONDS
        for number in range(2, 5):
            await succeeds(server, number)


async def test_a_sandbox_paused_while_it_runs_is_lost_with_what_it_printed_and_the_next_calls_succeed(
    start_server: StartServer, engine: Engine
) -> None:
    async with start_server("--pool-size", "2") as server:
        results: list[CallToolResult] = []

        async def run() -> None:
            results.append(await server.execute(BUSY, timeout_seconds=3))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            container = await busy_one(engine, server)
            await anyio.to_thread.run_sync(container.pause)
            start = time.monotonic()
            for number in range(2):
                await succeeds(server, number)
        assert time.monotonic() - start < LOSS_SECONDS
        assert results[0].is_error
        assert facts(results[0])["verdict"] in {"sandbox_lost", "timed_out"}
        assert "--- stdout ---\npartial\n" in text_of(results[0])
        for number in range(2, 6):
            await succeeds(server, number)


# -- Many calls, no calls, other versions --------------------------------------------------------------


async def test_a_burst_of_twice_the_pools_size_is_served_each_in_a_sandbox_of_its_own(
    start_server: StartServer, engine: Engine
) -> None:
    size = 3
    async with start_server("--pool-size", str(size), "--max-sandboxes", "4") as server:
        await full(engine, server, size)
        results: list[CallToolResult] = []

        async def run() -> None:
            results.append(await server.execute(WHICH))

        async with anyio.create_task_group() as tasks:
            for _ in range(2 * size):
                tasks.start_soon(run)
        layers = {text_of(result).split("--- stdout ---\n")[1].splitlines()[0] for result in results}
        assert all(facts(result)["verdict"] == "ok" for result in results)
        assert all(len(layer) > 20 for layer in layers)
        assert len(layers) == 2 * size
        await full(engine, server, size)


async def test_the_idle_pool_drains_to_nothing_and_fills_again_at_the_next_call(
    start_server: StartServer, engine: Engine
) -> None:
    async with start_server("--pool-size", "2", "--idle-timeout", "5") as server:
        for number in range(2):
            await succeeds(server, number)
            await full(engine, server, 2)
            await full(engine, server, 0)


async def test_a_version_asked_for_lately_is_warm_at_its_second_call_and_the_default_stays_warm(
    start_server: StartServer, engine: Engine
) -> None:
    async with start_server("--pool-size", "2", "--log-level", "debug") as server:
        await full(engine, server, 2)
        script = "import sys; print(sys.version_info[:2])"
        await server.execute(script, python_version="3.14")
        with anyio.fail_after(WARM_SECONDS):
            while server.log.read_text().count("with Python 3.14 is ready") < 2:
                await anyio.sleep(0.05)  # polls another program
        for version, shown in (("3.14", "(3, 14)"), ("3.13", "(3, 13)")):
            result = await server.execute(script, python_version=version)
            assert f"--- stdout ---\n{shown}\n" in text_of(result)
            assert facts(result)["warm"] is True
            assert facts(result)["wait_seconds"] < MAKING_SECONDS / 2
        await full(engine, server, 3)


async def test_a_default_version_that_the_image_lacks_is_no_hindrance_to_calls_for_others(
    engine: Engine,
    start_server: StartServer,
) -> None:
    image = ("--image", sandbox_image(engine))  # of an image of their own a person may know more than we do
    async with start_server("--python-version", "3.12", "--pool-size", "2", *image) as server:
        with anyio.fail_after(WARM_SECONDS):
            while "no Python 3.12" not in server.log.read_text():
                await anyio.sleep(0.05)  # polls another program
        assert "no Python 3.12" in text_of(await server.execute("print(1)"))
        for number in range(4):
            await succeeds(server, number, python_version="3.13")
        assert "the pool went from" not in server.log.read_text(), "one version's absence concerns the others"


# -- The engine goes and comes back --------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded() -> Iterator[tuple[OwnEngine, str]]:
    """A running engine of our own, with the sandbox image under its name."""
    from integration.conftest import engine_or_reason

    machines = engine_or_reason()
    if (reason := why_not()) or isinstance(machines, str):
        pytest.skip(reason or str(machines))
    image = read_context(packaged_context(), None).tag
    with own_engine() as engine:
        engine.load(image, machines)
        yield engine, image


@pytest.fixture
async def guest(loaded: tuple[OwnEngine, str], tmp_path: Path) -> AsyncIterator[RunningServer]:
    """A server on the engine of our own, with two warm sandboxes; afterwards the engine runs and is empty."""
    engine, image = loaded
    await anyio.to_thread.run_sync(ensure, engine)
    flags = ("--docker-host", engine.address, "--image", image, "--network", "none", "--pool-size", "2")
    async with running_server(tmp_path, *flags) as server:
        await succeeds(server)
        await stands(engine, 2)
        yield server
    await anyio.to_thread.run_sync(ensure, engine)
    await stands(engine, 0)


def ensure(engine: OwnEngine) -> None:
    """Start it if a test failed before it did."""
    if not engine.running:
        engine.start()


async def stands(engine: OwnEngine, count: int) -> None:
    """So many containers are on the engine, and no more."""
    with anyio.fail_after(WARM_SECONDS):
        while len(await anyio.to_thread.run_sync(engine.containers)) != count:
            await anyio.sleep(0.1)  # polls another program


async def refused(server: RunningServer, address: str) -> None:
    """A call says at once what is wrong and where, and the server goes on answering."""
    with anyio.fail_after(REFUSAL_SECONDS):
        result = await server.execute("print('ran')")
        await server.client.list_tools()
    shown = text_of(result)
    assert result.is_error
    assert "engine" in shown and address in shown, shown


async def back(server: RunningServer) -> None:
    """Calls succeed soon, and from then on each."""
    with anyio.fail_after(BACK_SECONDS):
        while (await server.execute("print('back')")).is_error:
            await anyio.sleep(0.2)  # the answer says when the next attempt is due
    for number in range(4):
        await succeeds(server, number)


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_an_engine_that_goes_while_sandboxes_are_idle_is_used_again_when_it_is_back(
    how: str, guest: RunningServer, loaded: tuple[OwnEngine, str]
) -> None:
    engine, _ = loaded
    await anyio.to_thread.run_sync(engine.stop if how == "stopped" else engine.kill)
    for _ in range(3):
        await refused(guest, engine.address)
    await anyio.to_thread.run_sync(engine.start)
    await back(guest)
    await stands(engine, 2)


async def test_an_engine_that_was_restarted_between_two_calls_is_no_news_to_the_second(
    guest: RunningServer, loaded: tuple[OwnEngine, str]
) -> None:
    engine, _ = loaded
    await anyio.to_thread.run_sync(engine.stop)
    await anyio.to_thread.run_sync(engine.start)
    await succeeds(guest)
    await back(guest)


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_an_engine_that_goes_in_the_middle_of_a_run_loses_it_with_what_it_printed(
    how: str, guest: RunningServer, loaded: tuple[OwnEngine, str]
) -> None:
    engine, _ = loaded
    results: list[CallToolResult] = []

    async def run() -> None:
        results.append(await guest.execute(BUSY, timeout_seconds=100))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(WARM_SECONDS):
            while not await anyio.to_thread.run_sync(engine.runs, BUSY_WORD):
                await anyio.sleep(0.05)  # polls another program
        start = time.monotonic()
        await anyio.to_thread.run_sync(engine.stop if how == "stopped" else engine.kill)
    assert time.monotonic() - start < LOSS_SECONDS
    assert facts(results[0])["verdict"] == "sandbox_lost"
    assert "--- stdout ---\npartial\n" in text_of(results[0])
    await refused(guest, engine.address)
    await anyio.to_thread.run_sync(engine.start)
    await back(guest)
