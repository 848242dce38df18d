"""What holds for every unit test: one event loop, no blocking call on it, nothing of the person's machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

FOREIGN_PREFIXES = ("DOCKER_", "PYTHON_EXEC_SANDBOX_", "PIP_", "UV_", "XDG_")
"""Variables that steer the engine, the server or an installer; a unit test sets what it needs itself."""

# No deadline: a busy two-core machine makes single examples slow without anything being wrong.
settings.register_profile("local", deadline=None, max_examples=100)
# In CI the same examples every time, so that a red run means a change and not bad luck; more of them, as
# chance doesn't add any over time.
settings.register_profile(
    "ci", deadline=None, max_examples=200, derandomize=True, database=None, print_blob=True
)
# For a person who hunts: HYPOTHESIS_PROFILE=hunt python -m pytest tests/...
settings.register_profile(
    "hunt", deadline=None, max_examples=20_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "local"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The server runs on asyncio alone; its SDK doesn't promise more."""
    return "asyncio"


@pytest.fixture(autouse=True)
def nothing_blocks_the_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """An async test fails when our code makes a blocking call on the event loop; threads may block."""
    if request.node.get_closest_marker("anyio") is None:
        yield
        return
    with blockbuster_ctx("python_exec_sandbox") as blocking:
        # These have just been told that their descriptor is ready.
        blocking.functions["os.read"].can_block_in("api/wire.py", "_read")
        blocking.functions["os.write"].can_block_in("api/wire.py", "flush")
        yield


@pytest.fixture(autouse=True)
def nothing_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An empty home, and no variable that leads to an engine, an index or a setting of the person's."""
    for name in list(os.environ):
        if name.startswith(FOREIGN_PREFIXES):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home
