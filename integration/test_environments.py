"""The store of environments on the real engine, through the real client: built once, read-only, fast."""

import io
import re
import socket
import statistics
import sys
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp.types import CallToolResult

from integration.support.engine import Engine, sandbox_image
from integration.support.servers import RunningServer, StartServer, text_of
from integration.support.stores import content_of, in_store
from integration.support.wheels import FileServer, file_server, wheel

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

META = "io.github.python-exec-sandbox/run"


@pytest.fixture
def files(engine: Engine) -> Iterator[FileServer]:
    with file_server(engine.client) as server:
        yield server


def environment_of(result: CallToolResult) -> dict[str, Any]:
    """What the result says of its environment."""
    assert result.meta is not None
    found = result.meta[META]["environment"]
    assert isinstance(found, dict), text_of(result)
    return found


async def test_the_second_call_reuses_what_the_first_one_built_without_any_network(
    start_server: StartServer, store: str
) -> None:
    script = "import humanize; print(humanize.intword(12_000_000))"
    async with start_server("--store", store, "--network", "none", "--pool-size", "1") as server:
        first = await server.execute(script, dependencies=["humanize"])
        assert "12.0 million" in text_of(first)
        assert re.search(r"environment: built in [\d.]+ s", text_of(first)), text_of(first)
        assert environment_of(first)["packages"].keys() == {"humanize"}
        second = await server.execute(script, dependencies=["humanize"])
        assert "environment: reused" in text_of(second)
    async with start_server("--store", store, "--network", "none", "--pool-size", "1") as server:
        other = await server.execute(script, dependencies=["humanize"])
        assert "environment: reused" in text_of(other), "another server finds it in the store"


async def test_different_scripts_with_the_same_block_share_one_environment(
    start_server: StartServer, store: str, engine: Engine
) -> None:
    block = "# /// script\n# dependencies = ['six']\n# ///\n"
    async with start_server("--store", store, "--pool-size", "2") as server:
        for number in range(5):
            result = await server.execute(f"{block}import six; print({number})")
            assert not result.is_error, text_of(result)
    assert in_store(engine, store, "ls /store/envs | wc -l").strip() == "1"


async def test_eight_cold_calls_at_once_make_one_build(
    start_server: StartServer, store: str, engine: Engine
) -> None:
    results: list[CallToolResult] = []
    async with start_server("--store", store, "--pool-size", "1", "--max-sandboxes", "2") as server:

        async def call(number: int) -> None:
            script = f"import humanize, six; print({number})"
            results.append(await server.execute(script, dependencies=["humanize", "six"]))

        async with anyio.create_task_group() as calls:
            for number in range(8):
                calls.start_soon(call, number)
    assert all(not result.is_error for result in results), [text_of(result) for result in results]
    assert in_store(engine, store, "ls /store/envs | wc -l").strip() == "1"
    assert not in_store(engine, store, "find /store/index/building /store/index/locks -type f").strip()


async def test_two_servers_that_build_the_same_at_once_get_one_environment(
    start_server: StartServer, store: str, engine: Engine
) -> None:
    flags = ("--store", store, "--pool-size", "1", "--max-sandboxes", "1")
    results: list[CallToolResult] = []
    async with start_server(*flags) as one, start_server(*flags) as other:

        async def call(server: RunningServer) -> None:
            results.append(await server.execute("import six, humanize", dependencies=["six", "humanize"]))

        async with anyio.create_task_group() as calls:
            for server in (one, other):
                calls.start_soon(call, server)
    assert all(not result.is_error for result in results), [text_of(result) for result in results]
    assert in_store(engine, store, "ls /store/envs | wc -l").strip() == "1"


WRITES_EVERYWHERE = """
import os, shutil, sys
import humanize

done = []
def attempt(what, *args):
    try:
        what(*args)
    except OSError:
        return
    done.append((what.__name__, args))

def append(path):
    with open(path, "ab") as file:
        file.write(b"changed")

for path in ["/store", "/store/cache", "/store/index", "/store/facts", "/store/envs"]:
    attempt(os.listdir, path)
for folder in ["/store", "/store/envs", "/store/cache", "/store/index", sys.prefix]:
    attempt(os.mkdir, folder + "/new")
    attempt(os.chmod, folder, 0o777)
    attempt(os.rename, folder, folder + "2")
for folder, _, names in os.walk(sys.prefix):
    for path in [folder, *(os.path.join(folder, name) for name in names)]:
        attempt(os.chmod, path, 0o777)
        attempt(os.utime, path, (1, 1))
        attempt(append, path)
        attempt(os.unlink, path)
        attempt(os.link, path, "/work/linked")
attempt(shutil.rmtree, sys.prefix)
attempt(os.symlink, "/work", sys.prefix + "/lib/python3.13/site-packages/evil")
print("DONE", [each for each in done if each[0] != "rmtree"])
mounts = [line.split() for line in open("/proc/self/mountinfo")]
print("MODE", [fields[5].split(",")[0] for fields in mounts if fields[4] == "/store"])
links = 0
for top in ["/work", "/tmp", "/home/sandbox", "/env", "/dev/shm"]:
    for folder, _, names in os.walk(top):
        for name in names:
            links = max(links, os.lstat(os.path.join(folder, name)).st_nlink)
print("LINKS", links)
"""


async def test_a_script_that_writes_to_everything_changes_nothing_and_finds_no_other_environment(
    start_server: StartServer, store: str, engine: Engine
) -> None:
    async with start_server("--store", store, "--pool-size", "1") as server:
        await server.execute("import six", dependencies=["six"])
        await server.execute("import humanize", dependencies=["humanize"])
        before = content_of(engine, store)
        attack = await server.execute(WRITES_EVERYWHERE, dependencies=["humanize"])
        text = text_of(attack)
        assert "DONE []" in text, text
        assert "MODE ['ro']" in text, text
        assert "LINKS 1" in text, text
        assert content_of(engine, store) == before
        after = await server.execute(
            "import humanize; print(humanize.naturalsize(2048))", dependencies=["humanize"]
        )
        assert "2.0 kB" in text_of(after)
        undeclared = await server.execute("import six", dependencies=["humanize"])
        assert "No module named 'six'" in text_of(undeclared)
        bare = await server.execute("import six")
        assert "No module named 'six'" in text_of(bare)


async def test_no_code_of_a_wheel_runs_where_the_store_can_be_written(
    start_server: StartServer, store: str, engine: Engine, files: FileServer
) -> None:
    leave_a_mark = (
        "import os, sys\n"
        "for folder in ('/store', '/store/envs', '/store/cache', sys.prefix):\n"
        "    try:\n"
        "        open(folder + '/pth-ran', 'w').close()\n"
        "    except OSError:\n"
        "        pass\n"
        "print('pth ran as', os.getuid())\n"
    )
    address = files.add(
        wheel(
            "marks",
            {
                "marks.pth": "import marks_code\n",
                "marks_code.py": leave_a_mark,
                "sitecustomize.py": leave_a_mark,
                "compileall.py": leave_a_mark,
                "encodings/__init__.py": leave_a_mark,
                "marks-1.0.data/data/bin/python": "#!/bin/sh\n:>/store/pth-ran\n:>/store/envs/pth-ran\n",
            },
        )
    )
    async with start_server("--store", store, "--pool-size", "1") as server:
        await server.execute("print('here')", dependencies=[f"marks @ {address}"], timeout_seconds=5)
    listed = in_store(engine, store, "find /store")
    assert "marks_code.py" in listed, "it was installed"
    assert "pth-ran" not in listed


async def test_bytecode_that_a_package_brings_for_another_never_reaches_other_environments(
    start_server: StartServer, store: str, engine: Engine, files: FileServer
) -> None:
    """The package overlays a module of ``six`` with bytecode of its own; only its own environment may see it."""
    async with start_server("--store", store, "--pool-size", "1") as server:
        known = await server.execute(
            "import six, os, importlib.util as u; s = os.stat(six.__file__)\n"
            "print('SIX', int(s.st_mtime), s.st_size, u.MAGIC_NUMBER.hex())",
            dependencies=["six"],
        )
        found = re.search(r"SIX (\d+) (\d+) (\w+)", text_of(known))
        assert found, text_of(known)
        header = bytes.fromhex(found[3]) + (0).to_bytes(4, "little")
        header += int(found[1]).to_bytes(4, "little") + int(found[2]).to_bytes(4, "little")
        code = await server.execute(
            "import marshal; print('CODE', marshal.dumps(compile('evil = 1', 'six.py', 'exec')).hex())"
        )
        compiled = re.search(r"CODE (\w+)", text_of(code))
        assert compiled, text_of(code)
        pyc = (header + bytes.fromhex(compiled[1])).decode("latin-1")
        name, data = wheel("overlay", {"overlay.py": ""})
        data = _with_binary(data, "__pycache__/six.cpython-313.pyc", pyc.encode("latin-1"))
        address = files.add((name, data))
        both = await server.execute(
            "import six; print('evil' if hasattr(six, 'evil') else 'good')",
            dependencies=["six", "humanize", f"overlay @ {address}"],
        )
        assert not both.is_error, text_of(both)
        clean = await server.execute(
            "import six; print('evil' if hasattr(six, 'evil') else 'good')", dependencies=["six", "packaging"]
        )
        assert "good" in text_of(clean), text_of(clean)


def _with_binary(data: bytes, path: str, content: bytes) -> bytes:
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(path, content)
    return buffer.getvalue()


FAILURES = {
    "no such package": (["zz-surely-not-there-0815"], "There is no package zz-surely-not-there-0815"),
    "no such version": (["humanize==999.9"], "No such version exists"),
    "a conflict": (["flask==3.0.0", "werkzeug<2"], "flask==3.0.0 depends on werkzeug>=3.0.0"),
    "no build for this Python": (["tensorflow==2.10"], "has no build for this Python"),
    "no such file": (["x @ {files}/x-1.0-py3-none-any.whl"], "x-1.0-py3-none-any.whl"),
}


async def test_what_fails_is_said_in_words_and_the_script_does_not_start(
    start_server: StartServer, store: str, files: FileServer
) -> None:
    async with start_server("--store", store, "--pool-size", "1", "--network", "none") as server:
        for what, (dependencies, words) in FAILURES.items():
            named = [one.replace("{files}", files.address) for one in dependencies]
            result = await server.execute("print('never')", dependencies=named)
            text = text_of(result)
            assert result.is_error, what
            assert text.startswith("dependencies failed\nThe script did not start. "), (what, text)
            assert words in text, (what, text)
            assert "never\n" not in text
            assert not re.search(r"Resolved|Downloading|--no-build", text), (what, text)


@pytest.fixture
def silent_file(engine: Engine) -> Iterator[str]:
    """The address of a wheel whose server takes connections and never answers."""
    gateway = engine.client.networks.get("python-exec-sandbox").attrs["IPAM"]["Config"][0]["Gateway"]
    with socket.create_server((gateway, 0)) as listener:
        yield f"http://{gateway}:{listener.getsockname()[1]}/slow-1.0-py3-none-any.whl"


async def test_an_index_that_never_answers_meets_the_limit_of_installing_and_leaves_nothing(
    start_server: StartServer, store: str, engine: Engine, silent_file: str
) -> None:
    async with start_server("--store", store, "--install-timeout", "3", "--pool-size", "1") as server:
        result = await server.execute("print('never')", dependencies=[f"slow @ {silent_file}"])
        text = text_of(result)
        assert text.startswith("timed out while installing: limit 3 s"), text
        assert "The script did not start." in text
        quick = await server.execute("print('after')", timeout_seconds=1)
        assert "after" in text_of(quick)
    assert in_store(engine, store, "ls /store/envs | wc -l").strip() == "0"


async def test_c13_progress_of_an_installation_names_it(
    start_server: StartServer, store: str, silent_file: str
) -> None:
    told: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    arguments = {"script": "print('never')", "dependencies": [f"slow @ {silent_file}"]}
    async with start_server("--store", store, "--install-timeout", "3", "--pool-size", "1") as server:
        await server.client.call_tool("execute_python", arguments, progress_callback=note)
    assert any("installing slow" in words for words in told), told


async def test_install_time_does_not_count_against_the_run(start_server: StartServer, store: str) -> None:
    script = "import numpy, time; time.sleep(0.3); print('whole')"
    async with start_server("--store", store, "--pool-size", "1") as server:
        result = await server.execute(script, dependencies=["numpy"], timeout_seconds=2)
        assert "whole" in text_of(result)
        assert environment_of(result)["seconds"] > 0


async def test_an_environment_whose_volume_was_removed_is_built_again(
    start_server: StartServer, store: str, engine: Engine
) -> None:
    async with start_server("--store", store, "--pool-size", "1") as server:
        await server.execute("import six", dependencies=["six"])
        engine.client.containers.run(
            sandbox_image(engine),
            ["-c", "rm -rf /store/envs/* /store/index/environments/*"],
            entrypoint="/bin/sh",
            user="0:0",
            remove=True,
            network_mode="none",
            volumes={store: {"bind": "/store", "mode": "rw"}},
        )
        again = await server.execute("import six; print('there')", dependencies=["six"])
        assert "there" in text_of(again), text_of(again)
        assert "environment: built" in text_of(again)


async def test_cancelling_the_only_waiter_ends_its_builder(
    start_server: StartServer, store: str, engine: Engine
) -> None:
    gateway = engine.client.networks.get("python-exec-sandbox").attrs["IPAM"]["Config"][0]["Gateway"]
    with socket.create_server((gateway, 0)) as listener:
        listener.settimeout(60)
        address = f"http://{gateway}:{listener.getsockname()[1]}/slow-1.0-py3-none-any.whl"
        async with start_server("--store", store, "--pool-size", "0") as server:

            async def call() -> None:
                await server.execute("print('never')", dependencies=[f"slow @ {address}"])

            async with anyio.create_task_group() as calls:
                calls.start_soon(call)
                connection, _ = await anyio.to_thread.run_sync(listener.accept)
                builders = [c for c in engine.containers_of(server.pid) if c.attrs["Args"][-1:] == ["build"]]
                assert len(builders) == 1
                calls.cancel_scope.cancel()
            with connection, anyio.fail_after(2):
                while engine.containers_of(server.pid):
                    await anyio.sleep(0.05)  # polls the engine


async def test_importing_pandas_from_the_store_beside_a_fresh_uv_run(
    start_server: StartServer, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "import pandas; print(len(pandas.DataFrame({'a': [1, 2]})))"
    async with start_server("--store", store, "--pool-size", "2", "--memory", "1GiB") as server:
        first = await server.execute(script, dependencies=["pandas"])
        assert not first.is_error, text_of(first)
        times = []
        for _ in range(5):
            began = time.perf_counter()
            result = await server.execute(script, dependencies=["pandas"])
            times.append(time.perf_counter() - began)
            assert "environment: reused" in text_of(result)
    with capsys.disabled():
        sys.stdout.write(
            f"\nimport pandas: built in {environment_of(first)['seconds']:.1f} s;"
            f" then median {statistics.median(times):.3f} s a call, best {min(times):.3f} s\n"
        )
