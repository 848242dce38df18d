"""The command ``run``: one script through the same parts that serve clients, its output passed through."""

import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import anyio
import anyio.abc
import anyio.to_thread

from python_exec_sandbox.api.ending import SIGNAL_BASE, ending_signals, leave
from python_exec_sandbox.api.present import NOT_SANDBOXED
from python_exec_sandbox.api.refusals import is_for_a_person
from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.model.result import OutputStream, Phase, Verdict
from python_exec_sandbox.run.records import RunRequest, RunResult

logger = logging.getLogger(__name__)

EXIT_WRONG_USE = 2
EXIT_TIMED_OUT = 124
EXIT_OTHER = 125

# Ctrl-C ends everything within 2 s, whether or not the engine answers.
END_SECONDS = 1.7

ACTIVITY_CHECK_SECONDS = 1.0

DESCRIPTORS = {OutputStream.STDOUT: 1, OutputStream.STDERR: 2}


class _OutputGoneError(Exception):
    """Whoever read our output has left."""


@dataclass(slots=True)
class PassThrough:
    """Writes a script's output to this process's own, bytes untouched, as it comes."""

    _writing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    def phase(self, phase: Phase, detail: str) -> None:
        logger.info("%s", detail)

    async def output(self, stream: OutputStream, data: bytes) -> None:
        try:
            await anyio.to_thread.run_sync(_write_all, DESCRIPTORS[stream], data, limiter=self._writing)
        except BrokenPipeError as error:
            raise _OutputGoneError from error


def tell(words: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"python-exec-sandbox: {words}\n")
    sys.stderr.flush()


async def run_once(request: RunRequest, opening: AbstractAsyncContextManager[Backend]) -> int:
    """Run one script and return the exit code for this process; a signal stops the script and ends this
    within 2 s."""
    return await until_signalled(lambda: _run(request, opening))


async def until_signalled(work: Callable[[], Awaitable[int]]) -> int:
    """The exit code that ``work`` returns, or a signal's: it cancels the work, and ends this process within
    2 s."""
    scope = anyio.CancelScope()
    ended_by: list[signal.Signals] = []
    code = EXIT_OTHER
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signal, scope, ended_by)
        with scope:
            code = await work()
        tasks.cancel_scope.cancel()
    return SIGNAL_BASE + ended_by[0] if ended_by else code


async def _run(request: RunRequest, opening: AbstractAsyncContextManager[Backend]) -> int:
    """The exit code of a run, with a line on stderr when it is not the script's own doing."""
    async with opening as backend, anyio.create_task_group() as tasks:
        tasks.start_soon(tell_activity, backend)
        code = await _outcome(request, backend)
        tasks.cancel_scope.cancel()
    return code


async def _outcome(request: RunRequest, backend: Backend) -> int:
    try:
        result = await backend.executor.run(request, PassThrough())
    except _OutputGoneError:
        return SIGNAL_BASE + signal.SIGPIPE
    except SandboxError as error:
        tell(str(error))
        return EXIT_WRONG_USE if is_for_a_person(error) else EXIT_OTHER
    if result.unsandboxed:
        tell(f"{NOT_SANDBOXED}: {result.unsandboxed}")
    for note in result.notes:
        tell(note)
    if result.verdict not in {Verdict.OK, Verdict.FAILED}:
        tell(f"{result.headline}. {result.sentence}".rstrip())
    return exit_code(result)


async def tell_activity(backend: Backend) -> None:
    """Say what keeps sandboxes from being made: a first build takes minutes."""
    told: str | None = None
    while True:
        await anyio.sleep(ACTIVITY_CHECK_SECONDS)  # also the pace at which a person can read
        activity = backend.activity()
        if activity and activity != told:
            tell(activity)
        told = activity


async def _end_on_signal(
    work: anyio.CancelScope, ended_by: list[signal.Signals], *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    """Stop the work at the first signal; leave without it when it takes too long."""
    with anyio.open_signal_receiver(*ending_signals()) as received:
        task_status.started()
        async for number in received:
            ended_by.append(number)
            work.cancel()
            break
        await anyio.sleep(END_SECONDS)  # the work's own end cancels this
        leave(SIGNAL_BASE + ended_by[0])


def exit_code(result: RunResult) -> int:
    """The script's own code wherever it has one that says enough, else one of ours."""
    match result.verdict:
        case Verdict.TIMED_OUT:
            return EXIT_TIMED_OUT
        case Verdict.OK | Verdict.FAILED:
            return result.exit_code or 0
        case Verdict.SIGNALLED:
            return SIGNAL_BASE + (result.signal or 0)
        case _:
            return result.exit_code or EXIT_OTHER


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
