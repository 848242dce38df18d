from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from python_exec_sandbox.api.prune import listing, prune
from python_exec_sandbox.drivers.leftovers import Kind, Leftover
from python_exec_sandbox.errors import DriverError, EngineUnreachable

pytestmark = pytest.mark.anyio

OLD = Leftover(Kind.IMAGE, "python-exec-sandbox:1", "of another version", ("python-exec-sandbox:1",), 1 << 20)
NETWORK = Leftover(Kind.NETWORK, "python-exec-sandbox", "no container is on it", ("n",))


class PlayedDriver:
    def __init__(
        self, *found: Leftover, error: Exception | None = None, refuses: tuple[Leftover, ...] = ()
    ) -> None:
        self.found = found
        self.error = error
        self.refuses = refuses
        self.removed: list[Leftover] = []

    async def leftovers(self, *, environments: bool = False) -> list[Leftover]:
        if self.error is not None:
            raise self.error
        return [one for one in self.found if environments or one.kind is not Kind.STORE]

    async def remove(self, leftover: Leftover) -> None:
        if leftover in self.refuses:
            raise DriverError("it is in use")
        self.removed.append(leftover)

    @asynccontextmanager
    async def open(self) -> AsyncIterator["PlayedDriver"]:
        yield self


async def pruned(
    driver: PlayedDriver, *, yes: bool = False, answer: bool | None = None, environments: bool = False
) -> int:
    async def ask() -> bool:
        assert answer is not None, "nobody is to be asked"
        return answer

    with anyio.fail_after(5):
        return await prune(driver.open(), yes=yes, ask=ask, environments=environments)


async def test_nothing_to_remove_is_said_and_nobody_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert await pruned(PlayedDriver()) == 0
    assert capsys.readouterr().out.startswith("Nothing to remove")


@pytest.mark.parametrize("answer", [True, False])
async def test_without_yes_only_what_a_person_agrees_to_is_removed(
    answer: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = PlayedDriver(OLD, NETWORK)
    assert await pruned(driver, answer=answer) == 0
    assert driver.removed == ([OLD, NETWORK] if answer else [])
    shown = capsys.readouterr().out
    assert "  image python-exec-sandbox:1: of another version (1 MiB)\n" in shown
    assert ("Nothing was removed" in shown) is not answer


async def test_with_yes_nobody_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    driver = PlayedDriver(OLD, NETWORK)
    assert await pruned(driver, yes=True) == 0
    assert driver.removed == [OLD, NETWORK]
    assert "removed network python-exec-sandbox" in capsys.readouterr().out


async def test_installed_packages_go_only_when_that_was_asked_for() -> None:
    store = Leftover(Kind.STORE, "store", "installed packages", ("store",))
    driver = PlayedDriver(OLD, store)
    assert await pruned(driver, yes=True) == 0
    assert driver.removed == [OLD]
    assert await pruned(driver, yes=True, environments=True) == 0
    assert driver.removed == [OLD, OLD, store]


async def test_what_the_engine_keeps_is_told_and_the_rest_is_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver = PlayedDriver(OLD, NETWORK, refuses=(OLD,))
    assert await pruned(driver, yes=True) == 1
    assert driver.removed == [NETWORK]
    assert "kept image python-exec-sandbox:1: it is in use" in capsys.readouterr().out


async def test_without_an_engine_the_code_is_2_and_the_cause_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await pruned(PlayedDriver(error=EngineUnreachable("no engine: start Docker")), yes=True) == 2
    assert "no engine: start Docker" in capsys.readouterr().err


def test_each_leftover_has_its_line_with_the_reason() -> None:
    assert listing([NETWORK]).splitlines() == [
        "To remove:",
        "  network python-exec-sandbox: no container is on it",
    ]
