"""The built wheel on another machine: installed and started in a container, against the engine outside."""

import importlib.metadata
import os
from pathlib import Path

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage

from integration.support.engine import Engine, left_after
from python_exec_sandbox.drivers.docker import labels

MACHINE = Path(__file__).parent / "machine"

SOCKET = "/var/run/docker.sock"
"""Where an engine listens for its own containers, whatever its address is for this machine."""

CLIENT = """
import anyio
from mcp import Client, StdioServerParameters
from python_exec_sandbox.drivers.identity import boot_id

async def main():
    print("here:", boot_id())
    async with Client(StdioServerParameters(command="python-exec-sandbox", args=["--sandbox-backend", "docker"]), read_timeout_seconds=100) as client:
        result = await client.call_tool("execute_python", {"script": "print('from a sandbox beside', 6 * 7)"})
    print("error:", result.is_error)
    print(*(block.text for block in result.content))

anyio.run(main)
"""


@pytest.fixture(autouse=True)
def _no_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its helper image isn't needed: the container is removed by its context, sandboxes end with their server."""
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)


def machine(image: str, wheel: Path) -> DockerContainer:
    """A container with the wheel, the client and the engine's socket; it has what this machine trusts."""
    container = (
        DockerContainer(image)
        .with_command("sleep 600")
        .with_volume_mapping(SOCKET, SOCKET, "rw")
        .with_copy_into_container(wheel, f"/dist/{wheel.name}")
        .with_copy_into_container(CLIENT.encode(), "/dist/client.py")
    )
    if certificates := os.environ.get("SSL_CERT_FILE"):
        # At the same path as here: the server names it to the engine, which looks for it outside.
        container.with_env("SSL_CERT_FILE", certificates)
        container.with_copy_into_container(Path(certificates), certificates)
    return container


@pytest.mark.timeout(300)
def test_the_wheel_installed_in_a_container_runs_scripts_in_containers_beside_it(
    engine: Engine, wheel: Path
) -> None:
    with (
        DockerImage(path=MACHINE, tag="python-exec-sandbox-test-machine:latest", clean_up=False) as image,
        machine(str(image), wheel) as container,
    ):
        # With the uv of the server outside, which the sandbox image is named after: it need not be built again.
        uv = f"uv=={importlib.metadata.version('uv')}"
        done = container.exec(
            [
                "uv",
                "run",
                "--no-project",
                "--with",
                f"/dist/{wheel.name}",
                "--with",
                uv,
                "python",
                "/dist/client.py",
            ]
        )
    output = done.output.decode()
    assert done.exit_code == 0, output
    assert "error: False" in output, output
    assert "from a sandbox beside 42" in output
    here = output.partition("here: ")[2].partition("\n")[0]
    assert left_after(engine.labelled(f"{labels.BOOT_ID}={here}"), seconds=5) == []
