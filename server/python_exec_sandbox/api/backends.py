"""Opens what runs scripts, as the settings say."""

import logging
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from python_exec_sandbox.api.budget import machine_memory, memory_budget
from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.api.unsandboxed import AsAsked, Unsandboxed, WithFallback
from python_exec_sandbox.drivers.building import Builder
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.options import DockerOptions, Network, PullPolicy
from python_exec_sandbox.drivers.unsandboxed.driver import UnsandboxedDriver
from python_exec_sandbox.drivers.unsandboxed.options import UnsandboxedOptions
from python_exec_sandbox.egress.dial import RESOLVER_THREADS, Dialer, getproxies_in_force
from python_exec_sandbox.egress.policy import read_policy
from python_exec_sandbox.egress.tunnel import MOST_SOCKETS, Tunnel
from python_exec_sandbox.environments.indexes import Indexes
from python_exec_sandbox.environments.store import EnvironmentStore
from python_exec_sandbox.environments.uv_sources import Chosen, read_indexes
from python_exec_sandbox.environments.warming import LEAST_STORE_BYTES, WarmUp
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.pool import Pool
from python_exec_sandbox.pool.stats import PoolStats
from python_exec_sandbox.run.executor import Executor
from python_exec_sandbox.run.records import FETCHED_PYTHONS, ExecutorOptions
from python_exec_sandbox.run.resolving import Resolver
from python_exec_sandbox.setting_values import Backend as BackendKind
from python_exec_sandbox.setting_values import SourceBuilds
from python_exec_sandbox.settings import Settings

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_backend(settings: Settings, *, warm: bool = True) -> AsyncIterator[Backend]:
    """What ``settings`` ask for. Nothing of ours ever runs a script on the machine itself unless they name that:
    as the backend, or as what to do when there is no other.

    Entering asks no engine; leaving takes the pool's bound.
    """
    if settings.sandbox_backend is BackendKind.NONE:
        async with open_unsandboxed(settings) as spare:
            yield Backend(AsAsked(spare), activity=lambda: spare.activity, stats=spare.pool.stats)
        return
    if settings.sandbox_backend is BackendKind.NATIVE:
        from python_exec_sandbox.api.native import open_native  # it builds on this module

        chosen = open_native(settings, open_docker, warm=warm)
    else:
        chosen = open_docker(settings, warm=warm)
    async with chosen as backend:
        if not settings.allow_unsandboxed:
            yield backend
            return
        async with open_unsandboxed(settings) as spare:
            yield replace(
                backend,
                executor=WithFallback(backend.executor, spare),
                activity=lambda: backend.activity() or spare.activity,
                has_fallback=True,
            )


@asynccontextmanager
async def open_unsandboxed(settings: Settings) -> AsyncIterator[Unsandboxed]:
    """Scripts on the machine itself. Entering looks at nothing; a missing uv is an error of the runs."""
    async with (
        UnsandboxedDriver(unsandboxed_options(settings)) as driver,
        Pool(driver, unsandboxed_pool_config(settings)) as pool,
    ):
        yield Unsandboxed(driver, pool, executor_options(settings, driver.name))


@asynccontextmanager
async def open_docker(settings: Settings, *, warm: bool = True) -> AsyncIterator[Backend]:
    """Containers of an engine. Without ``warm`` none is made before a run asks for it.

    Entering asks no engine; a missing one is an error of the runs. Leaving takes the pool's bound.
    """
    if warm:  # a single run uses one sandbox
        budget = memory_budget(settings.max_sandboxes, settings.memory, machine_memory())
        logger.log(budget.level, "%s", budget.text)
    async with (
        DockerDriver(docker_options(settings)) as driver,
        environment_store(settings, driver) as environments,
        Pool(driver, pool_config(settings, warm=warm)) as pool,
        anyio.create_task_group() as tasks,
    ):
        options = replace(executor_options(settings, driver.name), fetched_pythons=FETCHED_PYTHONS)
        executor = Executor(pool, options, environments, tunnels(settings))
        if warm and (warm_up := package_warm_up(settings, environments, pool.stats)):
            tasks.start_soon(warm_up.run)
        yield Backend(
            executor,
            activity=lambda: driver.activity,
            pythons=executor.pythons,
            facts=driver.facts,
            stats=pool.stats,
            resolver=package_resolver(settings, environments),
        )
        tasks.cancel_scope.cancel()


def docker_options(settings: Settings) -> DockerOptions:
    """The containers that ``settings`` describe."""
    return DockerOptions(
        limits=settings.sandbox_limits(),
        network=Network(settings.network),
        image=settings.image,
        pull_policy=PullPolicy(settings.pull_policy),
        base_image=settings.base_image,
        docker_host=settings.docker_host,
        runtime=settings.runtime,
        ca_bundle=settings.ca_bundle,
        store=settings.store,
    )


def environment_store(settings: Settings, builder: Builder) -> EnvironmentStore:
    """The store that ``builder`` fills, as far as one server knows it; not entered yet."""
    return EnvironmentStore(
        builder,
        settings.resolution_ttl,
        partial(indexes, settings),
        settings.store_size,
        settings.python_mirror or "",
        source_builds=settings.source_builds is SourceBuilds.ALLOW,
    )


def tunnels(settings: Settings) -> Callable[[], Tunnel] | None:
    """What makes each run's way to the outside; ``None`` where it doesn't lead through the server."""
    if Network(settings.network) is not Network.FILTERED:
        return None
    policy = read_policy(settings.allow_domain, settings.allow_address, settings.allow_port)
    environment, threads = getproxies_in_force(), anyio.CapacityLimiter(RESOLVER_THREADS)
    sockets = anyio.Semaphore(min(MOST_SOCKETS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    return lambda: Tunnel(Dialer(policy, environment, threads=threads).dial, sockets=sockets)


def package_resolver(settings: Settings, environments: EnvironmentStore) -> Resolver:
    """What tells which versions would be installed."""
    may_build = settings.source_builds is SourceBuilds.ALLOW
    return Resolver(environments, settings.install_timeout, source_builds=may_build)


def indexes(settings: Settings) -> Indexes:
    """Where packages come from, as of now. Reads files.

    Raises:
        ConfigurationError: a file of uv's can't be understood.
    """
    chosen = Chosen(
        index_url=settings.index_url,
        extra_index_url=settings.extra_index_url,
        exclude_newer=settings.exclude_newer,
        has_ca_bundle=settings.ca_bundle is not None,
    )
    home = os.environ.get("HOME")
    return read_indexes(chosen, os.environ, Path(home) if home else None)


def package_warm_up(
    settings: Settings, store: EnvironmentStore, stats: Callable[[], PoolStats]
) -> WarmUp | None:
    """What brings packages into ``store`` ahead of their use, if the settings want that."""

    def activity() -> tuple[int, int]:
        now = stats()
        return now.leased + now.waiting + now.creating, now.granted

    if settings.no_warm_cache or settings.store_size < LEAST_STORE_BYTES:
        return None
    return WarmUp(store, settings.python_version, activity)


def unsandboxed_options(settings: Settings) -> UnsandboxedOptions:
    """What ``settings`` say of scripts on the machine itself."""
    return UnsandboxedOptions(
        uv_path=settings.uv_path, limits=settings.sandbox_limits(), ca_bundle=settings.ca_bundle
    )


def pool_config(settings: Settings, *, warm: bool) -> PoolConfig:
    """The pool that ``settings`` describe."""
    return PoolConfig(
        default_python=settings.python_version,
        idle_target=settings.pool_size if warm else 0,
        max_total=settings.max_sandboxes,
        max_waiting=settings.max_waiting,
        fill_on_open=warm,
        idle_timeout=settings.idle_timeout,
        settle_time=settings.settle_time,
    )


def unsandboxed_pool_config(settings: Settings) -> PoolConfig:
    """Nothing is kept warm: what is made for a run takes less than a tenth of a second."""
    return PoolConfig(
        default_python=settings.python_version,
        idle_target=0,
        max_total=settings.max_sandboxes,
        max_creating=settings.max_sandboxes,
        max_waiting=settings.max_waiting,
        max_other_pythons=0,
        fill_on_open=False,
        quiet_time=0.0,
        settle_time=0.0,
        absent_time=1.0,
    )


def executor_options(settings: Settings, driver: str) -> ExecutorOptions:
    """How runs are carried out under ``settings``."""
    return ExecutorOptions(
        driver=driver,
        default_python=settings.python_version,
        sandbox=settings.sandbox_limits(),
        default_run_seconds=settings.default_timeout,
        max_run_seconds=settings.max_timeout,
        install_seconds=settings.install_timeout,
        keep_bytes=settings.max_output_bytes,
        output_kill_bytes=settings.output_kill_bytes,
        only_index=settings.only_index,
        can_install=_installs_in_sandbox(settings, driver),
    )


def _installs_in_sandbox(settings: Settings, driver: str) -> bool:
    """Whether a sandbox may get packages by itself, where the driver has no other place for that; it would keep none
    of the settings that say which, and has the filtered network only while its script runs."""
    if driver == UnsandboxedDriver.name:
        return Network(settings.network) is not Network.NONE
    chooses = settings.source_builds is SourceBuilds.REFUSE or settings.exclude_newer is not None
    return Network(settings.network) is Network.FULL and not chooses
