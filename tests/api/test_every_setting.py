"""Each setting changes something that can be seen: what an engine is asked, what a sandbox is given to run,
how the pool is set up, what a client reads. A new setting without a row here is a failure."""

import contextlib
import logging
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
import pytest
from mcp.client.client import Client

from python_exec_sandbox.api import backends
from python_exec_sandbox.api.app import build
from python_exec_sandbox.drivers.base import RunWatcher
from python_exec_sandbox.drivers.docker.discovery import Surroundings, find_engines
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.options import DockerOptions
from python_exec_sandbox.drivers.unsandboxed.driver import UnsandboxedDriver
from python_exec_sandbox.egress.dial import DialFailed, Refused
from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.logs import configure_logging
from python_exec_sandbox.model.environment import BuildFailed, BuildFault
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.result import OutputStream, RunReport, StopReason
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.stats import PoolStats
from python_exec_sandbox.run.executor import Executor
from python_exec_sandbox.run.records import RunRequest, RunResult
from python_exec_sandbox.setting_sources import load_settings
from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings
from tests.drivers.docker.test_driver import FIT, until_hung_up
from tests.support.fake_builder import Build, FakeBuilder
from tests.support.fake_engine import FakeEngine
from tests.support.fake_serving import open_obedient

pytestmark = pytest.mark.anyio

PRINTED_BYTES = 4 * 1024 * 1024

Observe = Callable[[Settings], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """What is seen under ``base`` differs from what is seen when ``value`` is given as well."""

    value: str | bool
    observe: Observe
    base: dict[str, Any] = field(default_factory=dict)


# -- what an engine is asked -------------------------------------------------------------------------


@dataclass
class Asked:
    """``body`` is the request for a container, ``requests`` all of them, ``images`` the tags there then."""

    body: dict[str, Any]
    requests: list[str]
    images: list[str]


async def _asked(settings: Settings) -> Asked:
    with (
        tempfile.TemporaryDirectory(prefix="pes-") as folder,
        FakeEngine(Path(folder) / "engine.sock").running() as engine,
    ):
        engine.images["mine:1"] = engine.built_labels = FIT
        engine.player = until_hung_up
        options = backends.docker_options(settings.model_copy(update={"docker_host": engine.address}))
        async with DockerDriver(options) as driver:
            with anyio.fail_after(10):
                sandbox = await driver.create(settings.python_version)
            body = engine.containers[sandbox.id].body
            return Asked(body, list(engine.requests), list(engine.images))


def host(*keys: str) -> Observe:
    """Parts of the container's host configuration."""

    async def observe(settings: Settings) -> object:
        config = (await _asked(settings)).body["HostConfig"]
        return [config.get(key) for key in keys]

    return observe


async def has_network(settings: Settings) -> object:
    return (await _asked(settings)).body["HostConfig"]["NetworkMode"] != "none"


async def sizes(settings: Settings) -> object:
    """How large each writable folder may become."""
    config = (await _asked(settings)).body["HostConfig"]
    folders = {path: re.findall(r"size=(\d+)", options) for path, options in config["Tmpfs"].items()}
    return folders | {"/dev/shm": [str(config["ShmSize"])]}


def request(*operations: str) -> Observe:
    """Which of these the engine was asked for."""

    async def observe(settings: Settings) -> object:
        requests = (await _asked(settings)).requests
        return [operation in requests for operation in operations]

    return observe


async def image_tags(settings: Settings) -> object:
    return (await _asked(settings)).images


async def variables(settings: Settings) -> object:
    return (await _asked(settings)).body["Env"]


async def addresses(settings: Settings) -> object:
    nothing = Surroundings({}, Path("/home/ada"), 1000, read=lambda _: None, is_socket=lambda _: False)
    return find_engines(nothing, backends.docker_options(settings).docker_host).candidates


# -- what a sandbox is given to run ------------------------------------------------------------------


@dataclass
class Recording:
    """A pool, its lease and its sandbox in one: keeps the job and prints much."""

    job: Job | None = None
    id: str = "recording"

    async def acquire(self, python: str, *, timeout: float) -> "Recording":  # noqa: ASYNC109 - the pool's signature
        return self

    @property
    def sandbox(self) -> Any:
        return self

    def finish(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, job: Job, watcher: RunWatcher) -> RunReport:
        self.job = job
        await watcher.output(OutputStream.STDOUT, b"x" * PRINTED_BYTES)
        return RunReport(StopReason.EXITED, exit_code=0)


async def _ran(settings: Settings, run: RunRequest) -> tuple[Job, RunResult]:
    pool = Recording()
    settings = settings.model_copy(update={"network": Network.FULL})  # without a store packages need it
    result = await Executor(pool, backends.executor_options(settings, "docker")).run(run)
    assert pool.job is not None
    return pool.job, result


def job(part: Callable[[Job], object]) -> Observe:
    async def observe(settings: Settings) -> object:
        return part((await _ran(settings, RunRequest("print(1)", dependencies=("six",))))[0])

    return observe


async def kept_bytes(settings: Settings) -> object:
    return PRINTED_BYTES - (await _ran(settings, RunRequest("print(1)")))[1].stdout.dropped_bytes


async def allows_200_seconds(settings: Settings) -> object:
    try:
        await _ran(settings, RunRequest("print(1)", timeout_seconds=200))
    except SandboxError:
        return False
    return True


async def allows_an_address(settings: Settings) -> object:
    try:
        await _ran(settings, RunRequest("print(1)", dependencies=("x @ https://files.example/x-1.tar.gz",)))
    except SandboxError as error:
        return str(error)
    return True


# -- the rest ----------------------------------------------------------------------------------------


def pool(part: Callable[[PoolConfig], object]) -> Observe:
    async def observe(settings: Settings) -> object:
        return part(backends.pool_config(settings, warm=True))

    return observe


async def what_a_builder_is_asked(settings: Settings) -> object:
    builder = FakeBuilder()
    async with backends.environment_store(settings, builder) as store:
        await store.obtain("3.13", ("six",), 10, lambda _: None)
    return builder.requests


async def whether_packages_come_ahead(settings: Settings) -> object:
    store = backends.environment_store(settings, FakeBuilder())

    def stats() -> PoolStats:
        raise AssertionError("nobody is to look yet")

    return backends.package_warm_up(settings, store, stats) is not None


async def what_a_builder_is_asked_for_a_source(settings: Settings) -> object:
    builder = FakeBuilder(Build(BuildFailed(BuildFault.NEEDS_SOURCE)))
    async with backends.environment_store(settings, builder) as store:
        await store.obtain("3.13", ("six",), 10, lambda _: None)
    return [request.source for request in builder.requests]


async def what_runs_scripts(settings: Settings) -> object:
    async with backends.open_backend(settings, warm=False) as opened:
        return type(opened.executor)


async def found_uv(settings: Settings) -> object:
    async with UnsandboxedDriver(backends.unsandboxed_options(settings)) as driver:
        try:
            return await driver.pythons()
        except SandboxError as error:
            return str(error)


async def answer(settings: Settings) -> object:
    """The answer to a call, as a client gets it."""
    made = await anyio.to_thread.run_sync(lambda: build(settings, open_obedient))
    with anyio.fail_after(20):
        async with Client(made.server) as client:
            result = await client.call_tool("execute_python", {"script": "say " + "y" * 900})
    return result.model_dump(exclude={"meta"})


async def lowest_level_told(settings: Settings) -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # or its setup would close pytest's own
    try:
        configure_logging(settings.log_level)
        return root.level
    finally:
        root.handlers, root.level = handlers, level


async def what_a_tunnel_answers(settings: Settings) -> object:
    """The rules by which three connections are refused, or failed to be made."""
    open_tunnel = backends.tunnels(settings)
    assert open_tunnel is not None
    told = []
    for host, port in (("name.invalid", 443), ("10.255.255.255", 80), ("192.168.0.1", 9)):
        tunnel = open_tunnel()
        with anyio.move_on_after(0.5):  # what is allowed goes on to knock, at nobody's door
            with contextlib.suppress(Refused, DialFailed):
                await (await tunnel.reach(host, port)).close()
        told.append([one.rule for one in tunnel.traffic().refused])
    return told


OWN_IMAGE = {"image": "mine:1"}
NOWHERE = {"docker_host": "unix:///nonexistent/engine.sock", "sandbox_backend": "docker"}

ROWS = {
    "python_version": Row("3.14", job(lambda seen: seen.python)),
    "max_timeout": Row("100", allows_200_seconds),
    "default_timeout": Row("7", job(lambda seen: seen.limits.run_seconds)),
    "install_timeout": Row("7", job(lambda seen: seen.limits.install_seconds)),
    "resolution_ttl": Row("60", what_a_builder_is_asked),
    "index_url": Row("https://packages.example/simple/", what_a_builder_is_asked),
    "extra_index_url": Row("https://packages.example/more/", what_a_builder_is_asked),
    "exclude_newer": Row("2026-05-01", what_a_builder_is_asked),
    "only_index": Row(True, allows_an_address),
    "source_builds": Row("refuse", what_a_builder_is_asked_for_a_source),
    "store": Row("other-store", host("Mounts"), OWN_IMAGE),
    "store_size": Row("1GiB", what_a_builder_is_asked),
    "python_mirror": Row("https://pythons.example", what_a_builder_is_asked),
    "sandbox_backend": Row("none", what_runs_scripts, NOWHERE),
    "allow_unsandboxed": Row(True, what_runs_scripts, NOWHERE),
    "uv_path": Row("/no/such/uv", found_uv, {"sandbox_backend": "none"}),
    "network": Row("full", has_network, OWN_IMAGE),
    "allow_domain": Row("example.org", what_a_tunnel_answers),
    "allow_address": Row("10.0.0.0/8", what_a_tunnel_answers),
    "allow_port": Row("9", what_a_tunnel_answers),
    "docker_host": Row("unix:///some/engine.sock", addresses),
    "runtime": Row("runsc", host("Runtime"), OWN_IMAGE),
    "image": Row("mine:1", request("POST /build")),
    "base_image": Row("debian:mine", image_tags),
    "pull_policy": Row("always", request("POST /images/create"), OWN_IMAGE),
    "ca_bundle": Row(__file__, variables, OWN_IMAGE),
    "memory": Row("1GiB", host("Memory", "MemorySwap"), OWN_IMAGE),
    "cpus": Row("2.5", host("NanoCpus"), OWN_IMAGE),
    "pids": Row("64", host("PidsLimit"), OWN_IMAGE),
    "disk": Row("64MiB", sizes, OWN_IMAGE),
    "max_output_bytes": Row("1MiB", kept_bytes),
    "show_chars": Row("300", answer),
    "output_kill_bytes": Row("1MiB", job(lambda seen: seen.limits.output_bytes)),
    "structured_output": Row(True, answer),
    "max_sandboxes": Row("4", pool(lambda seen: seen.max_total)),
    "pool_size": Row("1", pool(lambda seen: seen.idle_target)),
    "max_waiting": Row("0", pool(lambda seen: seen.max_waiting)),
    "idle_timeout": Row("5", pool(lambda seen: seen.idle_timeout)),
    "settle_time": Row("0", pool(lambda seen: seen.settle_time)),
    "log_level": Row("debug", lowest_level_told),
    "no_warm_cache": Row(True, whether_packages_come_ahead),
}


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


def test_each_setting_has_a_row_and_each_row_a_setting() -> None:
    assert ROWS.keys() == set(Settings.model_fields)


async def _seen(name: str) -> tuple[object, object, object]:
    """What is seen without the setting, once more, and with it. Settings look at files: in a thread."""
    row = ROWS[name]
    without = await anyio.to_thread.run_sync(load_settings, row.base)
    given = await anyio.to_thread.run_sync(load_settings, {**row.base, name: row.value})
    assert getattr(given, name) != getattr(without, name)
    return await row.observe(without), await row.observe(without), await row.observe(given)


@pytest.mark.parametrize("name", ROWS)
async def test_the_setting_changes_what_is_seen(name: str) -> None:
    before, again, after = await _seen(name)
    assert before == again, "seen differently without any change"
    assert after != before


OF_CONTAINERS = ("memory", "cpus", "pids", "disk", "runtime", "network", "pull_policy", "ca_bundle")


@pytest.mark.parametrize("name", OF_CONTAINERS)
async def test_a_setting_that_does_not_reach_the_containers_would_be_found_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(settings: Settings) -> DockerOptions:
        return DockerOptions(image="mine:1", docker_host=settings.docker_host)

    monkeypatch.setattr(backends, "docker_options", deaf)
    before, _, after = await _seen(name)
    assert after == before
