import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from python_exec_sandbox.api.once import PassThrough, exit_code, run_once
from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.drivers.docker.failure import EngineRefused, create_failure
from python_exec_sandbox.errors import (
    CreateFailed,
    EngineUnreachable,
    ImageUnavailable,
    PoolUnavailable,
    PythonUnavailable,
    RequestError,
    SandboxError,
)
from python_exec_sandbox.model.result import OutputStream, Verdict
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult
from python_exec_sandbox.script.intake import Examined

REQUEST = RunRequest(script="print(1)")


def result(verdict: Verdict = Verdict.OK, **fields: Any) -> RunResult:
    return RunResult(
        run_id="a",
        verdict=verdict,
        headline="the headline",
        sentence="Why.",
        python="3.13",
        driver="fake",
        **fields,
    )


class Outcome:
    """Prints and then ends as it was told."""

    def __init__(self, outcome: RunResult | Exception, *, prints: bytes = b"") -> None:
        self.outcome = outcome
        self.prints = prints
        self.closed = False

    async def examine(self, request: RunRequest) -> Examined:
        raise AssertionError("a run is not examined apart")

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        for stream in OutputStream:
            await listener.output(stream, self.prints)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Backend]:
        try:
            yield Backend(self, lambda: None)
        finally:
            self.closed = True


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (result(exit_code=0), 0),
        (result(Verdict.FAILED, exit_code=3), 3),
        (result(Verdict.FAILED, exit_code=137), 137),
        (result(Verdict.SIGNALLED, signal=9), 137),
        (result(Verdict.SIGNALLED, signal=15), 143),
        (result(Verdict.TIMED_OUT), 124),
        (result(Verdict.OUT_OF_MEMORY, signal=9), 125),
        (result(Verdict.OUT_OF_MEMORY, exit_code=0), 125),
        (result(Verdict.DISK_FULL, exit_code=1), 1),
        (result(Verdict.SANDBOX_LOST), 125),
        (result(Verdict.REQUIREMENTS_FAILED), 125),
        (result(Verdict.OUTPUT_LIMIT), 125),
    ],
)
def test_the_exit_code_is_the_scripts_own_or_says_whose_end_it_was(ended: RunResult, code: int) -> None:
    assert exit_code(ended) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError("the script is empty"), 2),
        (EngineUnreachable("no engine: start Docker"), 2),
        (ImageUnavailable("the image is missing"), 2),
        (PythonUnavailable("the image has no 3.12"), 2),
        (CreateFailed("it broke"), 125),
        (PoolUnavailable("no sandbox: the image is missing"), 125),
    ],
)
def test_what_could_not_be_run_is_one_text_on_stderr_with_a_code_that_tells_wrong_use_from_failure(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = Outcome(error)
    assert anyio.run(run_once, REQUEST, backend.open()) == code
    assert capsys.readouterr().err == f"python-exec-sandbox: {error}\n"
    assert backend.closed


def test_a_missing_engine_is_known_behind_the_pools_words() -> None:
    error = PoolUnavailable("no sandbox can be made")
    error.__cause__ = EngineUnreachable("no engine")
    assert anyio.run(run_once, REQUEST, Outcome(error).open()) == 2


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (400, "unknown or invalid runtime name: runsx", 2),
        (500, "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available", 2),
        (503, "unknown or invalid runtime name, try later", 125),
        (500, "something new", 125),
    ],
)
def test_what_a_setting_can_mend_is_told_from_a_failure_of_the_engine(
    status: int, said: str, code: int
) -> None:
    refusal = EngineRefused("make a sandbox", status, said)
    failure = create_failure(refusal, "x")
    failure.__cause__ = refusal
    error = PoolUnavailable("no sandbox can be made")
    error.__cause__ = failure
    assert anyio.run(run_once, REQUEST, Outcome(error).open()) == code


@pytest.mark.parametrize(("status", "code"), [(503, 125), (404, 2)])
def test_an_image_that_may_be_had_a_moment_later_is_nothing_for_a_person(status: int, code: int) -> None:
    error: SandboxError = ImageUnavailable("the image can't be pulled")
    error.__cause__ = EngineRefused("pull", status, "x")
    assert anyio.run(run_once, REQUEST, Outcome(error).open()) == code


def test_output_passes_through_byte_by_byte(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    everything = bytes(range(256)) * 1000
    assert anyio.run(run_once, REQUEST, Outcome(result(exit_code=0), prints=everything).open()) == 0
    assert capfdbinary.readouterr() == (everything, everything)


def test_verdicts_of_ours_and_notes_are_told_on_stderr_and_a_scripts_own_failure_is_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    timed_out = result(Verdict.TIMED_OUT, notes=("A note.",))
    anyio.run(run_once, REQUEST, Outcome(timed_out).open())
    assert capfd.readouterr().err == "python-exec-sandbox: A note.\npython-exec-sandbox: the headline. Why.\n"
    anyio.run(run_once, REQUEST, Outcome(result(Verdict.FAILED, exit_code=1)).open())
    assert capfd.readouterr().err == ""


def test_a_reader_that_left_ends_the_run_as_a_broken_pipe_does(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    monkeypatch.setattr(
        "python_exec_sandbox.api.once.DESCRIPTORS", {OutputStream.STDOUT: write_end, OutputStream.STDERR: 2}
    )
    backend = Outcome(result(exit_code=0), prints=b"x")
    try:
        assert anyio.run(run_once, REQUEST, backend.open()) == 141
    finally:
        os.close(write_end)
    assert backend.closed


@pytest.mark.anyio
async def test_a_full_pipe_slows_the_script_and_blocks_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setattr("python_exec_sandbox.api.once.DESCRIPTORS", {OutputStream.STDOUT: write_end})
    data = os.urandom(1 << 20)
    received = bytearray()

    def read() -> None:
        while len(received) < len(data):
            received.extend(os.read(read_end, 1 << 16))

    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(PassThrough().output, OutputStream.STDOUT, data)
                await anyio.lowlevel.checkpoint()
                await anyio.to_thread.run_sync(read)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert received == data


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_script_and_closes_what_was_opened(number: signal.Signals, code: int) -> None:
    class Endless(Outcome):
        async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
            os.kill(os.getpid(), number)
            await anyio.sleep_forever()
            raise AssertionError

    backend = Endless(result())
    began = time.monotonic()
    assert anyio.run(run_once, REQUEST, backend.open()) == code
    assert time.monotonic() - began < 2
    assert backend.closed
    assert sys.exc_info() == (None, None, None)
