"""Promise SAME: warm = fresh ``uv run`` in stdout, stderr and exit code, script by script and Python by Python."""

import json
import re
from pathlib import Path

import anyio
import pytest
from docker.types import Mount, Ulimit

from integration.same.corpus import CORPUS
from integration.support.engine import Engine
from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.options import DockerOptions, Network
from python_exec_sandbox.drivers.docker.users import FIRST_UID, SCRIPT_GID
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits, SandboxLimits
from python_exec_sandbox.model.result import OutputStream, Phase

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SAME = Path(__file__).parent / "same"

AT_ONCE = 3
"""Sandboxes made beside each other: making one is most of the time here."""

DIFFERENT: dict[str, str] = {}
"""Scripts whose output can't be equal, with the reason; each is listed in the README."""

_ADDRESS = re.compile(rb"0x[0-9a-f]{6,16}")


class Recorder:
    def __init__(self) -> None:
        self.data = {stream: bytearray() for stream in OutputStream}

    async def serve(self, connection: Connection) -> None: ...

    def phase(self, phase: Phase) -> None: ...

    async def output(self, stream: OutputStream, data: bytes) -> None:
        self.data[stream] += data


Ending = tuple[int, bytes, bytes]


def comparable(code: int, stdout: bytes, stderr: bytes) -> Ending:
    """Addresses of objects differ from process to process."""
    return code, _ADDRESS.sub(b"0xADDRESS", stdout), _ADDRESS.sub(b"0xADDRESS", stderr)


async def run_warm(driver: DockerDriver, python: str) -> dict[str, Ending]:
    results: dict[str, Ending] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(name: str, script: str) -> None:
        async with limiter:
            sandbox = await driver.create(python)
            recorder = Recorder()
            report = await sandbox.run(Job("r", script.encode(), python, RunLimits(30)), recorder)
            await sandbox.destroy()
        assert report.warm, name
        assert report.exit_code is not None or report.signal is not None, (name, report)
        code = report.exit_code if report.exit_code is not None else 128 + (report.signal or 0)
        out, err = (bytes(recorder.data[stream]) for stream in OutputStream)
        results[name] = comparable(code, out, err)

    async with anyio.create_task_group() as tasks:
        for name, script in CORPUS.items():
            tasks.start_soon(one, name, script)
    return results


async def run_fresh(engine: Engine, image: str, python: str, folder: Path) -> dict[str, Ending]:
    """All scripts one after the other in one container of the same kind, each under a new ``uv run``."""
    corpus = folder / "corpus.json"
    corpus.write_text(json.dumps(CORPUS))
    corpus.chmod(0o644)
    results = folder / "results"
    results.mkdir()
    results.chmod(0o777)  # the container's user writes there

    def run() -> str:
        owned = f"exec,uid={FIRST_UID},gid={SCRIPT_GID},mode=0700"
        engine.client.containers.run(
            image,
            ["-I", "/fresh.py", "/corpus.json", python, "/results/fresh.json"],
            entrypoint="/opt/sandbox/python",
            user=f"{FIRST_UID}:{SCRIPT_GID}",
            hostname="sandbox",
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=128,
            mem_limit=SandboxLimits().memory_bytes,
            shm_size=48 << 20,
            ulimits=[Ulimit(name="nofile", soft=1024, hard=1024), Ulimit(name="core", soft=0, hard=0)],
            tmpfs={"/work": owned, "/tmp": "exec,mode=1777", "/home/sandbox": owned, "/env": owned},
            mounts=[
                Mount("/fresh.py", str(SAME / "fresh.py"), "bind", read_only=True),
                Mount("/corpus.json", str(corpus), "bind", read_only=True),
                Mount("/results", str(results), "bind"),
            ],
            stderr=True,
            remove=True,
        )
        return (results / "fresh.json").read_text()

    found = json.loads(await anyio.to_thread.run_sync(run))
    return {
        name: comparable(code, out.encode("latin-1"), err.encode("latin-1"))
        for name, (code, out, err) in found.items()
    }


@pytest.mark.parametrize("python", ["3.13", "3.14", "3.15"])
async def test_a_warm_run_is_the_same_as_a_fresh_one(engine: Engine, python: str, tmp_path: Path) -> None:
    assert len(CORPUS) >= 100
    tmp_path.chmod(0o755)
    async with DockerDriver(DockerOptions(network=Network.NONE)) as driver:
        sandbox = await driver.create(python)
        [container] = [c for c in engine.client.containers.list() if c.id == sandbox.id]
        assert container.image is not None and container.image.id is not None
        image = container.image.id
        await sandbox.destroy()
        fresh = await run_fresh(engine, image, python, tmp_path)
        warm = await run_warm(driver, python)
    assert warm.keys() == fresh.keys() == CORPUS.keys()
    unequal = {
        name: f"\n  warm  {warm[name]}\n  fresh {fresh[name]}"
        for name in CORPUS
        if warm[name] != fresh[name] and name not in DIFFERENT
    }
    assert not unequal, "\n".join(f"{name}: {both[:1500]}" for name, both in unequal.items())
