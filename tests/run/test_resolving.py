from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from python_exec_sandbox.errors import CreateFailed, SandboxError
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, Package, Resolved
from python_exec_sandbox.model.result import Phase
from python_exec_sandbox.run.resolving import NEEDS_SOURCE, Resolver, Versions
from tests.run.test_executor import Diary

pytestmark = pytest.mark.anyio

SIX = Resolved((Package("six", "1.17.0"),))
NO_WHEEL = BuildFailed(
    BuildFault.NEEDS_SOURCE,
    "error: Because docopt==0.6.2 has no usable wheels and you require docopt==0.6.2.",
)


@dataclass
class PlayedStore:
    outcome: Resolved | BuildFailed | SandboxError
    asked: list[tuple[str, tuple[str, ...], float]] = field(default_factory=list)

    async def resolve(
        self,
        python: str,
        requirements: tuple[str, ...],
        install_seconds: float,
        say: Callable[[str], None],
        exclude_newer: str = "",
    ) -> Resolved | BuildFailed:
        self.asked.append((python, requirements, install_seconds))
        say("asking the index")
        if isinstance(self.outcome, SandboxError):
            raise self.outcome
        return self.outcome


async def resolved(
    outcome: Resolved | BuildFailed | SandboxError, *requirements: str, source_builds: bool = True
) -> Versions:
    resolver = Resolver(PlayedStore(outcome), 60.0, source_builds=source_builds)
    return await resolver.resolve("3.13", requirements or ("six",), Diary())


async def test_versions_come_with_progress_under_the_limit_of_installing() -> None:
    store, diary = PlayedStore(SIX), Diary()
    versions = await Resolver(store, 60.0, source_builds=True).resolve("3.14", ("six",), diary)
    assert versions == Versions(SIX.packages)
    assert store.asked == [("3.14", ("six",), 60.0)]
    assert diary.phases == [
        (Phase.INSTALLING, "resolving six"),
        (Phase.INSTALLING, "resolving six: asking the index"),
    ]


async def test_without_requirements_nobody_is_asked() -> None:
    store = PlayedStore(SIX)
    assert await Resolver(store, 60.0, source_builds=True).resolve("3.13", (), Diary()) == Versions()
    assert store.asked == []


async def test_what_is_wrong_with_requirements_is_said_as_in_a_run() -> None:
    text = "error: Because zz was not found in the package registry and you require zz, we conclude nothing."
    problem = (await resolved(BuildFailed(BuildFault.INSTALLER, text), "zz")).problem
    assert "There is no package zz in the index" in problem
    assert not problem.startswith("The script did not start")


async def test_a_time_limit_is_named() -> None:
    assert "longer than 60 s" in (await resolved(BuildFailed(BuildFault.TIME))).problem


async def test_a_package_that_a_run_would_build_is_no_problem_unless_nothing_can_build_it() -> None:
    assert await resolved(NO_WHEEL, "docopt==0.6.2") == Versions(unknown=NEEDS_SOURCE)
    off = await resolved(NO_WHEEL, "docopt==0.6.2", source_builds=False)
    assert "such builds are off here (--source-builds)" in off.problem


async def test_without_an_engine_the_cause_is_part_of_the_answer() -> None:
    assert await resolved(CreateFailed("the engine is full")) == Versions(unknown="the engine is full")
