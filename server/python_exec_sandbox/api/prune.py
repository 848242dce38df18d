"""The command ``prune``: removes what this package left, on the engine and on this machine, and nobody uses."""

import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import anyio.to_thread

from python_exec_sandbox.api.backends import docker_options
from python_exec_sandbox.api.once import EXIT_WRONG_USE, tell, until_signalled
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.leftovers import Leftover
from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.run.units import show_bytes
from python_exec_sandbox.setting_values import Backend
from python_exec_sandbox.settings import Settings

EXIT_SOMETHING_LEFT = 1

FIND_SECONDS = 30.0
"""Listing takes a tenth of a second; a hung engine is told of by then."""


class HasLeftovers(Protocol):
    """The part of a driver that is needed here."""

    async def leftovers(self, *, environments: bool = False) -> list[Leftover]: ...

    async def remove(self, leftover: Leftover) -> None: ...


def opening(settings: Settings) -> AbstractAsyncContextManager[HasLeftovers]:
    """What to look at under ``settings``: the engine, and this machine itself where that makes sandboxes."""
    if settings.sandbox_backend is Backend.NATIVE and platform.system() == "Linux":
        from python_exec_sandbox.api.everywhere import open_everywhere  # it builds on this module

        return open_everywhere(settings)
    return DockerDriver(docker_options(settings))


async def prune(
    opening: AbstractAsyncContextManager[HasLeftovers],
    *,
    yes: bool,
    environments: bool = False,
    ask: Callable[[], Awaitable[bool]] | None = None,
) -> int:
    """List what would be removed, and remove it if ``yes``, or if a person at a terminal says so; installed
    packages among it only if ``environments``.

    The exit code is 0 when nothing is left or nothing was to be removed, 1 when the engine kept
    something, 2 without an engine.
    """

    async def work() -> int:
        async with opening as driver:
            try:
                with anyio.fail_after(FIND_SECONDS):
                    found = await driver.leftovers(environments=environments)
            except SandboxError as error:
                tell(str(error))
                return EXIT_WRONG_USE
            except TimeoutError:
                tell(f"the container engine did not answer within {FIND_SECONDS:g} s; restart it")
                return EXIT_WRONG_USE
            _say(listing(found))
            if not found:
                return 0
            if not yes and not await (ask or ask_on_a_terminal)():
                more = " --environments" if environments else ""
                _say(f"Nothing was removed. To remove it: the same with --yes (prune --yes{more})")
                return 0
            return await _remove(driver, found)

    return await until_signalled(work)


def listing(found: Sequence[Leftover]) -> str:
    """One line for each."""
    if not found:
        return "Nothing to remove: no container of a dead server, no old image, no unused network."
    lines = [
        f"  {one.kind} {one.name}: {one.why}{f' ({show_bytes(one.size)})' if one.size else ''}"
        for one in found
    ]
    return "\n".join(["To remove:", *lines])


async def _remove(driver: HasLeftovers, found: Sequence[Leftover]) -> int:
    kept = 0
    for one in found:
        try:
            await driver.remove(one)
        except SandboxError as error:
            kept += 1
            _say(f"kept {one.kind} {one.name}: {error}")
        else:
            _say(f"removed {one.kind} {one.name}")
    return EXIT_SOMETHING_LEFT if kept else 0


async def ask_on_a_terminal() -> bool:
    """Whether a person there says yes; ``False`` where there is none."""
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stdout.isatty():
        return False
    own_thread = anyio.CapacityLimiter(1)
    answer = await anyio.to_thread.run_sync(
        input, "Remove them? [y/N] ", limiter=own_thread, abandon_on_cancel=True
    )
    return answer.strip().lower() in {"y", "yes"}


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
