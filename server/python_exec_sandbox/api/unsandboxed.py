"""Runs outside a sandbox: when they are allowed, and that each result says so."""

import logging
from dataclasses import dataclass, replace

from python_exec_sandbox.api.refusals import has_no_backend, short_refusal
from python_exec_sandbox.api.runtime import RunsScripts
from python_exec_sandbox.drivers.unsandboxed.driver import UnsandboxedDriver
from python_exec_sandbox.errors import PoolUnavailable
from python_exec_sandbox.pool.pool import Pool
from python_exec_sandbox.run.executor import Executor
from python_exec_sandbox.run.records import ExecutorOptions, RunListener, RunRequest, RunResult
from python_exec_sandbox.script.intake import Examined

logger = logging.getLogger(__name__)

AS_ASKED = "the server was started with --sandbox-backend none, so the script ran on this machine itself."

LONGEST_CAUSE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Unsandboxed:
    """Runs scripts on the machine itself."""

    driver: UnsandboxedDriver
    pool: Pool
    options: ExecutorOptions

    @property
    def activity(self) -> str | None:
        return self.driver.activity

    async def run(self, request: RunRequest, listener: RunListener, why: str) -> RunResult:
        """As the executor's; the result carries ``why``.

        Raises:
            ConfigurationError: beside the executor's errors, when there is no uv.
            CreateFailed: likewise, when uv can't be asked which Pythons there are.
        """
        executor = await self._executor()
        logger.warning("a script runs without a sandbox: %s", why)
        return replace(await executor.run(request, listener), unsandboxed=why)

    async def examine(self, request: RunRequest) -> Examined:
        """As the executor's; raises as :meth:`run` where there is no uv."""
        return await (await self._executor()).examine(request)

    async def _executor(self) -> Executor:
        return Executor(self.pool, replace(self.options, pythons=await self.driver.pythons()))


@dataclass(frozen=True, slots=True)
class AsAsked:
    """Every script runs there, because the person chose that backend."""

    spare: Unsandboxed

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        return await self.spare.run(request, listener, AS_ASKED)

    async def examine(self, request: RunRequest) -> Examined:
        return await self.spare.examine(request)


@dataclass(frozen=True, slots=True)
class WithFallback:
    """Scripts run in sandboxes; where none can be made, and only then, on the machine itself."""

    chosen: RunsScripts
    spare: Unsandboxed

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        try:
            return await self.chosen.run(request, listener)
        except PoolUnavailable as error:
            if not has_no_backend(error):
                raise
            cause = " ".join(short_refusal(error).split())
        if len(cause) > LONGEST_CAUSE_CHARACTERS:
            cause = cause[:LONGEST_CAUSE_CHARACTERS] + "…"
        why = (
            "no sandbox could be made, and the server was started with --allow-unsandboxed, so the script ran on"
            f" this machine itself. The cause: {cause}"
        )
        return await self.spare.run(request, listener, why)

    async def examine(self, request: RunRequest) -> Examined:
        return await self.chosen.examine(request)
