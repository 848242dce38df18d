"""Two drivers' leftovers as one list."""

import pytest

from python_exec_sandbox.api.everywhere import Everywhere
from python_exec_sandbox.api.prune import opening
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.leftovers import Kind, Leftover
from python_exec_sandbox.errors import CreateFailed, EngineUnreachable
from python_exec_sandbox.settings import Settings
from tests.api.test_prune import PlayedDriver

pytestmark = pytest.mark.anyio

GROUPS = Leftover(Kind.GROUPS, "2", "their servers are dead", ())
FOLDER = Leftover(Kind.FOLDER, "/home/me/.cache/store", "installed packages", ())
IMAGE = Leftover(Kind.IMAGE, "python-exec-sandbox:1", "of another version", ("python-exec-sandbox:1",))


async def test_each_driver_removes_its_own() -> None:
    native, docker = PlayedDriver(GROUPS, FOLDER), PlayedDriver(IMAGE)
    both = Everywhere(native, docker)
    found = await both.leftovers(environments=True)
    assert found == [GROUPS, FOLDER, IMAGE]
    for one in found:
        await both.remove(one)
    assert (native.removed, docker.removed) == ([GROUPS, FOLDER], [IMAGE])


async def test_a_driver_that_can_not_be_used_here_is_named_and_the_other_one_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    no_engine = PlayedDriver(error=EngineUnreachable("no engine answers"))
    assert await Everywhere(PlayedDriver(GROUPS), no_engine).leftovers() == [GROUPS]
    assert "not looked at: no engine answers" in capsys.readouterr().err
    no_bwrap = PlayedDriver(error=CreateFailed("bwrap is missing"))
    assert await Everywhere(no_bwrap, PlayedDriver(IMAGE)).leftovers() == [IMAGE]
    assert "not looked at: bwrap is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("system", "backend", "is_engine_alone"),
    [("Linux", "native", False), ("Linux", "docker", True), ("Darwin", "native", True)],
)
def test_the_machine_itself_is_looked_at_where_it_makes_sandboxes(
    monkeypatch: pytest.MonkeyPatch, system: str, backend: str, is_engine_alone: bool
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    chosen = opening(Settings(ca_bundle=None, sandbox_backend=backend))
    assert isinstance(chosen, DockerDriver) is is_engine_alone
