"""Opens the backend of this kind of machine itself: bubblewrap on Linux, else Docker in its place."""

import logging
import os
import platform
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

import anyio

from python_exec_sandbox.api.backends import (
    docker_options,
    environment_store,
    executor_options,
    package_resolver,
    package_warm_up,
    pool_config,
    tunnels,
)
from python_exec_sandbox.api.budget import machine_memory, memory_budget
from python_exec_sandbox.api.runtime import Backend, RunsScripts
from python_exec_sandbox.drivers.bubblewrap.driver import BubblewrapDriver
from python_exec_sandbox.drivers.bubblewrap.options import BubblewrapOptions, Network
from python_exec_sandbox.drivers.bubblewrap.pythons import OLDEST_RUNNER
from python_exec_sandbox.drivers.bubblewrap.store import cache_folder, home_folder
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.errors import (
    ConfigurationError,
    DriverError,
    EngineUnreachable,
    PoolUnavailable,
    PythonUnavailable,
)
from python_exec_sandbox.pool.pool import Pool
from python_exec_sandbox.run.executor import Executor
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult
from python_exec_sandbox.script.intake import Examined
from python_exec_sandbox.settings import DEFAULT_STORE, Settings

logger = logging.getLogger(__name__)

OpenDocker = Callable[..., AbstractAsyncContextManager[Backend]]


@dataclass(frozen=True, slots=True)
class Noting:
    """Runs scripts, and says the same about each."""

    executor: RunsScripts
    note: str

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        result = await self.executor.run(request, listener)
        return replace(result, notes=(*result.notes, self.note))

    async def examine(self, request: RunRequest) -> Examined:
        return await self.executor.examine(request)


@dataclass(frozen=True, slots=True)
class Refusing:
    """In the pool's place: lends nothing, and says what to do about it."""

    cause: str

    async def acquire(self, python: str, *, timeout: float) -> NoReturn:  # noqa: ASYNC109 - the pool's signature
        raise PoolUnavailable(
            f"No sandbox can be made, and nothing was run. {self.cause} Then restart this server."
        ) from EngineUnreachable(self.cause)


@asynccontextmanager
async def open_native(settings: Settings, open_docker: OpenDocker, *, warm: bool) -> AsyncIterator[Backend]:
    """Sandboxes by bubblewrap. Where none can be made Docker is taken, if an engine answers, and each answer
    says so; else each run is refused with the cause. Nothing ever runs outside a sandbox here.

    Entering makes one trial sandbox, a third of a second, and may fetch a Python before; leaving takes the
    pool's bound.
    """
    if platform.system() != "Linux":
        logger.info("--sandbox-backend native: bubblewrap is for Linux, so Docker is used")
        async with open_docker(settings, warm=warm) as backend:
            yield backend
        return
    async with BubblewrapDriver(bubblewrap_options(settings)) as driver:
        try:
            python, note = await choose_python(driver, settings)
        except (DriverError, ConfigurationError) as error:
            cause = str(error)
        else:
            async with open_bubblewrap(settings, driver, python, note, warm=warm) as backend:
                yield backend
            return
    logger.warning("bubblewrap can't be used: %s", cause)
    if not await engine_answers(settings):
        executor = Executor(Refusing(cause), executor_options(settings, driver.name))
        yield Backend(executor, activity=lambda: None)
        return
    async with open_docker(settings, warm=warm) as backend:
        note = f"Docker ran this, as bubblewrap can't be used here: {cause}"
        yield replace(backend, executor=Noting(backend.executor, note))


@asynccontextmanager
async def open_bubblewrap(
    settings: Settings, driver: BubblewrapDriver, python: str, note: str, *, warm: bool
) -> AsyncIterator[Backend]:
    """Runs in sandboxes of ``driver``, which has shown that it can make them, with ``python`` as the default."""
    if warm:  # a single run uses one sandbox
        budget = memory_budget(settings.max_sandboxes, settings.memory, machine_memory())
        logger.log(budget.level, "%s", budget.text)
    for state in driver.limits:
        if state.reason:
            logger.warning("%s: %s", state.limit, state.reason)
    chosen = settings.model_copy(update={"python_version": python})
    options = replace(executor_options(chosen, driver.name), pythons=driver.pythons)
    if driver.store_problem:
        logger.warning("packages are installed anew for each run: %s", driver.store_problem)
    async with (
        environment_store(settings, driver) as environments,
        Pool(driver, pool_config(chosen, warm=warm)) as pool,
        anyio.create_task_group() as tasks,
    ):
        executor = Executor(pool, options, None if driver.store_problem else environments, tunnels(settings))
        warm_up = package_warm_up(chosen, environments, pool.stats)
        if warm and warm_up is not None and not driver.store_problem:
            tasks.start_soon(warm_up.run)
        yield Backend(
            Noting(executor, note) if note else executor,
            activity=lambda: driver.activity,
            pythons=executor.pythons,
            facts=driver.facts,
            stats=pool.stats,
            resolver=None if driver.store_problem else package_resolver(settings, environments),
        )
        tasks.cancel_scope.cancel()


async def choose_python(driver: BubblewrapDriver, settings: Settings) -> tuple[str, str]:
    """The default version of Python, tried out, and a sentence about it where it isn't the one of the settings.

    Raises:
        DriverError: no sandbox can be made, or not with the version that was asked for.
        ConfigurationError: a setting can't be fulfilled on this machine.
    """
    wanted = settings.python_version
    try:
        await driver.prepare(wanted)
    except PythonUnavailable:
        try:
            await driver.fetch(wanted)
            await driver.prepare(wanted)
        except PythonUnavailable as error:
            newest = driver.pythons[-1]
            if "python_version" in settings.model_fields_set or _numbers(newest) < OLDEST_RUNNER:
                raise PythonUnavailable(
                    f"This machine has no Python {wanted}, but {', '.join(driver.pythons)}: {error}. Install it "
                    f"(`uv python install {wanted}`), or choose another one."
                ) from error
            await driver.prepare(newest)
            note = f"Python {newest} is the default here, as this machine has no {wanted}: {error}."
            logger.warning("%s Install it with: uv python install %s", note, wanted)
            return newest, note
    return wanted, ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


async def engine_answers(settings: Settings) -> bool:
    """Whether Docker could be used instead; within about ten seconds."""
    async with DockerDriver(docker_options(settings)) as driver:
        try:
            await driver.sweep()
        except (DriverError, ConfigurationError) as error:
            logger.info("no Docker either: %s", error)
            return False
        return True


def bubblewrap_options(settings: Settings) -> BubblewrapOptions:
    """The sandboxes that ``settings`` describe."""
    return BubblewrapOptions(
        limits=settings.sandbox_limits(),
        network=Network(settings.network),
        uv=settings.uv_path,
        ca_bundle=settings.ca_bundle,
        store=cache_folder(os.environ, home_folder()) / store_name(settings.store),
    )


def store_name(setting: str) -> str:
    """The folder that the setting for a volume's name means where there are no volumes."""
    return "store" if setting == DEFAULT_STORE else setting
