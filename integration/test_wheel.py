"""The package as people get it: a wheel, started by ``uvx`` with the poor environment of a desktop client."""

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from integration.support.servers import StartServer, text_of

BIN = Path(sys.executable).parent


def uv_settings(home: Path) -> None:
    """A person's own uv settings: this machine's certificates, and the cache that is filled already."""
    cache = subprocess.run(
        [BIN / "uv", "cache", "dir"], capture_output=True, text=True, timeout=30, check=True
    )
    folder = home / ".config" / "uv"
    folder.mkdir(parents=True)
    (folder / "uv.toml").write_text(
        f'system-certs = true\ncache-dir = "{cache.stdout.strip()}"\n', encoding="utf-8"
    )


@pytest.mark.anyio
async def test_the_wheel_started_by_uvx_with_only_path_and_home_answers_a_tool_call(
    start_server: StartServer, wheel: Path, tmp_path: Path
) -> None:
    uv_settings(tmp_path)
    path = f"PATH={Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"
    command = ["/usr/bin/env", "-i", path, f"HOME={tmp_path}", str(BIN / "uvx"), "--from", str(wheel)]
    # The uv of this environment, which the sandbox image is named after: it need not be built again.
    command += ["--with", f"uv=={importlib.metadata.version('uv')}"]
    async with start_server(
        "--sandbox-backend", "docker", command=[*command, "python-exec-sandbox"]
    ) as server:
        result = await server.execute("print('from a wheel')")
    assert not result.is_error, text_of(result)
    assert "from a wheel" in text_of(result)


@pytest.mark.no_engine
def test_the_wheel_carries_what_the_sandbox_image_is_built_from_and_both_commands(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (points,) = [archive.read(name).decode() for name in names if name.endswith("entry_points.txt")]
    assert "python_exec_sandbox/sandbox_image/Dockerfile" in names
    assert any(name.startswith("python_exec_sandbox/sandbox_image/runner/") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "integration"))]
    assert {line.partition(" = ")[0] for line in points.splitlines()[1:] if line} == {
        "python-exec-sandbox",
        "mcp-python-exec-sandbox",
    }
