"""The main job through a real client over stdio, in both protocol eras, on the real engine."""

import time

import anyio
import pytest

from integration.support.engine import Engine, processes_of
from integration.support.servers import RunningServer, StartServer, text_of

pytestmark = pytest.mark.anyio

FLAGS = ("--pool-size", "1")
"""One warm sandbox: what these tests look at doesn't depend on how many wait."""


async def answer(server: RunningServer, script: str, **arguments: object) -> tuple[str, bool]:
    """The text of the answer and whether it is marked as an error."""
    result = await server.execute(script, **arguments)
    assert result.structured_content is None
    return text_of(result), bool(result.is_error)


async def test_scripts_end_as_they_do_on_a_terminal(stdio_client: StartServer) -> None:
    async with stdio_client(*FLAGS) as server:
        text, error = await answer(server, "print('hello')")
        assert text.startswith("exit 0 in ") and "--- stdout ---\nhello\n" in text and not error

        for code in (1, 2, 3, 124, 125, 137, 143, 255):
            text, error = await answer(server, f"import sys; sys.exit({code})")
            assert text.startswith(f"exit {code} in ") and error

        text, error = await answer(server, "import sys; sys.exit('a text')")
        assert text.startswith("exit 1 in ") and "--- stderr ---\na text\n" in text and error

        text, error = await answer(server, "def f():\n    raise ValueError('wrong')\n\nf()")
        assert 'File "/work/script.py", line 4' in text and 'File "/work/script.py", line 2' in text
        assert "ValueError: wrong" in text and error

        text, error = await answer(server, "import sys; print(repr(sys.stdin.read()))")
        assert "--- stdout ---\n''\n" in text and not error


async def test_large_and_binary_output_comes_back_cut_and_clean(stdio_client: StartServer) -> None:
    async with stdio_client(*FLAGS) as server:
        text, error = await answer(server, "print('first'); print('x' * 10_000_000); print('last')")
        assert "--- stdout ---\nfirst\n" in text and "\nlast\n" in text and not error
        assert len(text) < 20_000

        script = "import sys\nfor s in (sys.stdout, sys.stderr): s.buffer.write(bytes(range(256)))"
        text, error = await answer(server, script)
        assert "abcdefgh" in text and "\ufffd" in text and "\x1b" not in text and not error
        text.encode()


async def test_a_time_out_brings_back_what_was_printed(stdio_client: StartServer) -> None:
    async with stdio_client(*FLAGS) as server:
        start = time.monotonic()
        text, error = await answer(
            server, "import time\nprint('before')\nwhile True: time.sleep(0.1)", timeout_seconds=1
        )
        assert time.monotonic() - start < 10  # a sandbox may have to be made first
        assert text.startswith("timed out after 1 s") and "before" in text and error


async def test_memory_kill_kill_9_and_docker_kill_are_told_apart(
    stdio_client: StartServer, engine: Engine
) -> None:
    async with stdio_client(*FLAGS) as server:
        text, error = await answer(
            server, "print('before')\nkeep = []\nwhile True: keep.append(bytearray(10_000_000))"
        )
        assert text.startswith("out of memory: limit 512 MiB") and "before" in text and error

        text, error = await answer(server, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert "SIGKILL" in text.splitlines()[0] and "memory" not in text.splitlines()[0] and error

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_kill_the_busy_container, engine, server.pid)
            text, error = await answer(
                server,
                "import subprocess\nprint('MARK')\nsubprocess.run(['sleep', '61.25'])",
                timeout_seconds=90,
            )
        assert text.startswith("sandbox lost") and "MARK" in text and error

        text, error = await answer(server, "print('again')")
        assert "again" in text and not error


async def _kill_the_busy_container(engine: Engine, pid: int) -> None:
    """As a person would with ``docker kill``, once the script's child runs."""

    def find_and_kill() -> bool:
        for container in engine.containers_of(pid):
            if "61.25" in processes_of(container):
                container.kill()
                return True
        return False

    with anyio.fail_after(60):
        while not await anyio.to_thread.run_sync(find_and_kill):
            await anyio.sleep(0.1)  # polls another program: there is no event for "the script runs"


async def test_double_forked_children_are_gone_within_two_seconds(
    stdio_client: StartServer, engine: Engine
) -> None:
    script = (
        "import os, signal, time\nr, w = os.pipe()\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n        os.write(w, b'x')\n"
        "        time.sleep(3600)\n    os._exit(0)\nos.read(r, 1)\nprint('parent')"
    )
    async with stdio_client(*FLAGS) as server:
        start = time.monotonic()
        text, error = await answer(server, script)
        assert "parent" in text and not error
        assert time.monotonic() - start < 10
        with anyio.fail_after(2):
            while await anyio.to_thread.run_sync(_any_process, engine, server.pid, "script.py", 1):
                await anyio.sleep(0.05)  # polls the process table


def _any_process(engine: Engine, pid: int, word: str, allowed: int) -> bool:
    """Whether more than ``allowed`` processes with ``word`` in their command line run in the server's containers.

    One is allowed per warm sandbox: the interpreter that waits for its script.
    """
    lists = "\n".join(processes_of(container) for container in engine.containers_of(pid))
    return sum(word in line for line in lists.splitlines()) > allowed


@pytest.mark.parametrize("python", ["3.13", "3.14", "3.15"])
async def test_each_python_of_the_image_runs_under_uv(stdio_client: StartServer, python: str) -> None:
    script = (
        "import os, sys\nstatus = open('/proc/self/status').read()\n"
        "print('%d.%d' % sys.version_info[:2], os.path.basename(os.environ['UV']), os.getuid() != 0,"
        " 'CapEff:\\t0000000000000000' in status, 'Seccomp:\\t2' in status)"
    )
    async with stdio_client(*FLAGS) as server:
        text, error = await answer(server, script, python_version=python)
        assert f"{python} uv True True True" in text and not error


async def test_with_network_none_there_is_no_device_but_loopback(stdio_client: StartServer) -> None:
    async with stdio_client(*FLAGS, "--network", "none") as server:
        text, _ = await answer(server, "import os; print(sorted(os.listdir('/sys/class/net')))")
        assert "['lo']" in text


async def test_dependencies_are_installed_before_the_clock_starts(stdio_client: StartServer) -> None:
    async with stdio_client(*FLAGS) as server:
        block = '# /// script\n# dependencies = ["six"]\n# ///\nimport six, humanize; print(six.__name__, humanize.intcomma(12345))'
        text, error = await answer(server, block, dependencies=["humanize"], timeout_seconds=2)
        assert "six 12,345" in text and not error

        text, error = await answer(server, "print('never')", dependencies=["zz-surely-not-there-0815"])
        assert error and "zz-surely-not-there-0815" in text and "never" not in text.replace("zz-surely", "")
        assert "--- stdout ---" not in text


async def test_the_next_request_is_answered_after_a_script_read_stdin(stdio_client: StartServer) -> None:
    async with stdio_client(*FLAGS) as server:
        text, _ = await answer(server, "import sys; print(repr(sys.stdin.read()))")
        assert "''" in text
        assert "execute_python" in [tool.name for tool in (await server.client.list_tools()).tools]
