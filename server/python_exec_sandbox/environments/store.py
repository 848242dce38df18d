"""From a set of requirements to a ready environment: at once when it is known, else one build for all who wait."""

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from python_exec_sandbox.drivers.building import Builder
from python_exec_sandbox.environments.flight import Flight, Say
from python_exec_sandbox.environments.indexes import Indexes
from python_exec_sandbox.environments.key import Key
from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.errors import DriverError, ProtocolViolation, SandboxError
from python_exec_sandbox.model.environment import (
    DEFAULT_STORE_BYTES,
    BuildFailed,
    BuildFault,
    BuildOutcome,
    BuildRequest,
    BuiltEnvironment,
    Resolved,
    Task,
    Warmed,
)

logger = logging.getLogger(__name__)

KNOWN_ENVIRONMENTS = 256
"""How many are kept in mind; the others are found again in the store, which takes a second."""

BUILDS_AT_ONCE = 2
"""Each may take a gigabyte of memory and every processor."""


@dataclass(frozen=True, slots=True)
class _Known:
    built: BuiltEnvironment
    until: float


class EnvironmentStore:
    """What one server knows of the store that its builder fills.

    To be entered; leaving it ends what is being built. ``read_indexes`` reads where packages come from, anew
    for each build; it may take as long as some files do. ``source_builds``: what has no wheel is built.
    """

    def __init__(
        self,
        builder: Builder,
        resolution_seconds: float,
        read_indexes: Callable[[], Indexes] = Indexes,
        store_bytes: int = DEFAULT_STORE_BYTES,
        python_mirror: str = "",
        *,
        source_builds: bool = True,
    ) -> None:
        self._source_builds = source_builds
        self._builder = builder
        self._read_indexes = read_indexes
        self._told: set[str] = set()
        self._resolution_seconds = resolution_seconds
        self._store_bytes = store_bytes
        self._python_mirror = python_mirror
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._used: dict[str, float] = {}
        self._flights: dict[Key, Flight] = {}
        self._warming: anyio.CancelScope | None = None
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._places = anyio.Semaphore(BUILDS_AT_ONCE)
        self._reading = anyio.CapacityLimiter(1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        await self._stack.__aexit__(kind, error, trace)

    async def obtain(
        self,
        python: str,
        requirements: tuple[str, ...],
        install_seconds: float,
        say: Say,
        exclude_newer: str = "",
    ) -> Environment | BuildFailed:
        """The environment for ``requirements``, or why there is none; with nothing in it that was published after
        ``exclude_newer``.

        ``say`` gets words for a person who waits; it must return at once. Whoever asks for the same while it
        is being built waits for the same build, which goes on when some of them are cancelled, and ends with
        the last of them.

        Raises:
            SandboxError: there is no place to build in, or where packages come from can't be understood.
        """
        began = anyio.current_time()
        key = Key.of(python, requirements, exclude_newer)
        if (known := self._recall(key)) is not None:
            return Environment(known.path, known.packages, reused=True, seconds=0.0)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = Flight()
            self._tasks.start_soon(self._fly, key, flight, install_seconds)
        outcome = await self._joined(key, flight, say)
        if isinstance(outcome, BuildFailed):
            return outcome
        return Environment(
            outcome.path, outcome.packages, outcome.reused, seconds=anyio.current_time() - began
        )

    async def resolve(
        self,
        python: str,
        requirements: tuple[str, ...],
        install_seconds: float,
        say: Say,
        exclude_newer: str = "",
    ) -> Resolved | BuildFailed:
        """What ``requirements`` lead to, without installing it; a run that follows installs these versions.

        Raises:
            DriverError: there is no place to ask from.
        """
        key = Key.of(python, requirements, exclude_newer)
        self._give_way()
        async with self._places:
            request = self._request(key, install_seconds, Task.RESOLVE)
            outcome = await self._build(request, say, exclude_newer)
        if not isinstance(outcome, Resolved | BuildFailed):
            raise _another_answer()
        return outcome

    @property
    def is_building(self) -> bool:
        """Whether somebody waits for an environment."""
        return bool(self._flights)

    async def warm(self, python: str, install_seconds: float) -> Warmed | BuildFailed | None:
        """Build the next of the packages that scripts often need, if any is left; ``None`` when that was given
        up because somebody asked for something.

        Raises:
            DriverError: there is no place to build in.
        """
        outcome: BuildOutcome | None = None
        with anyio.CancelScope() as self._warming:
            request = self._request(Key.of(python, ()), install_seconds, Task.WARM)
            outcome = await self._build(request, logger.debug)
        self._warming = None
        if not isinstance(outcome, Warmed | BuildFailed | None):
            raise _another_answer()
        return outcome

    def _give_way(self) -> None:
        if self._warming is not None:
            self._warming.cancel()

    def forget(self, path: str) -> None:
        """Ask the builder again next time: the environment at ``path`` has gone."""
        for key in [key for key, known in self._known.items() if known.built.path == path]:
            del self._known[key]

    def _recall(self, key: Key) -> BuiltEnvironment | None:
        known = self._known.get(key)
        if known is None or anyio.current_time() >= known.until:
            return None
        self._known.move_to_end(key)
        self._used[known.built.path] = anyio.current_time()
        return known.built

    def _uses(self) -> tuple[tuple[str, float], ...]:
        """What was used since a builder was last told: only builders know what is oldest in the store."""
        now, used = anyio.current_time(), self._used
        self._used = {}
        return tuple((path, now - at) for path, at in used.items())

    def _remember(self, key: Key, built: BuiltEnvironment) -> None:
        fresh = float("inf") if built.fresh_seconds is None else built.fresh_seconds
        self._known[key] = _Known(built, anyio.current_time() + fresh)
        self._known.move_to_end(key)
        while len(self._known) > KNOWN_ENVIRONMENTS:
            self._known.popitem(last=False)

    def _request(self, key: Key, install_seconds: float, task: Task) -> BuildRequest:
        return BuildRequest(
            key.python,
            key.requirements,
            self._resolution_seconds,
            install_seconds=install_seconds,
            task=task,
            store_bytes=self._store_bytes,
            used=self._uses(),
            python_mirror=self._python_mirror,
        )

    async def _joined(self, key: Key, flight: Flight, say: Say) -> BuiltEnvironment | BuildFailed:
        try:
            return await flight.wait(say)
        finally:
            if flight.scope.cancel_called and self._flights.get(key) is flight:
                del self._flights[key]  # whoever asks next must not join what is ending

    async def _build(self, request: BuildRequest, say: Say, exclude_newer: str = "") -> BuildOutcome:
        """As the builder does it, with the indexes of now; no word of it has their credentials."""
        indexes = await anyio.to_thread.run_sync(self._read_indexes, limiter=self._reading)
        indexes = indexes.not_newer(exclude_newer, datetime.now(UTC))
        for note in indexes.notes:
            if note not in self._told:
                self._told.add(note)
                logger.warning("%s", indexes.hide(note))

        def tell(words: str) -> None:
            say(indexes.hide(words))

        began = anyio.current_time()
        request = replace(request, installer=indexes.for_uv())
        outcome = await self._builder.build(request, tell)
        if request.task is Task.BUILD and self._source_builds and _needs_source(outcome):
            tell("building from source, in a sandbox of its own")
            left = request.install_seconds - (anyio.current_time() - began)
            source = replace(request, source=indexes.public().for_uv(), install_seconds=max(left, 0.0))
            built = await self._builder.build(source, tell)
            outcome = outcome if _needs_source(built) else built  # the first one says which package it is
        return (
            replace(outcome, text=indexes.hide(outcome.text)) if isinstance(outcome, BuildFailed) else outcome
        )

    async def _fly(self, key: Key, flight: Flight, install_seconds: float) -> None:
        request = self._request(key, install_seconds, Task.BUILD)
        self._give_way()
        try:
            with flight.scope:
                if self._places.value == 0:
                    flight.say("waiting for other installations to end")
                async with self._places:
                    flight.outcome = _environment(await self._build(request, flight.say, key.exclude_newer))
        except SandboxError as error:
            flight.error = error
        except Exception as error:  # an error of ours must reach those who wait, and not end the server
            logger.exception("a build failed")
            flight.error = DriverError(f"The installation failed by a fault of the server: {error!r}.")
        finally:
            if isinstance(flight.outcome, BuiltEnvironment):
                self._remember(key, flight.outcome)
            elif flight.outcome is None and flight.error is None:
                flight.error = DriverError("The installation was given up, as the server is closing.")
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.done.set()


def _environment(outcome: BuildOutcome) -> BuiltEnvironment | BuildFailed:
    if not isinstance(outcome, BuiltEnvironment | BuildFailed):
        raise _another_answer()
    return outcome


def _another_answer() -> ProtocolViolation:
    return ProtocolViolation("the builder answered something else than it was asked")


def _needs_source(outcome: BuildOutcome) -> bool:
    return isinstance(outcome, BuildFailed) and outcome.fault is BuildFault.NEEDS_SOURCE
