"""Bad days through a real client: each call gets a clear answer in bounded time, and the next one works."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from docker.errors import APIError
from docker.models.containers import Container
from mcp.types import CallToolResult

from integration.support.engine import Engine, processes_of
from integration.support.servers import DOCKER, SERVER, RunningServer, StartServer, text_of

pytestmark = pytest.mark.anyio

REFUSED_SECONDS = 3.0
"""What is wrong with a call is seen before a sandbox is asked for; the rest is the machine's other work."""

LARGE_SECONDS = 20.0
"""Ten megabytes go through four programs, each of which reads them as JSON or as text."""

MESSAGE_SECONDS = 5.0
"""A message of ten megabytes is written and read as a whole, on both sides."""

LOSS_SECONDS = 20.0
"""From the loss of a sandbox in the middle of a run to its answer: 2 s, and time for the engine to act."""

EXIT_SECONDS = 30.0
"""A wrong setting is told before anything heavy is imported; 30 s is for a machine that does much else."""

START_SECONDS = 60.0
"""Until a script runs: a sandbox takes half a second, many times that beside other work."""


@pytest.fixture
async def server(stdio_client: StartServer) -> AsyncIterator[RunningServer]:
    async with stdio_client("--pool-size", "1") as started:
        await works(started)
        yield started


async def works(server: RunningServer) -> None:
    """An ordinary call succeeds."""
    result = await server.execute("print('an ordinary', 'call')")
    assert text_of(result).startswith("exit 0"), text_of(result)
    assert "--- stdout ---\nan ordinary call\n" in text_of(result)
    assert not result.is_error


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


# -- Calls that can't be carried out -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wrong:
    """Arguments of a call, and what its answer must say."""

    words: list[str]
    arguments: dict[str, Any] = field(default_factory=dict)
    script: Any = "print('ran')"


LIMIT = 10 * 1024 * 1024

WRONG: dict[str, Wrong] = {
    "an empty script": Wrong(["script", "missing or empty", "Python source"], script=""),
    "a script of blanks": Wrong(["script", "empty"], script=" \n\t\r\n"),
    "no script but null": Wrong(["script", "missing or empty"], script=None),
    "a script that is a list": Wrong(["script", "a list", "text"], script=["print(1)"]),
    "a byte order mark alone": Wrong(["script is empty", "Send the Python code"], script="\ufeff"),
    "a NUL byte": Wrong(["Line 2", "NUL", "\\0"], script="print('ran')\nx = '\0'"),
    "a NUL byte in an argument": Wrong(["Argument 2 of args", "NUL"], {"args": ["a", "b\0c"]}),
    "a script beyond the limit": Wrong(
        [f"{LIMIT + 1:,} bytes", f"at most {LIMIT:,}", "read or generate"], script="#" * (LIMIT + 1)
    ),
    "a Python of long ago": Wrong(["Python 2.7", "3.13, 3.14, 3.15"], {"python_version": "2.7"}),
    "a Python that nobody has": Wrong(["Python 3.7", "3.13, 3.14, 3.15"], {"python_version": 3.7}),
    "a Python to come": Wrong([">=4", "3.13, 3.14, 3.15"], {"python_version": ">=4"}),
    "a Python of one patch": Wrong(["3.13.2", "only minor versions"], {"python_version": "3.13.2"}),
    "no version": Wrong(["'snake'", "not a version", "3.13, 3.14, 3.15"], {"python_version": "snake"}),
    "a block that wants a Python of long ago": Wrong(
        ["requires-python '<3'", "3.13, 3.14, 3.15"],
        script="# /// script\n# requires-python = '<3'\n# ///\nprint('ran')",
    ),
    "a block that means every 3.13": Wrong(
        ["requires-python '==3.13'", "3.13.0 exactly", "==3.13.*"],
        script="# /// script\n# requires-python = '==3.13'\n# ///\nprint('ran')",
    ),
    "0 seconds": Wrong(["timeout_seconds", "at least 0.1", "not 0"], {"timeout_seconds": 0}),
    "-1 seconds": Wrong(["timeout_seconds", "at least 0.1", "not -1"], {"timeout_seconds": -1}),
    "0.05 seconds": Wrong(["timeout_seconds", "at least 0.1", "0.05"], {"timeout_seconds": 0.05}),
    "1e9 seconds": Wrong(["timeout_seconds", "at most 300 s", "--max-timeout"], {"timeout_seconds": 1e9}),
    "10 ** 400 seconds": Wrong(["timeout_seconds", "at most 300 s"], {"timeout_seconds": 10**400}),
    "abc seconds": Wrong(["timeout_seconds", "not a number of seconds", "45s"], {"timeout_seconds": "abc"}),
    "nan seconds": Wrong(["timeout_seconds", "not a finite number"], {"timeout_seconds": "nan"}),
    "true seconds": Wrong(["timeout_seconds", "not a number of seconds"], {"timeout_seconds": True}),
    "a list of seconds": Wrong(["timeout_seconds", "not a number of seconds"], {"timeout_seconds": [5]}),
    "an encoding that takes for ever": Wrong(
        ["punycode", "Remove the coding comment"],
        script="# coding: punycode\n" + "".join(chr(0x4E00 + n % 9000) for n in range(30_000)),
    ),
    "everything at once": Wrong(
        ["4 problems", "Line 4", "'--pre' (line 2 of the script)", "2.7", "timeout_seconds"],
        {"timeout_seconds": -1, "python_version": "2.7"},
        script="# /// script\n# dependencies = ['--pre']\n# ///\nx = '\0'",
    ),
}


async def test_a_call_that_can_not_be_carried_out_says_why_and_the_next_one_works(
    server: RunningServer,
) -> None:
    for name, wrong in WRONG.items():
        with within(LARGE_SECONDS if len(wrong.script or "") > LIMIT else REFUSED_SECONDS):
            result = await server.execute(wrong.script, **wrong.arguments)
        shown = text_of(result)
        assert result.is_error, name
        assert shown.startswith("not run: "), (name, shown)
        assert len(shown) < 1500, name
        for word in wrong.words:
            assert word in shown, (name, shown)
    await works(server)


@pytest.mark.parametrize("seconds", [None, "", "5", "5s", "00:00:05", 0.5])
async def test_a_time_out_in_any_form_that_can_be_understood_is(
    seconds: object, start_server: StartServer
) -> None:
    async with start_server("--pool-size", "1") as server:
        result = await server.execute("print('ran')", timeout_seconds=seconds)
        assert "--- stdout ---\nran\n" in text_of(result)
        assert not result.is_error


TEN_MEGABYTES: dict[str, tuple[str, str]] = {
    "of data": ("data = '''" + "ten megabytes, \n" * 640_000 + "'''\nprint(len(data))", "exit 0"),
    # Python itself needs more than that for so many statements, and says nothing before it is killed.
    "of statements": ("x = 'one'\n" * 1_000_000, "out of memory: limit 512 MiB"),
}


@pytest.mark.parametrize(("script", "ending"), TEN_MEGABYTES.values(), ids=TEN_MEGABYTES)
async def test_ten_megabytes_of_script_get_an_answer_and_the_server_answers_others_meanwhile(
    script: str, ending: str, start_server: StartServer
) -> None:
    async with start_server("--pool-size", "1") as server:
        results: list[CallToolResult] = []
        worst = 0.0

        async def run() -> None:
            results.append(await server.execute(script, timeout_seconds=60))

        with within(LARGE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                while not results:
                    asked = time.monotonic()
                    await server.client.list_tools()
                    worst = max(worst, time.monotonic() - asked)
                    await anyio.sleep(0.1)  # the pace at which a client asks
        assert text_of(results[0]).startswith(ending), text_of(results[0])[:2000]
        assert worst < MESSAGE_SECONDS
        await works(server)


# -- No sandbox to be had ----------------------------------------------------------------------------

BUSY = "import subprocess\nprint('partial', flush=True)\nsubprocess.run(['sleep', '83.5'])\nprint('whole')"
BUSY_WORD = "sleep 83.5"


async def busy_one(engine: Engine, server: RunningServer) -> Container:
    """The container in which the script ``BUSY`` runs."""

    def find() -> Container | None:
        found = (one for one in engine.containers_of(server.pid) if BUSY_WORD in processes_of(one))
        return next(found, None)

    with anyio.fail_after(START_SECONDS):
        while (container := await anyio.to_thread.run_sync(find)) is None:
            await anyio.sleep(0.05)  # polls another program
    return container


async def test_a_full_queue_is_told_at_once_with_its_length_and_the_next_call_works(
    start_server: StartServer, engine: Engine
) -> None:
    flags = ("--pool-size", "1", "--max-sandboxes", "1", "--max-waiting", "1")
    async with start_server(*flags) as server:
        await works(server)
        waited: list[CallToolResult] = []

        queued = anyio.Event()

        async def told(progress: float, total: float | None, message: str | None) -> None:
            if (message or "").startswith("waiting"):
                queued.set()

        async def wait() -> None:
            script = {"script": "print('waited')"}
            waited.append(await server.client.call_tool("execute_python", script, progress_callback=told))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.execute(BUSY, timeout_seconds=5))
            await busy_one(engine, server)
            tasks.start_soon(wait)
            with anyio.fail_after(REFUSED_SECONDS):
                await queued.wait()
            with within(REFUSED_SECONDS):
                refused = await server.execute("print('ran')")
        shown = text_of(refused)
        assert refused.is_error
        assert shown.startswith("not run: ")
        for word in ("1", "waiting", "--max-waiting"):
            assert word in shown, shown
        assert "--- stdout ---\nwaited\n" in text_of(waited[0])
        await works(server)


@pytest.mark.parametrize("flag", ["--base-image", "--image"])
async def test_an_image_that_can_not_be_made_is_named_and_the_server_answers_on(
    flag: str, start_server: StartServer
) -> None:
    async with start_server(flag, "localhost:9/absent:1") as server:
        for _ in range(3):
            with within(30):
                result = await server.execute("print('ran')")
            shown = text_of(result)
            assert result.is_error
            assert shown.startswith("not run: ")
            assert "localhost:9/absent:1" in shown, shown
            assert flag in shown, shown
            assert len(shown) < 1500
            with within(1):
                await server.client.list_tools()


@pytest.mark.no_engine
async def test_a_hung_engine_is_told_within_its_time_and_used_when_it_answers(
    engine: Engine, start_server: StartServer, tmp_path: Path
) -> None:
    path, hung = tmp_path / "engine.sock", tmp_path / "hung.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(hung))
        listener.listen(16)
        path.symlink_to(hung)
        async with start_server("--docker-host", f"unix://{path}", "--pool-size", "1") as server:
            with within(30):
                result = await server.execute("print('ran')")
            assert result.is_error
            assert str(path) in text_of(result)
            assert "no answer within 8.5 s; it hangs, or is still starting. " in text_of(result), text_of(
                result
            )
            assert "--docker-host" in text_of(result)
            path.unlink()
            path.symlink_to(engine.address.removeprefix("unix://"))
            with anyio.fail_after(60):
                while (await server.execute("print('ran')")).is_error:
                    await anyio.sleep(0.2)  # the answer says when the next try is possible
            await works(server)


# -- A sandbox that is lost in the middle of a run ---------------------------------------------------

HARMS: dict[str, Callable[[Container], object]] = {
    "removed": lambda container: container.remove(force=True),
    "stopped": lambda container: container.stop(timeout=1),
    "restarted": lambda container: container.restart(timeout=1),
    "ended by SIGTERM": lambda container: container.kill(signal="TERM"),
}


@pytest.mark.parametrize("harm", HARMS)
async def test_a_sandbox_that_goes_in_the_middle_of_a_run_is_told_with_what_was_printed_and_the_next_call_works(
    harm: str, start_server: StartServer, engine: Engine
) -> None:
    async with start_server("--pool-size", "1") as server:
        results: list[CallToolResult] = []

        async def run() -> None:
            results.append(await server.execute(BUSY, timeout_seconds=100))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            container = await busy_one(engine, server)
            start = time.monotonic()
            with contextlib.suppress(
                APIError
            ):  # the engine removes it by itself, maybe before it has done this
                await anyio.to_thread.run_sync(HARMS[harm], container)
        assert time.monotonic() - start < LOSS_SECONDS
        shown = text_of(results[0])
        assert results[0].is_error
        assert shown.startswith("sandbox lost"), shown
        assert "--- stdout ---\npartial\n" in shown
        assert "whole" not in shown
        await works(server)


async def test_a_sandbox_paused_for_a_moment_in_the_middle_of_a_run_goes_on(
    start_server: StartServer, engine: Engine
) -> None:
    script = (
        "import subprocess, time\nprint('partial', flush=True)\nsubprocess.Popen(['sleep', '83.5'])\n"
        "time.sleep(3)\nprint('whole')"
    )
    async with start_server("--pool-size", "1") as server:
        results: list[CallToolResult] = []

        async def run() -> None:
            results.append(await server.execute(script, timeout_seconds=60))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            container = await busy_one(engine, server)
            await anyio.to_thread.run_sync(container.pause)
            await server.client.list_tools()
            await anyio.to_thread.run_sync(container.unpause)
        assert text_of(results[0]).startswith("exit 0"), text_of(results[0])
        assert "--- stdout ---\npartial\nwhole\n" in text_of(results[0])
        await works(server)


# -- Settings ----------------------------------------------------------------------------------------

BAD_SETTINGS: dict[str, tuple[list[str], dict[str, str], list[str]]] = {
    "a size": (["--memory", "5x"], {}, ["--memory 5x", "512MiB"]),
    "a number out of bounds": (["--pids", "0"], {}, ["--pids 0", "between 16 and 32768"]),
    "settings that contradict each other": (
        ["--default-timeout", "400"],
        {},
        ["--default-timeout 400", "--max-timeout 300"],
    ),
    "an unknown flag": (["--pool-sze", "3"], {}, ["--pool-sze", "--pool-size"]),
    "a variable": (
        [],
        {"PYTHON_EXEC_SANDBOX_POOL_SIZE": "many"},
        ["PYTHON_EXEC_SANDBOX_POOL_SIZE many", "whole number"],
    ),
    "an unknown variable": (
        [],
        {"PYTHON_EXEC_SANDBOX_POOLSIZE": "2"},
        ["PYTHON_EXEC_SANDBOX_POOLSIZE", "PYTHON_EXEC_SANDBOX_POOL_SIZE"],
    ),
    "a file that isn't there": (["--config", "absent.toml"], {}, ["absent.toml", "can't be read"]),
    "a file that is no TOML": (["--config", "bad.toml"], {}, ["bad.toml", "not a TOML file"]),
    "an unknown name in a file": (
        ["--config", "unknown.toml"],
        {},
        ["unknown.toml", "pool-sise", "pool-size"],
    ),
    "a Python that doesn't exist": (["--python-version", "2.7"], {}, ["2.7", "3.13, 3.14, 3.15"]),
    "two at once": (["--pids", "0", "--cpus", "x"], {}, ["--pids 0", "--cpus x"]),
}


@pytest.mark.no_engine
@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_a_bad_setting_is_one_line_on_stderr_and_exit_code_2(name: str, tmp_path: Path) -> None:
    flags, variables, words = BAD_SETTINGS[name]
    (tmp_path / "bad.toml").write_text("pids = = 3\n")
    (tmp_path / "unknown.toml").write_text("pool-sise = 3\n")
    # As a client does it: its end of stdin stays open, so that only the server can end itself.
    with subprocess.Popen(
        [*SERVER, *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **DOCKER, **variables},
    ) as process:
        try:
            assert process.wait(EXIT_SECONDS) == 2
        finally:
            process.kill()
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == ""
        [line] = process.stderr.read().splitlines()
    assert line.startswith("python-exec-sandbox: ")
    for word in words:
        assert word in line, line
