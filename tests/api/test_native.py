"""Which backend `native` means, and that each answer says when it isn't the usual one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self, cast

import pytest

from python_exec_sandbox.api import native
from python_exec_sandbox.api.backends import executor_options
from python_exec_sandbox.api.native import Noting, Refusing, choose_python, open_native
from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.drivers.bubblewrap.driver import BubblewrapDriver
from python_exec_sandbox.errors import CreateFailed, PoolUnavailable, PythonUnavailable
from python_exec_sandbox.model.facts import DriverFacts
from python_exec_sandbox.model.result import Verdict
from python_exec_sandbox.run.executor import Executor
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult, SilentListener
from python_exec_sandbox.script.intake import Examined
from python_exec_sandbox.setting_values import Backend as BackendKind
from python_exec_sandbox.settings import Settings

pytestmark = pytest.mark.anyio

REQUEST = RunRequest("print('hello')")

# Made here: looking for a CA bundle is nothing for an event loop.
DEFAULTS = Settings()
ASKED_FOR = Settings(python_version="3.14", sandbox_backend=BackendKind.NATIVE)


def driver(fake: "NoBubblewrap") -> BubblewrapDriver:
    """The fake, as far as it is asked."""
    return cast("BubblewrapDriver", fake)


class Ran:
    """An executor that says who it is."""

    def __init__(self, driver: str) -> None:
        self.driver = driver

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        return RunResult("id", Verdict.OK, "exit 0", "3.13", self.driver, notes=("of the run",))

    async def examine(self, request: RunRequest) -> Examined:
        return await Executor(Refusing("never asked"), executor_options(DEFAULTS, self.driver)).examine(
            request
        )


@asynccontextmanager
async def open_docker(settings: Settings, *, warm: bool = True) -> AsyncIterator[Backend]:
    yield Backend(Ran("docker"), activity=lambda: None, pythons=("3.13",), facts=engine_facts)


async def engine_facts() -> DriverFacts:
    return DriverFacts((("engine", "answers"),))


class NoBubblewrap:
    """A driver for a machine on which nothing can be made, or not with each Python."""

    name = "bubblewrap"

    def __init__(
        self, error: Exception | None = None, pythons: tuple[str, ...] = (), on_offer: tuple[str, ...] = ()
    ) -> None:
        self.error = error
        self.pythons = pythons
        self.on_offer = on_offer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def prepare(self, python: str) -> None:
        if self.error is not None:
            raise self.error
        if python not in self.pythons:
            raise PythonUnavailable(f"no Python {python}")

    async def fetch(self, python: str) -> None:
        if python not in self.on_offer:
            raise PythonUnavailable("there is no network")
        self.pythons += (python,)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(
        native, "BubblewrapDriver", lambda _: NoBubblewrap(CreateFailed("bwrap is broken: mend it."))
    )


def engine(monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> None:
    async def say(_: Settings) -> bool:
        return answers

    monkeypatch.setattr(native, "engine_answers", say)


async def test_elsewhere_than_on_linux_it_means_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    async with open_native(DEFAULTS, open_docker, warm=True) as backend:
        result = await backend.executor.run(REQUEST, SilentListener())
    assert (result.driver, result.notes) == ("docker", ("of the run",))


@pytest.mark.usefixtures("broken")
async def test_where_it_fails_docker_takes_its_place_and_every_answer_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine(monkeypatch, answers=True)
    async with open_native(DEFAULTS, open_docker, warm=True) as backend:
        for _ in range(2):
            result = await backend.executor.run(REQUEST, SilentListener())
            assert result.driver == "docker"
            assert result.notes[-1] == (
                "Docker ran this, as bubblewrap can't be used here: bwrap is broken: mend it."
            )
        assert (await backend.facts(), backend.pythons) == (await engine_facts(), ("3.13",))


@pytest.mark.usefixtures("broken")
async def test_with_neither_every_answer_is_the_fix_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    engine(monkeypatch, answers=False)
    async with open_native(DEFAULTS, open_docker, warm=True) as backend:
        for _ in range(2):
            with pytest.raises(
                PoolUnavailable, match=r"nothing was run. bwrap is broken: mend it. Then restart"
            ):
                await backend.executor.run(REQUEST, SilentListener())
        assert not (await backend.executor.examine(REQUEST)).problems


async def test_the_newest_python_at_hand_stands_in_for_the_default_one() -> None:
    python, note = await choose_python(driver(NoBubblewrap(pythons=("3.9", "3.11", "3.12"))), DEFAULTS)
    assert python == "3.12"
    assert note == "Python 3.12 is the default here, as this machine has no 3.13: there is no network."


async def test_the_default_python_is_fetched_where_it_can_be() -> None:
    offered = NoBubblewrap(pythons=("3.11",), on_offer=("3.13",))
    assert await choose_python(driver(offered), DEFAULTS) == ("3.13", "")


async def test_so_is_one_that_was_asked_for() -> None:
    offered = NoBubblewrap(pythons=("3.11",), on_offer=("3.14",))
    assert await choose_python(driver(offered), ASKED_FOR) == ("3.14", "")


async def test_the_default_python_is_taken_where_it_is() -> None:
    assert await choose_python(driver(NoBubblewrap(pythons=("3.13", "3.14"))), DEFAULTS) == ("3.13", "")


async def test_a_python_that_was_asked_for_is_never_another_one() -> None:
    with pytest.raises(PythonUnavailable, match="there is no network"):
        await choose_python(driver(NoBubblewrap(pythons=("3.12",))), ASKED_FOR)


async def test_a_python_too_old_for_the_runner_stands_in_for_nothing() -> None:
    with pytest.raises(PythonUnavailable):
        await choose_python(driver(NoBubblewrap(pythons=("3.9", "3.10"))), DEFAULTS)


async def test_a_note_is_added_to_those_of_the_run() -> None:
    result = await Noting(Ran("x"), "more").run(REQUEST, SilentListener())
    assert result.notes == ("of the run", "more")


def test_the_bubblewrap_driver_is_not_imported_with_the_other_backends() -> None:
    source = Path(native.__file__).with_name("backends.py").read_text(encoding="utf-8")
    assert "\nfrom python_exec_sandbox.drivers.bubblewrap" not in source
