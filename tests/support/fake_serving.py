"""Our server over a backend that obeys its scripts, as a process of its own: ``python -m`` this.

A script is one word and an argument: ``wait SECONDS``, ``say TEXT``, ``bytes HEX``, ``repeat COUNT TEXT``, ``print TEXT`` (into this
process's own stdout), ``busy``, ``unreachable``, ``searched``, ``crash``, ``install SECONDS``. ``FAKE_CLOSED`` names a file that
is written when the backend was closed, ``FAKE_CLOSE_SECONDS`` is how long that takes; ``FAKE_STARTED`` names
one that is written when a script starts.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.errors import EngineUnreachable, PoolBusy, PoolUnavailable
from python_exec_sandbox.flags import parse_command
from python_exec_sandbox.logs import configure_logging
from python_exec_sandbox.model.result import OutputStream, Phase, Verdict
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult
from python_exec_sandbox.script.intake import Examined, examine
from python_exec_sandbox.setting_sources import load_settings
from python_exec_sandbox.stream.capture import Capture

KEPT_BYTES = 1000
"""Of each stream."""

TRIED = "No container engine could be used.\n  unix:///nowhere.sock: gone\n  tcp://x: silent\n  nothing at /x\nStart Docker."


def _caused(text: str, cause: str) -> PoolUnavailable:
    error = PoolUnavailable(text)
    error.__cause__ = EngineUnreachable(cause)
    return error


FAILURES: dict[str, Callable[[], Exception]] = {
    "busy": lambda: PoolBusy("32 calls wait already, the limit is 32; call again later"),
    "unreachable": lambda: _caused("no engine: start Docker", "no engine"),
    "searched": lambda: _caused(f"no sandbox can be made at present: {TRIED}", TRIED),
    "crash": lambda: RuntimeError("a fault of ours"),
}


class ObedientExecutor:
    """Runs nothing; does what the script's words say. Our own programs get the answers in ``own``."""

    pythons = ("3.13", "3.14")

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        self.own = own or {}
        self.ran: list[RunRequest] = []

    async def examine(self, request: RunRequest) -> Examined:
        return examine(
            request.script,
            pythons=self.pythons,
            default_python="3.13",
            dependencies=request.dependencies,
            python_version=request.python_version,
        )

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        self.ran.append(request)
        word, _, argument = self._words(request).partition(" ")
        _touch("FAKE_STARTED")
        listener.phase(Phase.WAITING, "waiting for a sandbox")
        printed = b""
        match word:
            case "wait":
                listener.phase(Phase.RUNNING, "running")
                await anyio.sleep(float(argument))
            case "install":
                listener.phase(Phase.INSTALLING, "installing six")
                await anyio.sleep(float(argument))
                listener.phase(Phase.RUNNING, "running")
                await anyio.sleep(float(argument))
            case "say":
                printed = argument.encode()
            case "bytes":
                printed = bytes.fromhex(argument)
            case "repeat":
                count, _, text = argument.partition(" ")
                printed = (text.encode() + b"\n") * int(count)
            case "print":
                sys.stdout.write(argument)
                os.write(1, argument.encode())
            case _:
                if make := FAILURES.get(word):
                    failure = make()
                    raise failure
        await listener.output(OutputStream.STDOUT, printed)
        kept = Capture(KEPT_BYTES)
        kept.write(printed)
        failed = word == "fail"
        return RunResult(
            run_id=f"fake-run-{len(self.ran)}",
            verdict=Verdict.FAILED if failed else Verdict.OK,
            headline="exit 3 in 0 s" if failed else "exit 0 in 0 s",
            exit_code=3 if failed else 0,
            python=request.python_version or "3.13",
            driver="fake",
            requirements=request.dependencies,
            stdout=kept.captured(),
            stdin_given=bool(request.stdin),
        )

    def _words(self, request: RunRequest) -> str:
        for program, answer in self.own.items():
            if request.script == program:
                return answer if answer in FAILURES or answer.startswith("wait ") else f"say {answer}"
        return str(request.script).strip()


def _touch(variable: str) -> None:
    if path := os.environ.get(variable):
        Path(path).touch()


@asynccontextmanager
async def open_obedient(own: Mapping[str, str] | None = None) -> AsyncIterator[Backend]:
    try:
        yield Backend(ObedientExecutor(own), activity=lambda: os.environ.get("FAKE_ACTIVITY"))
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(float(os.environ.get("FAKE_CLOSE_SECONDS", "0")))
        _touch("FAKE_CLOSED")


if __name__ == "__main__":
    parent = os.getppid()
    from python_exec_sandbox.api.ending import exit_at_once_on_signals

    exit_at_once_on_signals()
    command = parse_command(sys.argv[1:])
    settings = load_settings(command.flags, command.config)
    configure_logging(settings.log_level)
    from python_exec_sandbox.api.app import build, serve_stdio

    serve_stdio(build(settings, open_obedient), parent)
