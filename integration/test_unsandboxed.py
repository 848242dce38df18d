"""Scripts outside a sandbox, through the real client over stdio."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from mcp import MCPError

from integration.support.servers import SERVER, RunningServer, running_server, text_of
from integration.support.unsandboxed import is_running, on_path
from python_exec_sandbox.api.tool_call import META_KEY

pytestmark = [pytest.mark.anyio, pytest.mark.no_engine, pytest.mark.quick]

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
FLAGS = ("--sandbox-backend", "none", "--python-version", PYTHON)

KILL_SECONDS = 2.0
"""Promise KILL, and GONE after ``kill -9``."""

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="processes that left the group are Linux's to find"
)

DAEMONS = """
import os, signal, sys, time
def leave():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.environ.clear()
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
            with open(sys.argv[1], 'a') as file: file.write('%d\\n' % os.getpid())
            time.sleep(300)
        os._exit(0)
for _ in range(3): leave()
while not os.path.exists(sys.argv[1]) or len(open(sys.argv[1]).readlines()) < 3: time.sleep(0.01)
with open(sys.argv[1], 'a') as file: file.write('%d\\n' % os.getpid())
"""
"""Three children in sessions of their own, whose ids are in the file named by the first argument, then its own."""


@asynccontextmanager
async def server_in(folder: Path, *flags: str, **environment: str) -> AsyncIterator[RunningServer]:
    """A server whose folders of runs lie in ``folder/runs``; afterwards none may be left there."""
    runs = folder / "runs"
    runs.mkdir(exist_ok=True)
    more = {"PATH": on_path(), "TMPDIR": str(runs), "NONE_SECRET": "must not be seen", **environment}
    async with running_server(folder, *flags, environment=more) as server:
        yield server
    assert list(runs.iterdir()) == []


async def answer(server: RunningServer, script: str, **arguments: object) -> str:
    """The answer's text, which says what it must."""
    result = await server.execute(script, **arguments)
    text = text_of(result)
    lines = text.splitlines()
    assert lines[0].endswith(" (not sandboxed)"), text
    assert any(line.startswith("Note: not sandboxed: ") for line in lines), text
    assert "sandbox none (not sandboxed)" in lines[-1], text
    assert result.meta is not None
    data = result.meta[META_KEY]
    assert (data["driver"], data["sandboxed"]) == ("none", False)
    assert bool(result.is_error) != text.startswith("exit 0 ")
    return text


async def test_scripts_end_as_they_do_on_a_terminal_and_each_answer_says_not_sandboxed(
    tmp_path: Path,
) -> None:
    async with server_in(tmp_path, *FLAGS) as server:
        text = await answer(server, "print('hello')")
        assert "--- stdout ---\nhello\n" in text and f"python {PYTHON}" in text
        for code in (1, 3, 137):
            assert (await answer(server, f"import sys; sys.exit({code})")).startswith(f"exit {code} in ")
        text = await answer(server, "import os; os.kill(os.getpid(), 9)")
        if sys.platform == "linux":
            assert text.startswith("killed by SIGKILL (9)")
        text = await answer(server, "def f():\n    raise ValueError('wrong')\n\nf()")
        assert re.search(r'script\.py", line 4', text) and re.search(r'script\.py", line 2', text)
        text = await answer(
            server, "import sys; print(sys.argv[1:], sys.stdin.read())", args=["a b"], stdin="in"
        )
        assert "['a b'] in" in text


async def test_the_script_is_started_by_uv_and_its_environment_has_nothing_of_the_servers(
    tmp_path: Path,
) -> None:
    script = "import os, sys, json; print(json.dumps(dict(os.environ))); print(os.getcwd(), sys.version_info[:2], os.listdir('.'))"
    async with server_in(tmp_path, *FLAGS) as server:
        text = await answer(server, script)
    assert '"UV_RUN_RECURSION_DEPTH": "1"' in text and f"({PYTHON.replace('.', ', ')}) ['script.py']" in text
    assert f'"HOME": "{tmp_path}/runs/pes-' in text
    assert "must not be seen" not in text and "UV_CACHE_DIR" not in text


async def test_a_time_out_brings_back_what_was_printed(tmp_path: Path) -> None:
    async with server_in(tmp_path, *FLAGS) as server:
        began = time.monotonic()
        text = await answer(
            server, "import time\nprint('before')\nwhile True: time.sleep(0.1)", timeout_seconds=1
        )
        assert time.monotonic() - began < 1 + 3
    assert text.startswith("timed out after 1 s") and "before" in text


@linux_only
async def test_children_that_left_the_session_are_gone_when_the_script_ends(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with server_in(tmp_path, *FLAGS) as server:
        text = await answer(server, DAEMONS + "print('parent')", args=[str(pids)])
        found = [int(line) for line in pids.read_text().split()]
        assert text.startswith("exit 0 ") and len(found) == 4
        assert not [pid for pid in found if is_running(pid)]


@linux_only
async def test_children_that_left_the_session_are_gone_after_a_time_out_and_a_cancellation(
    tmp_path: Path,
) -> None:
    script = DAEMONS + "time.sleep(300)"
    async with server_in(tmp_path, *FLAGS) as server:
        pids = tmp_path / "pids"
        await answer(server, script, args=[str(pids)], timeout_seconds=2)
        assert len(pids.read_text().split()) == 4
        await _gone(pids)

        pids = tmp_path / "cancelled"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.execute(script, args=[str(pids)]))
            await _written(pids)
            tasks.cancel_scope.cancel()
        await _gone(pids)


@linux_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_when_the_server_is_ended_nothing_of_its_scripts_is_left(
    tmp_path: Path, number: signal.Signals
) -> None:
    pids = tmp_path / "pids"

    async def end(server: RunningServer) -> None:
        await _written(pids)
        os.kill(server.pid, number)
        await _gone(pids)

    await _until_dead(tmp_path, pids, end)
    with anyio.fail_after(KILL_SECONDS):
        while list((tmp_path / "runs").iterdir()):
            await anyio.sleep(0.02)  # polls other programs


@linux_only
async def test_a_script_that_kills_its_supervisor_is_told_as_a_loss_and_gone_all_the_same(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    script = (
        "import os, sys, time\n"
        "open(sys.argv[1], 'w').write('%d\\n' % os.getpid())\n"
        "uv = os.getppid()\n"
        "supervisor = int(open(f'/proc/{uv}/stat').read().rpartition(')')[2].split()[1])\n"
        "os.kill(supervisor, 9)\ntime.sleep(300)"
    )
    async with server_in(tmp_path, *FLAGS) as server:
        text = await answer(server, script, args=[str(pids)])
        assert text.startswith("sandbox lost") and "signal 9" in text
        await _gone(pids, count=1)
        assert (await answer(server, "print(1)")).startswith("exit 0 ")


async def test_limits_hold_for_a_process_and_a_file(tmp_path: Path) -> None:
    async with server_in(tmp_path, *FLAGS, "--memory", "256MiB", "--disk", "64MiB") as server:
        text = await answer(
            server, "f = open('big', 'wb', buffering=0)\nwhile True: f.write(b'x' * 1_000_000)"
        )
        assert text.startswith("exit 1 ") and "File too large" in text
        text = await answer(server, "import os; os.closerange(0, 4096); os._exit(7)")
        assert text.startswith("exit 7 ")
        if sys.platform == "linux":
            text = await answer(server, "keep = []\nwhile True: keep.append(bytearray(10_000_000))")
            assert text.startswith("exit 1 ") and "MemoryError" in text
        script = "import resource as r; print([r.getrlimit(n)[1] for n in (r.RLIMIT_NOFILE, r.RLIMIT_CORE, r.RLIMIT_CPU)])"
        assert "[1024, 0, 31]" in await answer(server, script)


async def test_an_endless_output_fills_no_memory_and_ends_the_script(tmp_path: Path) -> None:
    async with server_in(tmp_path, *FLAGS, "--output-kill-bytes", "200MiB") as server:
        await answer(server, "print(1)")
        before = _resident(server.pid)
        text = await answer(server, "import sys\nwhile True: sys.stdout.write('x' * 65536)")
        assert text.startswith("output limit: 200 MiB")
        assert _resident(server.pid) - before < 50 * 1024 * 1024


async def test_dependencies_are_installed_before_and_are_not_there_for_the_next_script(
    tmp_path: Path,
) -> None:
    with served(tmp_path / "index") as index:
        address = f"{index}/{_wheel(tmp_path / 'index').name}"
        await _install_and_look(tmp_path, address)
    assert list((tmp_path / "cache" / "builds-v0").iterdir()) == [], "uv's temporary environment was left"


async def _install_and_look(folder: Path, address: str) -> None:
    async with server_in(folder, *FLAGS, UV_CACHE_DIR=str(folder / "cache"), NO_PROXY="127.0.0.1") as server:
        script = "import tiny_for_none; print(tiny_for_none.WORD)"
        text = await answer(server, script, dependencies=[f"tiny-for-none @ {address}"])
        assert (
            "--- stdout ---\nfrom a wheel\n" in text
            and "stderr" not in text
            and "1 requirement installed" in text
        )
        assert "ModuleNotFoundError" in await answer(server, script)
        text = await answer(server, "print(1)", dependencies=[f"other @ {address}.gone.whl"])
        assert text.startswith("dependencies failed") and "The script did not start." in text


async def test_a_python_that_the_machine_lacks_is_refused_and_what_there_is_is_named(tmp_path: Path) -> None:
    async with server_in(tmp_path, *FLAGS) as server:
        result = await server.execute("print(1)", python_version="3.99")
        assert text_of(result).startswith("not run: ") and PYTHON in text_of(result) and result.is_error
    async with server_in(tmp_path, "--sandbox-backend", "none", "--python-version", "3.99") as server:
        result = await server.execute("print(1)")
        assert "uv finds no Python 3.99 on this machine, but " in text_of(result) and PYTHON in text_of(
            result
        )


async def test_a_uv_that_is_not_there_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    async with server_in(tmp_path, *FLAGS, "--uv-path", "/no/such/uv") as server:
        result = await server.execute("print(1)")
        assert text_of(result) == "not run: --uv-path /no/such/uv is not an executable file"


async def test_without_an_engine_nothing_runs_unless_the_fallback_was_named(tmp_path: Path) -> None:
    nowhere = ("--docker-host", f"unix://{tmp_path}/absent.sock")
    for flags in ((), ("--sandbox-backend", "native", "--uv-path", "/no/such/uv")):
        async with server_in(tmp_path, *nowhere, *flags) as server:
            trace = tmp_path / "trace"
            result = await server.execute(f"open({str(trace)!r}, 'w')")
            assert text_of(result).startswith("not run: ") and result.is_error
            assert not trace.exists()
    # An image of one's own may have any Python; so this doesn't need one of the packaged image's.
    own = ("--image", "absent.invalid/x:1", "--python-version", PYTHON)
    async with server_in(tmp_path, *nowhere, *own, "--allow-unsandboxed") as server:
        text = await answer(server, "print('ran')")
        assert "--- stdout ---\nran\n" in text
        assert "--allow-unsandboxed" in text and "absent.sock" in text


def test_the_command_run_says_it_on_stderr_and_passes_the_rest_through() -> None:
    done = subprocess.run(
        [*SERVER, "run", "-", *FLAGS],
        input=b"import sys; print('out'); sys.exit(5)",
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": on_path()},
    )
    assert (done.returncode, done.stdout) == (5, b"out\n")
    assert b"python-exec-sandbox: not sandboxed: " in done.stderr


async def _written(pids: Path, count: int = 4) -> None:
    with anyio.fail_after(30):
        while not pids.exists() or len(pids.read_text().split()) < count:
            await anyio.sleep(0.02)  # polls other programs


async def _gone(pids: Path, count: int = 4) -> None:
    """Within the promise's bound nobody of these processes is left."""
    found = [int(line) for line in pids.read_text().split()]
    assert len(found) == count
    with anyio.move_on_after(KILL_SECONDS):
        while any(map(is_running, found)):
            await anyio.sleep(0.02)  # polls other programs
    assert not [pid for pid in found if is_running(pid)]


async def _until_dead(folder: Path, pids: Path, end: Callable[[RunningServer], Awaitable[None]]) -> None:
    """Let a script run in a server that ``end`` ends; what the client's library makes of that is not looked at."""
    ended = False
    try:
        async with server_in(folder, *FLAGS) as server, anyio.create_task_group() as tasks:
            tasks.start_soon(_unanswered, server, pids)
            await end(server)
            ended = True
            tasks.cancel_scope.cancel()
    except* Exception:
        if not ended:
            raise


async def _unanswered(server: RunningServer, pids: Path) -> None:
    with contextlib.suppress(MCPError):
        await server.execute(DAEMONS + "time.sleep(300)", args=[str(pids)])


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which the files of ``folder`` can be had."""
    folder.mkdir()
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        return


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _wheel(folder: Path) -> Path:
    """A package of one line, as a wheel."""
    path = folder / "tiny_for_none-1.0-py3-none-any.whl"
    info = "tiny_for_none-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_for_none.py", "WORD = 'from a wheel'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-for-none\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(
            f"{info}/RECORD", f"tiny_for_none.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return path
