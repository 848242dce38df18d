"""Sandboxes as bubblewrap processes on this machine: started, watched and ended by the server itself."""

import contextlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import anyio.to_thread

from python_exec_sandbox.drivers.attached import AttachedSandbox
from python_exec_sandbox.drivers.bubblewrap.argv import (
    Word,
    builder_command,
    builder_words,
    outer_words,
    runner_command,
    trial_command,
)
from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Group, LimitState
from python_exec_sandbox.drivers.bubblewrap.failure import explain
from python_exec_sandbox.drivers.bubblewrap.fetching import fetch_python
from python_exec_sandbox.drivers.bubblewrap.leftovers import TRIM_SECONDS, find_leftovers
from python_exec_sandbox.drivers.bubblewrap.options import BubblewrapOptions
from python_exec_sandbox.drivers.bubblewrap.process import BwrapProcess, Start
from python_exec_sandbox.drivers.bubblewrap.sandbox import BwrapKeeper
from python_exec_sandbox.drivers.bubblewrap.store import home_folder
from python_exec_sandbox.drivers.bubblewrap.telling import driver_facts
from python_exec_sandbox.drivers.bubblewrap.users import BUILDER_UID, FIRST_UID, UID_COUNT
from python_exec_sandbox.drivers.bubblewrap.workshop import Workshop, counters_of
from python_exec_sandbox.drivers.following import Carry, Feed, first_bytes, follow
from python_exec_sandbox.drivers.leftovers import Kind, Leftover
from python_exec_sandbox.drivers.socket_channel import SocketChannel
from python_exec_sandbox.drivers.user_ids import UserIds
from python_exec_sandbox.errors import CreateFailed, DriverError
from python_exec_sandbox.model.environment import (
    BuildFailed,
    BuildFault,
    BuildOutcome,
    BuildRequest,
    Task,
    Trimmed,
)
from python_exec_sandbox.model.facts import DriverFacts
from python_exec_sandbox.model.result import Loss

logger = logging.getLogger(__name__)

# Until an interpreter waits: some 60 ms on an idle machine, many times that on a small one under load.
READY_SECONDS = 30.0

# A trial also lets uv ask the interpreter about itself, and compiles the runner.
TRIAL_SECONDS = 20.0

# After a failure or a cancellation, within the time a server has for its shutdown.
CLEANUP_SECONDS = 2.0

# File calls on control groups, and the first look at the machine.
_THREADS = 2


class BubblewrapDriver:
    """A :class:`~python_exec_sandbox.drivers.base.Driver` for Linux, without an engine."""

    name = "bubblewrap"

    def __init__(
        self,
        options: BubblewrapOptions,
        environment: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> None:
        self._options = options
        self._environment = dict(os.environ if environment is None else environment)
        self._home = home or home_folder()
        self._stack = contextlib.AsyncExitStack()
        self._users = UserIds(FIRST_UID, UID_COUNT)
        self._workshop: Workshop | None = None
        self._living: set[BwrapProcess] = set()
        self.activity: str | None = None

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._preparing = anyio.Lock()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what the pool has left."""
        for process in self._living:
            process.kill()
        if self._workshop is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._workshop.close, limiter=self._threads)
        self._tasks.cancel_scope.cancel()
        await self._stack.__aexit__(kind, error, trace)

    @property
    def pythons(self) -> tuple[str, ...]:
        """All versions that this machine has, the newest last; empty before :meth:`prepare`."""
        return tuple(python.version for python in self._workshop.host.pythons) if self._workshop else ()

    @property
    def limits(self) -> tuple[LimitState, ...]:
        """Which limits hold, and by what; empty before :meth:`prepare`."""
        return self._workshop.groups.effective if self._workshop else ()

    async def facts(self) -> DriverFacts:
        """What this machine has for sandboxes, and which limits hold.

        Raises:
            DriverError: no sandbox can be made.
        """
        workshop = await self.prepare()
        return driver_facts(workshop.host, workshop.groups.kind, workshop.groups.effective)

    async def prepare(self, python: str | None = None) -> Workshop:
        """Look at the machine and, when ``python`` is given and wasn't tried yet, make a trial sandbox of it.

        Raises:
            CreateFailed: with the cause and what to do about it.
            PythonUnavailable: the machine doesn't have it.
        """
        async with self._preparing:
            workshop = self._workshop
            if workshop is None:
                self.activity = "looking at this machine"
                try:
                    workshop = self._workshop = await anyio.to_thread.run_sync(
                        Workshop.open, self._options, self._environment, self._home, limiter=self._threads
                    )
                finally:
                    self.activity = None
                logger.info("limits by %s", workshop.groups.kind)
            if python is not None and python not in workshop.caches:
                self.activity = f"trying Python {python} in a sandbox"
                try:
                    workshop.learn(python, await self._try(workshop, python))
                finally:
                    self.activity = None
            return workshop

    async def fetch(self, python: str) -> None:
        """Get ``python`` from where uv gets it, and look at the machine again. To be called before the first sandbox.

        Raises:
            PythonUnavailable: it can't be had; the text says why.
            CreateFailed: no sandbox can be made.
        """
        workshop = await self.prepare()
        async with self._preparing:
            self.activity = f"fetching Python {python}"
            try:
                await fetch_python(workshop.host.uv, python, self._environment)
            finally:
                self.activity = None
            self._workshop = None
            await anyio.to_thread.run_sync(workshop.close, limiter=self._threads)

    async def create(self, python: str) -> AttachedSandbox:
        """As the contract says. It takes one start of an interpreter; the first of each version takes two."""
        workshop = await self.prepare(python)
        made = await self._open(workshop)
        try:
            plan = workshop.plan(python, made.counters)
            process, keeper, channel = await self._start(
                workshop, made, outer_words(plan), runner_command(plan)
            )
            sandbox = AttachedSandbox(secrets.token_hex(8), python, channel, keeper)
            self._tasks.start_soon(sandbox.pump)
            await sandbox.wait_ready(READY_SECONDS)
            process.note_runner()
        except BaseException:  # a cancellation leaves nothing behind either
            await self._clean_up(made)
            raise
        return sandbox

    async def build(self, request: BuildRequest, progress: Callable[[str], None]) -> BuildOutcome:
        """As the contract of :class:`~python_exec_sandbox.drivers.building.Builder` says, in a sandbox of its own."""
        workshop = await self.prepare()
        if request.source is None:
            return await self._build(workshop, request, progress)
        with anyio.move_on_after(request.install_seconds):
            return await self._build_from_source(workshop, request, progress)
        return BuildFailed(BuildFault.TIME)

    async def _build(
        self,
        workshop: Workshop,
        request: BuildRequest,
        progress: Callable[[str], None],
        feed: Feed | None = None,
    ) -> BuildOutcome:
        async with self._building(workshop, from_source=False) as (_, keeper, channel):
            return await follow(channel, request, progress, feed) or await _explained(keeper)

    async def _build_from_source(
        self, workshop: Workshop, request: BuildRequest, progress: Callable[[str], None]
    ) -> BuildOutcome:
        """A build sandbox makes wheels of the sources; its bytes go on to a builder unread."""
        assert request.source is not None
        ends = anyio.current_time() + request.install_seconds
        async with self._building(workshop, from_source=True) as (process, keeper, channel):
            first = await first_bytes(channel, replace(request, installer=request.source))
            if not first:
                return await _explained(keeper)
            feed = Carry(channel, first, process.kill)
            left = max(0.0, ends - anyio.current_time())
            outcome = await self._build(workshop, replace(request, install_seconds=left), progress, feed)
            return await _explained(keeper) if feed.is_cut else outcome

    @contextlib.asynccontextmanager
    async def _building(
        self, workshop: Workshop, *, from_source: bool
    ) -> AsyncIterator[tuple[BwrapProcess, BwrapKeeper, SocketChannel]]:
        """A builder, which ends with the context: nothing of a build goes on when nobody waits for it."""
        plan = workshop.builder_plan(from_source=from_source)
        open_group = partial(workshop.open_builder_group, from_source=from_source)
        group = await anyio.to_thread.run_sync(open_group, limiter=self._threads)
        made = _Made(group, (), self._builder_uid(workshop, from_source=from_source))
        try:
            words, command = builder_words(plan), builder_command(plan)
            yield await self._start(workshop, made, words, command, yields=True)
        finally:
            await self._clean_up(made)

    def _builder_uid(self, workshop: Workshop, *, from_source: bool) -> int | None:
        if not workshop.is_root:
            return None
        return self._users.take() if from_source else BUILDER_UID

    @property
    def store_problem(self) -> str | None:
        """Why packages can't be kept here; ``None`` when they can, and before :meth:`prepare`."""
        return self._workshop.store_problem if self._workshop and self._workshop.store is None else None

    async def leftovers(self, *, environments: bool = False) -> list[Leftover]:
        """What is ours on this machine and in nobody's use; with the ``environments`` of packages if asked for.

        Raises:
            DriverError: no sandbox can be made here.
        """
        find = partial(find_leftovers, await self.prepare(), environments=environments)
        return await anyio.to_thread.run_sync(find, limiter=self._threads)

    async def remove(self, leftover: Leftover) -> None:
        """Remove one of them.

        Raises:
            DriverError: something of it could not be removed.
        """
        if leftover.kind is Kind.GROUPS:
            await self.sweep()
            return
        outcome = await self.build(
            BuildRequest("", (), task=Task.TRIM, install_seconds=TRIM_SECONDS), logger.info
        )
        if not isinstance(outcome, Trimmed):
            raise DriverError(f"The folder {leftover.name} could not be emptied: {outcome}.")

    async def sweep(self) -> int:
        """As the contract says. Processes of dead servers have ended with them; their groups may be left."""
        workshop = await self.prepare()
        return await anyio.to_thread.run_sync(workshop.groups.sweep, limiter=self._threads)

    async def _try(self, workshop: Workshop, python: str) -> bytes:
        """What a trial sandbox prints; it is gone afterwards."""
        made = await self._open(workshop)
        try:
            plan = workshop.plan(python, made.counters)
            process, _, channel = await self._start(workshop, made, outer_words(plan), trial_command(plan))
            printed = b""
            with anyio.move_on_after(TRIAL_SECONDS) as scope:
                while data := await channel.receive():
                    printed += data
            if scope.cancelled_caught:
                raise CreateFailed(f"A trial sandbox of Python {python} did not end in {TRIAL_SECONDS:g} s.")
            if not printed:
                raise CreateFailed(f"No sandbox can be made with bubblewrap: {explain(process.said())}")
            return printed
        finally:
            await self._clean_up(made)

    async def _open(self, workshop: Workshop) -> "_Made":
        """Whatever a sandbox has before there is a process."""
        uid = self._users.take() if workshop.is_root else None
        try:
            group = await anyio.to_thread.run_sync(workshop.open_group, limiter=self._threads)
        except BaseException:  # a cancellation gives it back, too
            if uid is not None:
                self._users.give_back(uid)
            raise
        return _Made(group, counters_of(group), uid)

    async def _start(
        self,
        workshop: Workshop,
        made: "_Made",
        words: Sequence[Word],
        command: list[str],
        *,
        yields: bool = False,
    ) -> tuple[BwrapProcess, BwrapKeeper, SocketChannel]:
        start = Start(workshop.program, words, command, workshop.stage, made.uid, workshop.mounts, yields)
        try:
            process = BwrapProcess(start)
        except OSError as error:
            raise CreateFailed(f"{start.program} could not be started: {error}") from error
        channel = SocketChannel(process.sock)
        self._living.add(process)

        def forget() -> None:
            self._living.discard(process)
            if made.uid is not None:
                self._users.give_back(made.uid)

        made.keeper = BwrapKeeper(process, channel, made.group, self._threads, forget)
        self._tasks.start_soon(process.watch)

        def release() -> None:
            made.group.add(process.pid)
            process.release()

        try:
            await anyio.to_thread.run_sync(release, limiter=self._threads)
        except OSError as error:
            raise CreateFailed(
                f"No sandbox can be made with bubblewrap: {explain(process.said())} ({error})"
            ) from error
        return process, made.keeper, channel

    async def _clean_up(self, made: "_Made") -> None:
        with anyio.move_on_after(CLEANUP_SECONDS, shield=True) as scope:
            try:
                if made.keeper is not None:
                    await made.keeper.remove()
                else:
                    await anyio.to_thread.run_sync(made.group.remove, limiter=self._threads)
                    if made.uid is not None:
                        self._users.give_back(made.uid)
            except DriverError as error:
                logger.warning("a sandbox may be left: %s", error)
        if scope.cancelled_caught:
            logger.warning("a sandbox may be left: its processes were not gone in %s s", CLEANUP_SECONDS)


async def _explained(keeper: BwrapKeeper) -> BuildFailed:
    """Why a builder ended without an answer."""
    loss, detail = await keeper.explain_loss()
    return BuildFailed(BuildFault.MEMORY if loss is Loss.MEMORY else BuildFault.FAULT, detail)


@dataclass(slots=True)
class _Made:
    """What exists of a sandbox so far."""

    group: Group
    counters: tuple[tuple[Path, str], ...]
    uid: int | None
    keeper: BwrapKeeper | None = None
