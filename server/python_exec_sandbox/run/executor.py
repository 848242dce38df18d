"""Carries one run from request to result."""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol, Self

import anyio
import anyio.to_thread
from packaging.version import Version

from python_exec_sandbox.drivers.base import Connection, Sandbox
from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.model.environment import BuildFailed
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits
from python_exec_sandbox.model.result import Loss, OutputStream, Phase, RunReport, StopReason, Usage, Verdict
from python_exec_sandbox.model.traffic import Traffic
from python_exec_sandbox.run.arguments import (
    check_args,
    check_fits,
    check_job_size,
    choose_seconds,
    encode_stdin,
)
from python_exec_sandbox.run.packages import Installed, Packages, ProvidesEnvironments, few
from python_exec_sandbox.run.records import (
    SUPPORTED_PYTHONS,
    ExecutorOptions,
    RunListener,
    RunRequest,
    RunResult,
    SilentListener,
)
from python_exec_sandbox.run.units import show_seconds
from python_exec_sandbox.run.verdict import Judged, judge, judge_build
from python_exec_sandbox.script.intake import Examined, Prepared, examine
from python_exec_sandbox.script.problems import Problems
from python_exec_sandbox.stream.capture import Capture

__all__ = ["SUPPORTED_PYTHONS", "Executor", "ExecutorOptions", "RunListener", "RunRequest", "RunResult"]

logger = logging.getLogger(__name__)

INLINE_SCRIPT_SIZE = 32 * 1024
"""Up to this length a script is read on the event loop (tens of milliseconds at worst, far less as a
rule); a longer one in a thread."""

INLINE_REQUIREMENTS_SIZE = 4 * 1024
"""Likewise for requirements, those in a script's block among them: each takes a fifth of a millisecond."""

READING_THREADS = 1
"""Reading is pure computing: more threads would only take the processor from each other."""

NO_PACKAGES = (
    "No packages can be installed: there is no store for them here, and --network leaves sandboxes no way to them. Use the standard library only, and name no "
    "dependencies."
)

ONLY_INDEX = (
    "Packages come from the indexes of the server alone (--only-index): name no address (name @ https://..., or a source"
    " under [tool.uv]), but a version."
)

RETRIED = "The first sandbox had ended before the script started; a fresh one was taken."


class Lease(Protocol):
    """Exclusive use of a sandbox until it is finished; leaving the context finishes it too."""

    @property
    def sandbox(self) -> Sandbox: ...

    def finish(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LendsSandboxes(Protocol):
    """The part of the pool that a run needs."""

    async def acquire(self, python: str, *, timeout: float) -> Lease:  # noqa: ASYNC109 - the pool queues by it
        """A sandbox of ``python`` within ``timeout`` seconds, or a ``PoolError``."""


class CarriesConnections(Protocol):
    """One run's way to the outside; see :class:`~python_exec_sandbox.egress.tunnel.Tunnel`."""

    async def serve(self, connection: Connection) -> None:
        """Carry one connection until it is over."""

    def traffic(self) -> Traffic:
        """What was reached and refused, as of now."""


@dataclass(slots=True)
class _Attempt:
    """Watches a sandbox for one attempt to run a job in it."""

    run_id: str
    listener: RunListener
    limits: RunLimits
    requirements: tuple[str, ...]
    keep_bytes: int
    tunnel: CarriesConnections | None = None
    sandbox_id: str = ""
    captures: dict[OutputStream, Capture] = field(init=False)
    started: bool = False
    """The script may have begun to run."""

    def __post_init__(self) -> None:
        self.captures = _no_output(self.keep_bytes)

    def phase(self, phase: Phase) -> None:
        if phase is Phase.RUNNING:
            self.started = True
            # Said here because the script runs already: a line takes longer than most of what a call waits for.
            logger.info("run %s: started in sandbox %s", self.run_id, self.sandbox_id)
        self.listener.phase(phase, self._words(phase))

    async def output(self, stream: OutputStream, data: bytes) -> None:
        self.started = True
        self.captures[stream].write(data)
        await self.listener.output(stream, data)

    async def serve(self, connection: Connection) -> None:
        if self.tunnel is not None:
            await self.tunnel.serve(connection)

    def traffic(self) -> Traffic:
        return Traffic() if self.tunnel is None else self.tunnel.traffic()

    def may_be_repeated(self, report: RunReport) -> bool:
        """Whether the sandbox was lost and the script certainly never began. A silent or a garbling
        sandbox may have begun without our hearing of it; one that ran out of memory would do so again."""
        lost = report.reason is StopReason.LOST and report.loss in {Loss.KILLED, Loss.FAULT}
        return lost and not self.started

    def _words(self, phase: Phase) -> str:
        match phase:
            case Phase.WAITING:
                return "waiting for a sandbox"
            case Phase.INSTALLING:
                return f"installing {few(self.requirements)}"
            case Phase.RUNNING:
                return f"running (limit {show_seconds(self.limits.run_seconds)})"


def _no_output(keep_bytes: int = 0) -> dict[OutputStream, Capture]:
    return {stream: Capture(keep_bytes) for stream in OutputStream}


@dataclass(frozen=True, slots=True)
class _Course:
    """What became of a job."""

    judged: Judged
    report: RunReport
    captures: Mapping[OutputStream, Capture] = field(default_factory=_no_output)
    waited: float = 0.0
    notes: tuple[str, ...] = ()
    environment: Environment | None = None
    traffic: Traffic = field(default_factory=Traffic)

    def usage(self) -> Usage:
        """What the sandbox reported, and the time that packages took before."""
        if self.environment is None:
            return self.report.usage
        return replace(self.report.usage, install_seconds=self.environment.seconds)


class Executor:
    """Runs scripts, each in a sandbox of its own. Calls may run side by side.

    Packages come from ``environments``; without these, sandboxes install them themselves. ``open_tunnel`` makes each
    run's way to the outside, where that leads through the server.
    """

    def __init__(
        self,
        pool: LendsSandboxes,
        options: ExecutorOptions,
        environments: ProvidesEnvironments | None = None,
        open_tunnel: Callable[[], CarriesConnections] | None = None,
    ) -> None:
        self._pool = pool
        self._options = options
        self._open_tunnel = open_tunnel
        # An image of somebody's own may have others; the default is what its owner says it has.
        self._pythons = sorted({*options.pythons, options.default_python}, key=Version)
        self._packages = Packages(
            environments,
            in_sandbox=options.can_install,
            fetched=tuple(one for one in options.fetched_pythons if one not in self._pythons),
        )
        self._reading = anyio.CapacityLimiter(READING_THREADS)

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions that scripts can choose, oldest first."""
        return tuple(self._pythons)

    @property
    def default_python(self) -> str:
        return self._options.default_python

    async def run(self, request: RunRequest, listener: RunListener | None = None) -> RunResult:
        """Run one script and tell how it ended; a failing script is a result, not an exception.

        When the call is cancelled the sandbox is given up at once and nothing is returned.

        Raises:
            RequestError: the request can't be carried out; nothing was run.
            PoolError: no sandbox could be given; nothing was run.
            DriverError: packages could not be installed for want of a place; nothing was run.
        """
        began = anyio.current_time()
        prepared, limits, stdin = await self._read(request)
        job = Job(
            run_id=os.urandom(6).hex(),
            script=prepared.source.data,
            python=prepared.python,
            limits=limits,
            requirements=prepared.requirements,
            args=request.args,
            stdin=stdin,
            exclude_newer=prepared.exclude_newer,
        )
        course = await self._carried_out(job, listener or SilentListener())
        if course.judged.verdict is not Verdict.OK:
            logger.info("run %s: %s", job.run_id, course.judged.verdict)
        return RunResult(
            run_id=job.run_id,
            verdict=course.judged.verdict,
            headline=course.judged.headline,
            sentence=course.judged.sentence,
            exit_code=course.report.exit_code,
            signal=course.report.signal,
            stdout=course.captures[OutputStream.STDOUT].captured(),
            stderr=course.captures[OutputStream.STDERR].captured(),
            usage=course.usage(),
            python=job.python,
            driver=self._options.driver,
            requirements=job.requirements,
            timeout_seconds=limits.run_seconds,
            wait_seconds=course.waited,
            total_seconds=anyio.current_time() - began,
            warm=course.report.warm,
            stdin_given=bool(stdin),
            notes=(*prepared.notes, *course.notes),
            environment=course.environment,
            traffic=course.traffic,
        )

    async def _carried_out(self, job: Job, heard: RunListener) -> _Course:
        """Everything from installing to the end; once more when the environment had gone meanwhile."""
        for is_last in (False, True):
            asked = anyio.current_time()
            installed = await self._packages.install(job, heard)
            if isinstance(installed, BuildFailed):
                judged = judge_build(installed, job.limits, job.requirements)
                usage = Usage(install_seconds=anyio.current_time() - asked)
                return _Course(judged, RunReport(StopReason.INSTALL_FAILED, usage=usage))
            course = await self._run_in_sandbox(installed, heard)
            if is_last or course.report.reason is not StopReason.ENVIRONMENT_GONE:
                return course
            self._packages.forget(installed)
        raise AssertionError("the last round returns")

    async def _run_in_sandbox(self, installed: Installed, heard: RunListener) -> _Course:
        """One run, in a second sandbox if the first was lost before the script began."""
        job, waited = installed.job, 0.0
        notes: tuple[str, ...] = ()
        while True:
            tunnel = self._open_tunnel() if self._open_tunnel is not None else None
            attempt = _Attempt(
                job.run_id, heard, job.limits, job.requirements, self._options.keep_bytes, tunnel
            )
            report, wait = await self._attempt(job, attempt, self._options.queue_seconds - waited)
            waited += wait
            if notes or not attempt.may_be_repeated(report):
                break
            notes = (RETRIED,)
        judged = judge(report, job.limits, self._options.sandbox, job.requirements)
        return _Course(
            judged, report, attempt.captures, waited, notes, installed.environment, attempt.traffic()
        )

    async def _read(self, request: RunRequest) -> tuple[Prepared, RunLimits, bytes]:
        """Everything that can be wrong with a request, found before a sandbox is asked for."""
        options = self._options
        problems = Problems()
        seconds = options.default_run_seconds
        with problems.collecting():
            seconds = choose_seconds(
                request.timeout_seconds, default=options.default_run_seconds, longest=options.max_run_seconds
            )
        with problems.collecting():
            check_args(request.args)
        stdin = b""
        with problems.collecting():
            stdin = encode_stdin(request.stdin)
        prepared: Prepared | None = None
        with problems.collecting():
            prepared = (await self.examine(request)).ready()
        problems.raise_any()
        if prepared is None:  # can't be: an unprepared script is a problem
            raise AssertionError
        limits = RunLimits(
            run_seconds=seconds,
            install_seconds=options.install_seconds,
            output_bytes=options.output_kill_bytes,
        )
        return prepared, limits, stdin

    async def examine(self, request: RunRequest) -> Examined:
        """All that can be told of a script without a sandbox: its problems, requirements and Python.

        Nothing is run, and nothing raised for what is wrong with the script."""

        def work() -> Examined:
            return examine(
                request.script,
                pythons=self._pythons,
                fetched=self._packages.fetched,
                default_python=self._options.default_python,
                dependencies=request.dependencies,
                python_version=request.python_version,
            )

        examined = (
            work() if _is_quick(request) else await anyio.to_thread.run_sync(work, limiter=self._reading)
        )
        problems = Problems()
        for text in examined.problems:
            problems.add(text)
        with problems.collecting():
            check_job_size(request.args, examined.requirements)
        if examined.source is not None:
            with problems.collecting():
                check_fits(examined.source.data, self._options.sandbox.disk_shares())
        if examined.requirements and not self._packages.can_install:
            problems.add(NO_PACKAGES)
        if self._options.only_index and any(" @ " in one for one in examined.requirements):
            problems.add(ONLY_INDEX)
        notes = examined.notes
        if examined.exclude_newer:
            kept = "kept: nothing newer is installed" if self._packages.keeps_cutoffs else "ignored"
            notes = (*notes, f"The script's exclude-newer ({examined.exclude_newer}) was {kept}.")
        return replace(examined, problems=problems.texts, notes=notes)

    async def _attempt(self, job: Job, attempt: _Attempt, queue_seconds: float) -> tuple[RunReport, float]:
        """One sandbox's report on ``job``, and the seconds spent waiting for that sandbox."""
        attempt.phase(Phase.WAITING)
        asked = anyio.current_time()
        # A fetched Python comes with its environment, for which any sandbox does.
        python = self._options.default_python if job.python in self._packages.fetched else job.python
        lease = await self._pool.acquire(python, timeout=max(queue_seconds, 0.0))
        with lease:
            waited = anyio.current_time() - asked
            attempt.sandbox_id = lease.sandbox.id
            try:
                report = await self._guarded(job, lambda: lease.sandbox.run(job, attempt))
            finally:
                lease.finish()
        return report, waited

    async def _guarded(self, job: Job, run: Callable[[], Awaitable[RunReport]]) -> RunReport:
        """What ``run`` reports, or a loss when it is long overdue: the sandbox has clocks of its own."""
        allowed = job.limits.run_seconds + self._options.guard_seconds
        if job.requirements or job.environment:
            allowed += job.limits.install_seconds
        with anyio.move_on_after(allowed):
            return await run()
        return RunReport(
            reason=StopReason.LOST,
            loss=Loss.SILENT,
            notes=f"it had not reported after {show_seconds(allowed)}",
        )


def _is_quick(request: RunRequest) -> bool:
    """Whether reading the request takes so little time that the event loop can do it."""
    script = request.script
    has_block = b"# ///" in script if isinstance(script, bytes) else "# ///" in script
    requirements = sum(map(len, request.dependencies)) + (len(script) if has_block else 0)
    return len(script) <= INLINE_SCRIPT_SIZE and requirements <= INLINE_REQUIREMENTS_SIZE
