"""The real server on bubblewrap with every engine out of reach, and its processes."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from integration.support.servers import RunningServer, running_server

NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/engine.sock"}


@asynccontextmanager
async def native_server(folder: Path, *flags: str, **environment: str) -> AsyncIterator[RunningServer]:
    """As ``running_server``, on bubblewrap alone, with what it caches in ``folder``."""
    passed_on = {
        name: os.environ[name] for name in ("UV_PYTHON_INSTALL_DIR", "PYTHONPATH") if name in os.environ
    }
    caches = {"XDG_CACHE_HOME": str(folder / "caches")}
    everything = {**NO_ENGINE, **caches, **passed_on, **environment}
    flags = ("--sandbox-backend", "native", *flags)
    async with running_server(folder, *flags, environment=everything) as server:
        yield server


def family_of(pid: int) -> set[int]:
    """All living descendants of ``pid``, itself included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    family = {pid}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return family & parents.keys()


async def all_gone(pids: set[int], seconds: float) -> set[int]:
    """Those of ``pids`` that still run after ``seconds``."""
    deadline = time.monotonic() + seconds
    while (left := {pid for pid in pids if pid in family_of(pid)}) and time.monotonic() < deadline:
        await anyio.sleep(0.02)
    return left
