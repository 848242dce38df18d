"""Packages in the cases that people reported, on each driver, through the real client."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp.types import CallToolResult

from integration.support.engine import Engine
from integration.support.index import PackageIndex, package_index
from integration.support.native import why_no_bubblewrap
from integration.support.servers import RunningServer, StartServer, text_of
from integration.support.wheels import bridge_address, wheel

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

Start = Callable[..., AbstractAsyncContextManager[RunningServer]]

SECRET = "s3cretword"


@pytest.fixture(params=["docker", "native"])
def start(
    request: pytest.FixtureRequest,
    start_server: StartServer,
    store: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Start:
    """Servers of one backend on one store of the test's own."""
    if request.param == "native" and (reason := why_no_bubblewrap()):
        pytest.skip(reason)
    cache = tmp_path_factory.mktemp("cache")

    @asynccontextmanager
    async def started(*flags: str, environment: dict[str, str] | None = None) -> AsyncIterator[RunningServer]:
        backend = ("--sandbox-backend", request.param, "--store", store, "--pool-size", "1")
        variables = {"XDG_CACHE_HOME": str(cache), **(environment or {})}
        async with start_server(*backend, *flags, environment=variables) as server:
            yield server

    return started


@pytest.fixture
def index(engine: Engine) -> Iterator[PackageIndex]:
    """An index that holds ``alpha`` in two versions."""
    with package_index(bridge_address(engine.client)) as served:
        for version in ("1.0", "2.0"):
            served.add(wheel("alpha", {"alpha.py": f"VERSION = '{version}'"}, version))
        yield served


def block(*lines: str) -> str:
    """A metadata block of a script."""
    return "".join(f"# {line}\n" for line in ("/// script", *lines, "///"))


async def test_c2_a_failure_of_dependencies_is_told_apart_from_one_of_the_script(
    start: Start, index: PackageIndex
) -> None:
    async with start("--index-url", index.url) as server:
        failed = text_of(
            await server.execute(
                block('dependencies = ["zz-not-there"]') + "print('never')", timeout_seconds=5
            )
        )
        codes = [text_of(await server.execute(f"import sys; sys.exit({code})")) for code in (1, 2)]
    assert failed.startswith("dependencies failed\nThe script did not start. "), failed
    assert "zz-not-there" in failed
    assert "--- stdout ---" not in failed
    assert [text.split(" ")[:2] for text in codes] == [["exit", "1"], ["exit", "2"]], codes


async def test_c3_an_installation_has_a_limit_of_its_own_and_the_server_answers_meanwhile(
    start: Start, index: PackageIndex
) -> None:
    index.hanging.add("alpha")
    results: list[CallToolResult] = []
    async with start("--index-url", index.url, "--install-timeout", "5") as server:
        await server.execute("pass")  # the first sandbox has been made

        async def call() -> None:
            results.append(await server.execute("print('never')", dependencies=["alpha"], timeout_seconds=5))

        began = time.monotonic()
        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            with anyio.fail_after(4):
                while not index.asked:
                    await anyio.sleep(0.05)  # the index lives in threads
                await server.client.list_tools()
        took = time.monotonic() - began
        text = text_of(results[0])
        after = text_of(await server.execute("print('after')"))
    assert text.startswith("timed out while installing: limit 5 s"), text
    assert "The script did not start." in text
    assert took <= 5 + 3
    assert "after" in after


C7 = """\
import numpy as np, multiprocessing as mp
from multiprocessing import shared_memory
def f(x): return x * x
if __name__ == "__main__":
    print(np.linalg.inv(np.eye(300)).sum())
    with mp.get_context("spawn").Pool(2) as p: print(p.map(f, range(5)))
    s = shared_memory.SharedMemory(create=True, size=8 << 20); s.buf[:4] = b"abcd"; print(bytes(s.buf[:4])); s.close(); s.unlink()
    print(mp.Lock())
    try: open("/usr/x", "w")
    except OSError as error: print(error.strerror)
"""


async def test_c7_compiled_packages_and_processes_work_in_a_hardened_sandbox(start: Start) -> None:
    async with start() as server:
        text = text_of(await server.execute(block('dependencies = ["numpy"]') + C7, timeout_seconds=60))
    assert text.startswith("exit 0"), text
    assert "300.0\n[0, 1, 4, 9, 16]\nb'abcd'\n<Lock(owner=None)>\nRead-only file system\n" in text, text
    assert "--- stderr ---" not in text


async def test_c15_a_scripts_index_is_refused_and_no_credentials_are_found_anywhere(
    start: Start, engine: Engine, index: PackageIndex
) -> None:
    looks = "import os; print({k: v for k, v in os.environ.items() if 'INDEX' in k or 'secret' in v.lower()})"
    with package_index(bridge_address(engine.client), f"user:{SECRET}") as private:
        private.add(wheel("alpha", {"alpha.py": ""}))
        async with start(
            "--log-level", "debug", environment={"UV_DEFAULT_INDEX": private.url_with_credentials}
        ) as server:
            named = block(
                'dependencies = ["alpha"]', "[[tool.uv.index]]", f'url = "{index.url}"', "default = true"
            )
            texts = [text_of(await server.execute(named + looks))]
            for source in ('{ path = "/etc" }', f'{{ git = "http://{index.host}/alpha" }}'):
                wanted = block('dependencies = ["alpha"]', "[tool.uv.sources]", f"alpha = {source}")
                texts.append(text_of(await server.execute(wanted + looks)))
            kept = text_of(await server.execute(block('dependencies = ["alpha"]') + looks))
            log = server.log.read_text()
        assert private.authorizations() - {None}
    assert "--- stdout ---\n{}\n" in kept, kept
    for text, word in zip(texts, ("index", "path", "git"), strict=True):
        assert "--- stdout ---" not in text, text
        assert text.startswith("not run: The metadata block"), text
        assert word in text, text
    assert index.asked == [], "what a script names is not asked"
    assert all(SECRET not in text for text in (*texts, kept, log))


POISONS = """
import os, six
hits = 0
for base in {os.environ.get("UV_CACHE_DIR", ""), os.path.expanduser("~"), "/", os.path.dirname(six.__file__)}:
    for d, _, fs in os.walk(base or "/nonexistent"):
        if d.startswith(("/proc", "/sys")): continue
        for f in fs:
            if f in ("six.py", "number.py") and ("humanize" in d or f == "six.py"):
                try: open(os.path.join(d, f), "a").write("\\nprint('POISON')\\n"); hits += 1
                except OSError: pass
print("touched", hits)
"""


async def test_c17_nobody_poisons_what_the_next_script_imports(start: Start) -> None:
    both = block('dependencies = ["humanize", "six"]')
    clean = both + "import six, humanize; print('clean')"
    async with start() as first:
        assert "touched" in text_of(await first.execute(both + POISONS, timeout_seconds=60))
        texts = [text_of(await first.execute(clean))]
        async with start() as second:
            texts.append(text_of(await second.execute(clean)))
    assert all("--- stdout ---\nclean\n" in text and "POISON" not in text for text in texts), texts


async def test_w3_what_another_script_needed_is_not_there(start: Start, index: PackageIndex) -> None:
    async with start("--index-url", index.url) as server:
        assert "2.0" in text_of(
            await server.execute("import alpha; print(alpha.VERSION)", dependencies=["alpha"])
        )
        text = text_of(await server.execute("import alpha"))
    assert "No module named 'alpha'" in text, text


W4 = """\
import alpha, subprocess, sys, time
print("before", alpha.VERSION, flush=True)
time.sleep(2)
print("later", subprocess.check_output([sys.executable, "-c", "import alpha; print(alpha.VERSION)"], text=True))
"""


async def test_w4_a_running_script_keeps_its_versions(start: Start, index: PackageIndex) -> None:
    texts: dict[str, str] = {}

    async with start("--index-url", index.url) as server:

        async def call(version: str, script: str) -> None:
            texts[version] = text_of(await server.execute(script, dependencies=[f"alpha=={version}"]))

        async with anyio.create_task_group() as calls:
            calls.start_soon(call, "1.0", W4)
            calls.start_soon(call, "2.0", "import alpha; print(alpha.VERSION)")
    assert "before 1.0\nlater 1.0\n" in texts["1.0"], texts
    assert "--- stdout ---\n2.0\n" in texts["2.0"], texts


async def test_w19_installing_takes_none_of_the_runs_time(start: Start, index: PackageIndex) -> None:
    index.hanging.add("alpha")
    texts: list[str] = []
    async with start("--index-url", index.url) as server:

        async def call() -> None:
            script = "import alpha, time; time.sleep(0.6); print('whole')"
            texts.append(text_of(await server.execute(script, dependencies=["alpha"], timeout_seconds=1)))

        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await anyio.sleep(5)  # what the installation is to take
            index.released.set()
    assert "whole" in texts[0], texts


@pytest.mark.skipif(why_no_bubblewrap() is not None, reason=why_no_bubblewrap() or "")
async def test_two_hundred_scripts_with_one_block_share_one_environment(
    start_server: StartServer, index: PackageIndex, tmp_path: Path
) -> None:
    texts = []
    async with start_server(
        *("--sandbox-backend", "native", "--store", "shared", "--index-url", index.url),
        environment={"XDG_CACHE_HOME": str(tmp_path)},
    ) as server:
        for number in range(200):
            script = block('dependencies = ["alpha"]') + f"import alpha; print({number}, alpha.VERSION)"
            texts.append(text_of(await server.execute(script)))
    assert all(f"--- stdout ---\n{number} 2.0\n" in text for number, text in enumerate(texts)), texts
    assert sum("environment: reused" in text for text in texts) == 199
    (environments,) = tmp_path.glob("**/envs")
    assert len(list(environments.iterdir())) == 1
