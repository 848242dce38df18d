"""Runs programs of ours in a sandbox, the way scripts run there."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from python_exec_sandbox.model.result import OutputStream, Phase
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult

ANSWER_BYTES = 60 * 1024
"""More than our programs print, and less than any limit of output that ends a run."""

_FOLDER = Path(__file__).with_name("inside")

# Read once, when this module is imported: reading files is not for an event loop.
CHECK_SYNTAX = (_FOLDER / "check_syntax.py").read_text(encoding="utf-8")
MEASURE = (_FOLDER / "measure.py").read_text(encoding="utf-8")


class RunsScripts(Protocol):
    """The part of the executor that is needed here."""

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult: ...


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """``words`` say in progress messages what it does; ``seconds`` is its run time."""

    text: str
    words: str
    seconds: float


@dataclass(slots=True)
class _Answer:
    """Keeps what a program prints, whatever the settings keep of a script's output."""

    listener: RunListener
    words: str
    data: bytearray = field(default_factory=bytearray)

    def phase(self, phase: Phase, detail: str) -> None:
        if phase is Phase.WAITING:
            self.data.clear()  # a new attempt
        self.listener.phase(phase, self.words if phase is Phase.RUNNING else detail)

    async def output(self, stream: OutputStream, data: bytes) -> None:
        if stream is OutputStream.STDOUT:
            self.data += data[: ANSWER_BYTES - len(self.data)]


async def run_own(
    executor: RunsScripts,
    program: OwnProgram,
    listener: RunListener,
    *,
    stdin: bytes = b"",
    python: str | None = None,
) -> tuple[RunResult, bytes]:
    """How ``program`` ended and what it printed, at most ``ANSWER_BYTES`` of it.

    Raises:
        SandboxError: it could not be run.
    """
    answer = _Answer(listener, program.words)
    request = RunRequest(
        script=program.text, timeout_seconds=program.seconds, python_version=python, stdin=stdin
    )
    result = await executor.run(request, answer)
    return result, bytes(answer.data)
