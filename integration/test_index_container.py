"""A package index in a container on a private network: its wheels, its sources, and the ways in which it fails."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from integration.support import index as index_module
from integration.support.engine import Engine, sandbox_image
from integration.support.native import why_no_bubblewrap
from integration.support.servers import StartServer, text_of
from integration.support.wheels import self_building, wheel

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_bubblewrap() is not None, reason=why_no_bubblewrap() or ""),
]

USER, PASSWORD = "ada", "s3cretword"

FILES = [
    wheel("alpha", {"alpha.py": "VERSION = 'one'"}),
    self_building("fromsource", "FILES = {'fromsource.py': 'VERSION = \\'built\\''}"),
]


@pytest.fixture(autouse=True)
def _no_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its helper image isn't needed: what is made here is removed by its context."""
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)


@contextmanager
def index_container(engine: Engine, credentials: str = "") -> Iterator[tuple[DockerContainer, str]]:
    """An index and its address, ``host:port``; it has what :data:`FILES` are, and packages that fail."""
    settings = {"credentials": credentials, "broken": ["broken"], "hanging": ["hanging"]}
    with Network() as network:
        container = (
            DockerContainer(sandbox_image(engine))
            .with_kwargs(entrypoint=["/usr/bin/python3.13", "/index/index.py", "/index"], user="0:0")
            .with_network(network)
            .with_copy_into_container(Path(index_module.__file__), "/index/index.py")
            .with_copy_into_container(json.dumps(settings).encode(), "/index/settings.json")
            .waiting_for(LogMessageWaitStrategy("ready"))
        )
        for name, data in FILES:
            container.with_copy_into_container(data, f"/index/files/{name}")
        with container:
            networks = engine.client.api.inspect_container(str(container.get_wrapped_container().id))[
                "NetworkSettings"
            ]["Networks"]
            (address,) = (one["IPAddress"] for one in networks.values())
            yield container, f"{address}:8080"


def requests(container: DockerContainer) -> list[dict[str, str | None]]:
    """All that it was asked."""
    return [json.loads(line) for line in container.get_logs()[0].decode().splitlines()[1:]]


async def test_packages_come_from_an_index_on_a_private_network_and_its_failures_are_told(
    start_server: StartServer, engine: Engine, tmp_path: Path
) -> None:
    with index_container(engine) as (container, address):
        async with start_server(
            *("--sandbox-backend", "native", "--pool-size", "1", "--network", "none"),
            *("--index-url", f"http://{address}/simple/"),
            environment={"XDG_CACHE_HOME": str(tmp_path), "UV_HTTP_TIMEOUT": "2", "UV_HTTP_RETRIES": "0"},
        ) as server:
            for package, printed in (("alpha", "one"), ("fromsource", "built")):
                script = f"import {package}; print({package}.VERSION)"
                first = text_of(await server.execute(script, dependencies=[package]))
                assert f"--- stdout ---\n{printed}\n" in first, first
                assert "environment: built" in first, first
                again = text_of(await server.execute(script, dependencies=[package]))
                assert "environment: reused" in again, again
            for package, words in (
                ("broken", "answered 500"),
                ("hanging", "no answer in time"),
                ("missing", "There is no package missing"),
            ):
                failed = text_of(await server.execute("print('never')", dependencies=[package]))
                assert failed.startswith("dependencies failed\nThe script did not start. "), failed
                assert words in failed, failed
        assert {one["authorization"] for one in requests(container)} == {None}


async def test_credentials_go_to_their_index_alone(
    start_server: StartServer, engine: Engine, tmp_path: Path
) -> None:
    with (
        index_container(engine, f"{USER}:{PASSWORD}") as (private, private_address),
        index_container(engine) as (other, other_address),
    ):
        environment = {
            "XDG_CACHE_HOME": str(tmp_path),
            "UV_DEFAULT_INDEX": f"http://{USER}:{PASSWORD}@{private_address}/simple/",
        }
        async with start_server(
            *("--sandbox-backend", "native", "--pool-size", "1"),
            *("--extra-index-url", f"http://{other_address}/simple/", "--log-level", "debug"),
            environment=environment,
        ) as server:
            text = text_of(await server.execute("import alpha; print(alpha.VERSION)", dependencies=["alpha"]))
            missing = text_of(await server.execute("print('never')", dependencies=["missing"]))
            log = server.log.read_text()
        with anyio.fail_after(10):
            while not (told := {one["authorization"] for one in requests(private)} - {None}):
                await anyio.sleep(0.05)  # the engine keeps a container's output in its own time
        others = {one["authorization"] for one in requests(other)}
    assert "--- stdout ---\none\n" in text, text
    assert len(told) == 1
    assert others == {None}
    assert all(PASSWORD not in words for words in (text, missing, log))
