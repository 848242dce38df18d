"""The store of environments on bubblewrap: built once by a builder of its own, read-only, without names to find."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from integration.support.native import ORDINARY, as_ordinary_user, why_no_bubblewrap
from integration.support.native_servers import NO_ENGINE, all_gone, family_of, native_server
from integration.support.servers import SERVER, STORE, text_of
from integration.support.wheels import FileServer, self_building, serving, wheel

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.no_engine,
    pytest.mark.skipif(why_no_bubblewrap() is not None, reason=why_no_bubblewrap() or ""),
]

GONE_SECONDS = 5.0

LOOKS_AROUND = """
import os, sys
for folder in ("/store/envs", "/store/facts", "/store/leases"):
    for attempt in (os.listdir, lambda name: os.chmod(name, 0o777), lambda name: os.mkdir(name + "/x")):
        try:
            print("REACHED", folder, attempt(folder))
        except OSError:
            pass
print(sorted(os.listdir("/store")), sys.prefix.startswith("/store/envs/"), os.access(sys.prefix, os.W_OK))
"""


@pytest.fixture
def files() -> Iterator[FileServer]:
    with serving("127.0.0.1") as served:
        yield served


@pytest.fixture
def greeter(files: FileServer) -> str:
    """A requirement that is met without any index."""
    return f"greeter @ {files.add(wheel('greeter', {'greeter.py': 'WORDS = 42 * (chr(103),)'}))}"


async def test_the_second_call_and_another_server_reuse_what_was_built_whatever_scripts_may_reach(
    tmp_path: Path, greeter: str, files: FileServer
) -> None:
    script = "import greeter; print(''.join(greeter.WORDS), greeter.__cached__)"
    async with native_server(tmp_path, "--network", "none") as server:
        first = text_of(await server.execute(script, dependencies=[greeter]))
        assert "g" * 42 in first, first
        assert "__pycache__/greeter." in first, first
        assert re.search(r"environment: built in [\d.]+ s", first), first
        assert "environment: reused" in text_of(await server.execute(script, dependencies=[greeter]))
        bare = text_of(await server.execute("import greeter"))
        assert "No module named 'greeter'" in bare, bare
    asked = len(files.asked)
    async with native_server(tmp_path) as server:
        assert "environment: reused" in text_of(await server.execute(script, dependencies=[greeter]))
    assert len(files.asked) == asked


async def test_a_script_can_neither_list_nor_change_the_store(tmp_path: Path, greeter: str) -> None:
    async with native_server(tmp_path) as server:
        text = text_of(await server.execute(LOOKS_AROUND, dependencies=[greeter]))
    assert "REACHED" not in text, text
    assert "['envs', 'facts', 'leases'] True False" in text, text


BUILD_CODE = """
import os
assert not os.path.exists("/store"), "a build must not see the store"
FILES = {"plain.py": "print('built from source')"}
"""


async def test_what_has_no_wheel_is_built_where_there_is_no_store_and_reused(
    tmp_path: Path, files: FileServer
) -> None:
    address = files.add(self_building("plain", BUILD_CODE))
    empty = f"{files.address}/simple"  # uv asks an index for the name, even where an address is given
    async with native_server(tmp_path, "--network", "none", "--index-url", empty) as server:
        for words in ("environment: built in", "environment: reused"):
            text = text_of(await server.execute("import plain", dependencies=[f"plain @ {address}"]))
            assert "built from source\n" in text and words in text, text


async def test_what_can_not_be_installed_is_said_and_the_script_does_not_start(tmp_path: Path) -> None:
    with serving("127.0.0.1") as served:
        missing = f"missing @ {served.address}/missing-1.0-py3-none-any.whl"
        async with native_server(tmp_path) as server:
            result = await server.execute("print('REACHED')", dependencies=[missing])
    text = text_of(result)
    assert result.is_error
    assert "missing" in text and "REACHED" not in text, text


def prune(folder: Path, *flags: str) -> str:
    """What the command prints, with the store of :func:`native_server` in ``folder``."""
    environment = {**os.environ, **STORE, **NO_ENGINE, "XDG_CACHE_HOME": str(folder / "caches")}
    done = subprocess.run(
        [*SERVER, "prune", "--yes", *flags],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_prune_removes_installed_packages_when_it_is_asked_to(tmp_path: Path, greeter: str) -> None:
    for flags, words in (((), "reused"), (("--environments",), "built in")):
        async with native_server(tmp_path) as server:
            await server.execute("import greeter", dependencies=[greeter])
        printed = await anyio.to_thread.run_sync(prune, tmp_path, *flags)
        assert ("removed folder" in printed) is bool(flags), printed
        async with native_server(tmp_path) as server:
            text = text_of(await server.execute("import greeter", dependencies=[greeter]))
        assert f"environment: {words}" in text, text


@pytest.mark.parametrize("ending", ["cancelled", "killed"])
async def test_a_builder_ends_with_whoever_waits_for_it(tmp_path: Path, ending: str) -> None:
    """The index takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/slow-1.0-py3-none-any.whl"
        async with native_server(tmp_path, "--pool-size", "0") as server:

            async def call() -> None:
                with pytest.raises(Exception):  # noqa: B017 - whatever a client makes of a dead server
                    await server.execute("print('never')", dependencies=[f"slow @ {address}"])

            async with anyio.create_task_group() as calls:
                calls.start_soon(call)
                connection, _ = await anyio.to_thread.run_sync(listener.accept)
                with connection:
                    family = family_of(server.pid)
                    builder = {pid for pid in family if builds(pid)}
                    assert builder
                    if ending == "killed":
                        os.kill(server.pid, signal.SIGKILL)
                        assert not await all_gone(family, GONE_SECONDS)
                    calls.cancel_scope.cancel()
            if ending == "cancelled":
                assert not await all_gone(builder, GONE_SECONDS)


def builds(pid: int) -> bool:
    """Whether ``pid`` belongs to a builder: its bwrap, its program or its uv."""
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False
    return b"/opt/sandbox/builder" in words or b"pip" in words


@pytest.mark.timeout(300)
def test_an_ordinary_user_has_the_same_store() -> None:
    if ORDINARY in os.environ:
        return  # that is who runs this one
    done = as_ordinary_user(["-m", "pytest", __file__, "-q", "-p", "no:cacheprovider"])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
