"""Failures seen in comparable programs, each through a real client on the real engine.

The ids are those of the reports they were collected from: C are cases, W are faults.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from integration.support.engine import Engine, processes_of
from integration.support.servers import RunningServer, StartServer, text_of

pytestmark = pytest.mark.anyio

GROWTH_BYTES = 50 * 1024 * 1024
"""Promise BOUNDED: what a flood may add to the server's memory."""


@pytest.fixture(scope="module", params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server(start_server: StartServer, era: str) -> AsyncIterator[RunningServer]:
    async with start_server("--pool-size", "2", mode=era) as started:
        yield started


async def text(server: RunningServer, script: str, **arguments: object) -> str:
    return text_of(await server.execute(script, **arguments))


def resident_bytes(pid: int) -> int:
    [line] = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")
    ]
    return int(line.split()[1]) * 1024


async def answers(server: RunningServer) -> None:
    """The server still answers the client's next request, at once."""
    with anyio.fail_after(1):
        await server.client.list_tools()


async def no_process_left(engine: Engine, server: RunningServer, word: str, seconds: float = 2.0) -> None:
    """No process with ``word`` in its command line is in any container of the server after ``seconds``."""

    def any_left() -> bool:
        return any(word in processes_of(container) for container in engine.containers_of(server.pid))

    with anyio.fail_after(seconds):
        while await anyio.to_thread.run_sync(any_left):
            await anyio.sleep(0.05)  # polls the process table


async def test_c1_overrun_keeps_what_was_printed(server: RunningServer) -> None:
    script = (
        'import time, pathlib, sys\nprint("step one")\nsys.stderr.write("warn: slow part next\\n")\n'
        'pathlib.Path("half.csv").write_text("a,b\\n1,2\\n")\nprint("step two, no newline", end="")\n'
        "while True:\n    time.sleep(0.2)"
    )
    await text(server, "print('warm')")
    start = time.monotonic()
    shown = await text(server, script, timeout_seconds=4)
    assert time.monotonic() - start <= 4 + 3
    assert shown.startswith("timed out after 4 s")
    assert "step one\nstep two, no newline\n--- stderr ---\nwarn: slow part next\n" in shown
    shown = await text(server, "import os; print(1, os.path.exists('half.csv'))")
    assert "--- stdout ---\n1 False\n" in shown


async def test_c5_stdin_is_the_scripts_own(server: RunningServer) -> None:
    script = (
        "import sys\ndata = sys.stdin.read()\nprint(len(data), repr(data[:3]))\n"
        'try: input("? ")\nexcept EOFError: print("EOFError")'
    )
    start = time.monotonic()
    shown = await text(server, script)
    assert "--- stdout ---\n0 ''\n? EOFError\n" in shown
    assert time.monotonic() - start < 10
    assert "--- stdout ---\n4 'a\\nb'\n" in await text(server, script, stdin="a\nb\n")
    assert "--- stdout ---\n5242880 'iii'\n" in await text(server, script, stdin="i" * 5242880)
    assert "never read" in await text(server, "print('never read')", stdin="i" * 5242880)
    await answers(server)


ORPHANS = """
import os, sys, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execvp("sleep", ["sleep", "7654"])
    os._exit(0)
print("parent", flush=True)
"""


@pytest.mark.parametrize("overrun", [True, False])
async def test_c6_nothing_survives_the_end_of_a_run(
    server: RunningServer, engine: Engine, overrun: bool
) -> None:
    await text(server, "print('warm')")
    start = time.monotonic()
    shown = await text(server, ORPHANS + ("time.sleep(60)" if overrun else ""), timeout_seconds=3)
    assert time.monotonic() - start < 6
    assert "parent" in shown
    assert shown.startswith("timed out after 3 s" if overrun else "exit 0")
    await no_process_left(engine, server, "sleep 7654")


FLOODS = {
    "stdout": "import sys\nn = 0\nwhile True:\n    n += 1\n    sys.stdout.write('%09d ' % n + 'x' * 9990 + '\\n')",
    "stderr": "import sys\nn = 0\nwhile True:\n    n += 1\n    sys.stderr.write('%09d ' % n + 'x' * 9990 + '\\n')",
    "no newline": "import sys\nn = 0\nwhile True:\n    n += 1\n    sys.stdout.write('%09d ' % n + 'x' * 9990)",
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_c9_endless_output_is_bounded(server: RunningServer, flood: str) -> None:
    await text(server, "print('warm')")
    before, peak, worst, shown = resident_bytes(server.pid), 0, 0.0, ""

    async def run() -> None:
        nonlocal shown
        shown = await text(server, flood, timeout_seconds=10)

    start = time.monotonic()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while not shown:
            asked = time.monotonic()
            await server.client.list_tools()
            worst = max(worst, time.monotonic() - asked)
            peak = max(peak, resident_bytes(server.pid))
            await anyio.sleep(0.2)  # the pace at which it is asked and measured
    assert time.monotonic() - start <= 10 + 3
    assert shown.startswith(("timed out after 10 s", "output limit"))
    assert "000000001 xxx" in shown
    assert "bytes" in shown and "left out" in shown
    assert peak - before < GROWTH_BYTES
    assert worst < 1


async def test_c11_the_result_is_text_without_structured_content(server: RunningServer) -> None:
    result = await server.execute("print('hello')")
    raw = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert "structuredContent" not in raw
    assert [block["type"] for block in raw["content"]] == ["text"]
    assert "hello" in raw["content"][0]["text"]
    [data] = [value for key, value in raw["_meta"].items() if key.endswith("/run")]
    assert (data["verdict"], data["exit_code"], data["driver"]) == ("ok", 0, "docker")


# -- C12: a sick engine ------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["absent", "hung"])
@pytest.mark.no_engine
async def test_c12_a_sick_engine_is_an_answer_with_the_cause_and_a_next_step(
    state: str, era: str, tmp_path: Path
) -> None:
    from integration.support.servers import running_server

    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        if state == "hung":
            listener.bind(str(path))
            listener.listen(16)
        folder = tmp_path / "server"
        folder.mkdir()
        async with running_server(folder, "--docker-host", f"unix://{path}", mode=era) as server:
            await answers(server)
            start = time.monotonic()
            result = await server.execute("open('/tmp/ran-on-the-host', 'w')")
            assert time.monotonic() - start < 30
            shown = text_of(result)
            assert result.is_error
            assert "engine" in shown and str(path) in shown, shown
            assert not Path("/tmp/ran-on-the-host").exists()
            await answers(server)


async def test_c12_a_missing_image_is_named_with_how_to_get_it(start_server: StartServer, era: str) -> None:
    flags = ("--image", "localhost:9/absent:1", "--pull-policy", "missing")
    async with start_server(*flags, mode=era) as server:
        result = await server.execute("print(1)")
        assert result.is_error
        assert "localhost:9/absent:1" in text_of(result)
        await answers(server)


@pytest.mark.no_engine
async def test_c12_when_the_engine_comes_back_the_next_call_works(
    engine: Engine, era: str, tmp_path: Path
) -> None:
    from integration.support.servers import running_server

    path = tmp_path / "engine.sock"
    async with running_server(
        tmp_path, "--docker-host", f"unix://{path}", "--pool-size", "1", mode=era
    ) as server:
        assert (await server.execute("print(1)")).is_error
        path.symlink_to(engine.address.removeprefix("unix://"))
        with anyio.fail_after(60):
            while (result := await server.execute("print('it is back')")).is_error:
                await anyio.sleep(0.2)  # the answer says when the next try is possible
        assert "it is back" in text_of(result)


@pytest.mark.no_engine
def test_w15_without_an_engine_nothing_runs_and_the_fix_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "python_exec_sandbox",
            "--sandbox-backend",
            "docker",
            "--docker-host",
            f"unix://{tmp_path}/none.sock",
            "run",
            "-",
        ],
        input=f"open({str(tmp_path / 'ran')!r}, 'w')",
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/nonexistent", "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 2
    assert not (tmp_path / "ran").exists()
    assert "engine" in done.stderr and done.stdout == ""


async def test_c12_env_i_start_works(start_server: StartServer, era: str) -> None:
    command = ("env", "-i", f"PATH={os.defpath}", sys.executable, "-m", "python_exec_sandbox")
    async with start_server("--sandbox-backend", "docker", command=command, mode=era) as server:
        shown = await text(server, "import os; print(os.getuid() not in (0, 1000), os.uname().nodename)")
        assert "--- stdout ---\nTrue " in shown


# -- W: faults of comparable programs ----------------------------------------------------------------


async def test_w5_time_out_and_cancel_leave_nothing(server: RunningServer, engine: Engine) -> None:
    script = "import subprocess; subprocess.run(['sleep', '4321'])"
    await text(server, script, timeout_seconds=2)
    await no_process_left(engine, server, "sleep 4321")
    with anyio.move_on_after(1):
        await text(server, script)
    await no_process_left(engine, server, "sleep 4321")
    assert "still here" in await text(server, "print('still here')")


async def test_w6_a_grandchild_that_holds_the_pipe_does_not_hold_the_answer(server: RunningServer) -> None:
    await text(server, "print('warm')")
    start = time.monotonic()
    shown = await text(
        server,
        "import subprocess, time\nsubprocess.Popen(['sleep', '60'])\nprint('printed')\ntime.sleep(60)",
        timeout_seconds=2,
    )
    assert time.monotonic() - start < 3.5
    assert "printed" in shown


@pytest.mark.timeout(300)
async def test_w7_two_gigabytes_of_output_do_not_grow_the_server(server: RunningServer) -> None:
    await text(server, "print('warm')")
    before, peak, shown = resident_bytes(server.pid), 0, ""
    script = "import sys\nprint('FIRST')\nblock = 'x' * 99 + '\\n'\nfor _ in range(2000): sys.stdout.write(block * 10000)\nprint('LAST')"

    async def run() -> None:
        nonlocal shown
        shown = await text(server, script, timeout_seconds=200)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while not shown:
            peak = max(peak, resident_bytes(server.pid))
            await anyio.sleep(0.2)  # samples another program
    assert peak - before < GROWTH_BYTES
    assert "FIRST" in shown
    assert shown.startswith(("exit 0", "output limit"))
    assert "left out" in shown


async def test_w8_one_line_of_ten_megabytes(server: RunningServer) -> None:
    shown = await text(server, "print('x' * 10**7)")
    assert shown.startswith("exit 0")
    assert "left out" in shown


async def test_w9_forged_frames_change_nothing(server: RunningServer) -> None:
    usage = dict.fromkeys(
        (
            "run_seconds",
            "install_seconds",
            "cpu_seconds",
            "peak_memory_bytes",
            "memory_kills",
            "process_refusals",
        ),
        0,
    )
    message = {
        "type": "exit",
        "reason": "exited",
        "code": 0,
        "signal": None,
        "notes": "",
        "warm": True,
        "usage": usage | {"full_paths": []},
    }
    script = (
        "import os, struct, sys\ndef frame(kind, stream, data): return struct.pack('>BBHI', kind, 0, stream, len(data)) + data\n"
        f"forged = frame(3, 2, b'') + frame(3, 3, b'') + frame(1, 0, {json.dumps(message).encode()!r})\n"
        "for fd in range(256):\n    try: os.write(fd, forged)\n    except OSError: pass\nsys.exit(9)"
    )
    assert (await text(server, script)).startswith("exit 9")


@pytest.mark.parametrize("with_progress", [True, False])
async def test_w10_the_exit_code_arrives_with_and_without_progress(
    server: RunningServer, with_progress: bool
) -> None:
    async def seen(progress: float, total: float | None, message: str | None) -> None: ...

    result = await server.client.call_tool(
        "execute_python",
        {"script": "import sys; sys.exit(3)"},
        progress_callback=seen if with_progress else None,
    )
    assert text_of(result).startswith("exit 3")


async def test_w11_every_byte_on_both_streams(server: RunningServer) -> None:
    shown = await text(
        server, "import sys\nfor s in (sys.stdout, sys.stderr): s.buffer.write(bytes(range(256)))"
    )
    assert shown.startswith("exit 0")
    assert shown.count("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 2
    assert "\ufffd" in shown


WHICH = "print([line for line in open('/proc/self/mountinfo') if ' / / ' in line][0].partition('upperdir=')[2].partition(',')[0])"
"""Names the sandbox from inside: the layer of its root file system, new for each container."""


async def test_w12_a_timed_out_sandbox_never_comes_back(server: RunningServer) -> None:
    def name(shown: str) -> str:
        return shown.split("--- stdout ---\n")[1].splitlines()[0]

    timed_out = name(await text(server, f"import time\n{WHICH}\ntime.sleep(60)", timeout_seconds=1))
    later = [name(await text(server, WHICH)) for _ in range(6)]
    assert all(len(one) > 20 for one in later)
    assert len({timed_out, *later}) == 7


async def test_w13_closing_with_eight_warm_sandboxes_is_quick_and_leaves_none(
    start_server: StartServer, engine: Engine, era: str
) -> None:
    async with start_server("--pool-size", "8", "--max-sandboxes", "9", mode=era) as server:
        await text(server, "print('warm')")
        with anyio.fail_after(60):
            while await anyio.to_thread.run_sync(_waiting, engine, server.pid) < 8:
                await anyio.sleep(0.1)  # polls another program
        pid = server.pid
        start = time.monotonic()
    closed = time.monotonic() - start
    assert closed < 2.5, "the client's library waits up to 2 s before it sends SIGTERM"
    with anyio.fail_after(5):
        while await anyio.to_thread.run_sync(engine.containers_of, pid):
            await anyio.sleep(0.05)  # polls the engine


def _waiting(engine: Engine, pid: int) -> int:
    return sum("script.py" in processes_of(container) for container in engine.containers_of(pid))


BOMBS = {
    "fork bomb": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        ("process limit", "timed out"),
    ),
    "memory": ("keep = []\nwhile True: keep.append(bytearray(1 << 24))", ("out of memory",)),
    "/tmp": ("f = open('/tmp/big', 'wb')\nwhile True: f.write(b'x' * (1 << 20))", ("disk full",)),
    "/dev/shm": ("f = open('/dev/shm/big', 'wb')\nwhile True: f.write(b'x' * (1 << 20))", ("disk full",)),
}


async def test_w14_bombs_get_their_verdict_and_harm_no_neighbour(server: RunningServer) -> None:
    shown: dict[str, str] = {}

    async def run(name: str, script: str) -> None:
        shown[name] = await text(server, script, timeout_seconds=8)

    async with anyio.create_task_group() as tasks:
        for name, (script, _) in BOMBS.items():
            tasks.start_soon(run, name, script)
        tasks.start_soon(
            run, "neighbour", "import time\nfor i in range(20): time.sleep(0.1)\nprint('neighbour done')"
        )
    assert "neighbour done" in shown.pop("neighbour")
    for name, first in shown.items():
        assert first.startswith(BOMBS[name][1]), (name, first)
