"""The store keeps within its size, and a full disk leaves no debris: on the real engine, in volumes of the tests' own."""

import socket
from collections.abc import Iterator

import anyio
import pytest

from integration.support.engine import Engine
from integration.support.servers import StartServer, text_of
from integration.support.stores import in_store, own_store
from integration.support.wheels import FileServer, file_server, wheel
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.options import DockerOptions
from python_exec_sandbox.drivers.leftovers import Kind

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

MIB = 1024 * 1024
LONG_AGO = "find /store/leases -type f -exec touch -d '1 hour ago' {} +"


@pytest.fixture
def files(engine: Engine) -> Iterator[FileServer]:
    with file_server(engine.client) as server:
        yield server


def large(files: FileServer, name: str, size: int) -> str:
    """A requirement of so many bytes: the module ``name``, which has a constant, and a file beside it."""
    contents = {f"{name}.py": f"NAME = {name!r}\n", f"{name}_data.txt": "x" * size}
    return f"{name} @ {files.add(wheel(name, contents))}"


def installed(engine: Engine, store: str) -> set[str]:
    """Modules of the environments that are there, whole or not."""
    found = in_store(engine, store, "find /store/envs -name '*_data.txt' -printf '%f\\n'")
    return {line.removesuffix("_data.txt") for line in found.split()}


async def test_what_was_not_used_for_longest_goes_but_never_what_a_script_of_another_server_uses(
    start_server: StartServer, engine: Engine, files: FileServer
) -> None:
    gateway = files.address.partition("//")[2].rpartition(":")[0]
    one, two, three = (large(files, name, 25 * MIB) for name in ("one", "two", "three"))
    flags = ("--store-size", "64MiB", "--pool-size", "1", "--max-sandboxes", "2", "--network", "full")
    with own_store(engine) as store, socket.create_server((gateway, 0)) as listener:
        listener.settimeout(60)
        waits = (
            f"import socket; s = socket.create_connection(('{gateway}', {listener.getsockname()[1]}));"
            " s.recv(1); import one; print('still', one.NAME)"
        )
        async with (
            start_server("--store", store, *flags) as server,
            start_server("--store", store, *flags) as other,
        ):
            for requirement in (one, two):
                assert not (await server.execute("print(1)", dependencies=[requirement])).is_error
            in_store(engine, store, LONG_AGO, mode="rw")
            said: list[str] = []

            async def hold() -> None:
                said.append(text_of(await server.execute(waits, dependencies=[one], timeout_seconds=100)))

            async with anyio.create_task_group() as calls:
                calls.start_soon(hold)
                connection, _ = await anyio.to_thread.run_sync(listener.accept)
                with connection:
                    result = await other.execute("import three; print(three.NAME)", dependencies=[three])
                    assert "three" in text_of(result), text_of(result)
                    assert installed(engine, store) == {"one", "three"}
            assert "still one" in said[0]
            again = await server.execute("import two; print('there', two.NAME)", dependencies=[two])
            assert "there two" in text_of(again), "what has gone is built again"
            assert "environment: built" in text_of(again)
    assert len(files.asked) >= 4


async def test_a_disk_that_fills_up_during_a_build_is_told_of_and_leaves_no_debris(
    start_server: StartServer, engine: Engine, files: FileServer
) -> None:
    small, huge, other = (
        large(files, name, size * MIB) for name, size in (("small", 20), ("huge", 60), ("other", 25))
    )
    options = {"type": "tmpfs", "device": "tmpfs", "o": "size=40m"}
    with own_store(engine, options) as store:
        async with (
            start_server("--store", store, "--pool-size", "1") as server,
            start_server("--store", store, "--pool-size", "0") as asks_the_store,
        ):
            assert not (await server.execute("import small", dependencies=[small])).is_error
            before = in_store(engine, store, "df -k /store | tail -n 1")
            full = await server.execute("print('never')", dependencies=[huge])
            assert text_of(full).startswith("dependencies failed\nThe script did not start. No room"), (
                text_of(full)
            )
            assert installed(engine, store) == {"small"}
            assert not in_store(
                engine,
                store,
                "find /store/index/building /store/index/locks -type f; ls -d /store/cache/.tmp*; true",
            )
            used = [
                int(line.split()[2]) for line in (before, in_store(engine, store, "df -k /store | tail -n 1"))
            ]
            assert used[1] - used[0] < 1024, "nothing of the download is left"
            quick = await asks_the_store.execute("import small; print(small.NAME)", dependencies=[small])
            assert "small" in text_of(quick)
            assert "environment: reused" in text_of(quick)
            in_store(engine, store, LONG_AGO, mode="rw")
            fits = await server.execute("import other; print(other.NAME)", dependencies=[other])
            assert "other" in text_of(fits), "what was not used for long makes room"
            assert installed(engine, store) == {"other"}


async def test_pruned_environments_go_but_those_that_scripts_use(
    start_server: StartServer, engine: Engine, files: FileServer
) -> None:
    gateway = files.address.partition("//")[2].rpartition(":")[0]
    one, two = large(files, "one", MIB), large(files, "two", MIB)

    async def prune(store: str) -> None:
        async with DockerDriver(DockerOptions(store=store)) as driver:
            for leftover in await driver.leftovers(environments=True):
                if leftover.kind is Kind.STORE:
                    await driver.remove(leftover)

    with own_store(engine) as store, socket.create_server((gateway, 0)) as listener:
        listener.settimeout(60)
        waits = f"import socket; socket.create_connection(('{gateway}', {listener.getsockname()[1]})).recv(1)"
        async with start_server("--store", store, "--pool-size", "1", "--network", "full") as server:
            assert not (await server.execute("import two", dependencies=[two])).is_error
            async with anyio.create_task_group() as calls:
                calls.start_soon(lambda: server.execute(waits, dependencies=[one], timeout_seconds=100))
                connection, _ = await anyio.to_thread.run_sync(listener.accept)
                with connection:
                    await prune(store)
                    assert installed(engine, store) == {"one"}
                    assert not in_store(
                        engine, store, "find /store/cache -mindepth 1 -maxdepth 1 -type d ! -name 'archive-*'"
                    ).strip()
            again = await server.execute("import two; print(two.NAME)", dependencies=[two])
            assert "two" in text_of(again), text_of(again)
        await prune(store)
        assert store not in {volume.name for volume in engine.client.volumes.list()}
