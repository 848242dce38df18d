from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from python_exec_sandbox.drivers.base import RunWatcher
from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, Package
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits
from python_exec_sandbox.model.result import Phase, RunReport, StopReason, Verdict
from python_exec_sandbox.run.executor import Executor, ExecutorOptions, RunRequest
from python_exec_sandbox.run.packages import Installed, Packages
from python_exec_sandbox.run.verdict import judge_build
from tests.run.test_executor import Diary, ScriptedPool, prints

pytestmark = pytest.mark.anyio

NEEDS_SOURCE = BuildFailed(
    BuildFault.NEEDS_SOURCE,
    "error: Because docopt==0.6.2 has no usable wheels and you require docopt==0.6.2.",
)


def ready(number: int = 1) -> Environment:
    return Environment(f"/store/envs/{number:032x}", (Package("six", "1.17.0"),), reused=False, seconds=3.4)


@dataclass
class ScriptedEnvironments:
    """Gives one outcome after the other, and remembers what it was asked."""

    outcomes: list[Environment | BuildFailed]
    asked: list[tuple[str, tuple[str, ...], float]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    cutoffs: list[str] = field(default_factory=list)

    async def obtain(
        self,
        python: str,
        requirements: tuple[str, ...],
        install_seconds: float,
        say: Callable[[str], None],
        exclude_newer: str = "",
    ) -> Environment | BuildFailed:
        self.asked.append((python, requirements, install_seconds))
        self.cutoffs.append(exclude_newer)
        say("resolving versions")
        return self.outcomes[len(self.asked) - 1]

    def forget(self, path: str) -> None:
        self.forgotten.append(path)


def job(*requirements: str) -> Job:
    return Job("r", b"pass", "3.13", RunLimits(run_seconds=5, install_seconds=60), requirements)


async def test_a_sandbox_gets_an_environment_instead_of_requirements() -> None:
    environments = ScriptedEnvironments([ready()])
    installed = await Packages(environments, in_sandbox=False).install(job("six"), Diary())
    assert isinstance(installed, Installed)
    assert (installed.job.requirements, installed.job.environment) == ((), ready().path)
    assert environments.asked == [("3.13", ("six",), 60)]


async def test_without_requirements_nobody_is_asked() -> None:
    environments = ScriptedEnvironments([])
    assert await Packages(environments, in_sandbox=True).install(job(), Diary()) == Installed(job())


async def test_what_the_driver_has_no_place_to_build_goes_to_a_sandbox_that_may() -> None:
    packages = Packages(ScriptedEnvironments([NEEDS_SOURCE]), in_sandbox=True)
    assert await packages.install(job("docopt==0.6.2"), Diary()) == Installed(job("docopt==0.6.2"))


async def test_what_needs_a_build_and_cannot_have_it_says_so() -> None:
    packages = Packages(ScriptedEnvironments([NEEDS_SOURCE]), in_sandbox=False)
    failed = await packages.install(job("docopt==0.6.2"), Diary())
    assert isinstance(failed, BuildFailed)
    judged = judge_build(failed, job().limits, ("docopt==0.6.2",))
    assert judged.verdict is Verdict.REQUIREMENTS_FAILED
    assert "built from its source" in judged.sentence


async def test_a_run_tells_of_its_environment_and_of_the_time_it_took() -> None:
    diary = Diary()
    runs = Executor(ScriptedPool([prints]), ExecutorOptions(driver="fake"), ScriptedEnvironments([ready()]))
    result = await runs.run(RunRequest("pass", dependencies=("six",)), diary)
    assert result.verdict is Verdict.OK
    assert result.environment == ready()
    assert result.usage.install_seconds == ready().seconds
    assert result.requirements == ("six",)
    assert diary.phases[:3] == [
        (Phase.INSTALLING, "installing six"),
        (Phase.INSTALLING, "installing six: resolving versions"),
        (Phase.WAITING, "waiting for a sandbox"),
    ]


async def test_when_packages_fail_no_sandbox_is_asked_for() -> None:
    pool = ScriptedPool([])
    failed = BuildFailed(BuildFault.INSTALLER, "error: Because zz was not found in the package registry")
    runs = Executor(pool, ExecutorOptions(driver="fake"), ScriptedEnvironments([failed]))
    result = await runs.run(RunRequest("pass", dependencies=("zz",)))
    assert result.verdict is Verdict.REQUIREMENTS_FAILED
    assert result.sentence.startswith("The script did not start. ")
    assert "There is no package zz" in result.sentence
    assert pool.asked == []


OTHERS = ExecutorOptions(driver="fake", fetched_pythons=("3.11", "3.12"))


async def test_a_python_that_sandboxes_lack_comes_as_an_environment_into_any_of_them() -> None:
    jobs: list[Job] = []

    async def keeps(job: Job, watcher: RunWatcher) -> RunReport:
        jobs.append(job)
        return await prints(job, watcher)

    environments, pool, diary = ScriptedEnvironments([ready()]), ScriptedPool([keeps]), Diary()
    result = await Executor(pool, OTHERS, environments).run(RunRequest("pass", python_version="3.12"), diary)
    assert (result.verdict, result.python) == (Verdict.OK, "3.12")
    assert environments.asked == [("3.12", (), 120.0)]
    assert [python for python, _ in pool.asked] == ["3.13"]
    assert (jobs[0].python, jobs[0].environment) == ("3.12", ready().path)
    assert diary.phases[0] == (Phase.INSTALLING, "installing Python 3.12")


async def test_a_python_of_the_image_is_never_fetched() -> None:
    options = replace(OTHERS, default_python="3.12")
    environments, pool = ScriptedEnvironments([]), ScriptedPool([prints])
    assert (await Executor(pool, options, environments).run(RunRequest("pass"))).python == "3.12"
    assert environments.asked == []
    assert [python for python, _ in pool.asked] == ["3.12"]


async def test_a_python_that_could_not_be_fetched_is_said_so_in_one_line() -> None:
    said = "error: Request failed after 3 retries\n  cause: Failed to download `https://x/cpython`\n  cause: dns error"
    pool = ScriptedPool([])
    environments = ScriptedEnvironments([BuildFailed(BuildFault.PYTHON, said)])
    result = await Executor(pool, OTHERS, environments).run(RunRequest("pass", python_version="3.12"))
    assert (result.verdict, result.headline) == (Verdict.REQUIREMENTS_FAILED, "no such Python")
    assert result.sentence.startswith("The script did not start. The sandbox lacks the Python")
    assert "dns error" in result.sentence
    assert "3.13, 3.14, 3.15" in result.sentence
    assert "\n" not in result.sentence
    assert pool.asked == []


async def gone(job: Job, watcher: object) -> RunReport:
    return RunReport(StopReason.ENVIRONMENT_GONE)


async def test_an_environment_that_had_gone_is_built_once_more() -> None:
    environments = ScriptedEnvironments([ready(1), ready(2)])
    pool = ScriptedPool([gone, prints])
    result = await Executor(pool, ExecutorOptions(driver="fake"), environments).run(
        RunRequest("pass", dependencies=("six",))
    )
    assert result.verdict is Verdict.OK
    assert result.environment == ready(2)
    assert environments.forgotten == [ready(1).path]
    assert pool.all_given_back()


async def test_an_environment_that_goes_twice_is_not_built_for_ever() -> None:
    environments = ScriptedEnvironments([ready(1), ready(2)])
    result = await Executor(ScriptedPool([gone, gone]), ExecutorOptions(driver="fake"), environments).run(
        RunRequest("pass", dependencies=("six",))
    )
    assert result.verdict is Verdict.SANDBOX_LOST
    assert len(environments.asked) == 2


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        (BuildFailed(BuildFault.TIME), "took longer than 60 s"),
        (BuildFailed(BuildFault.MEMORY), "ran out of memory"),
        (BuildFailed(BuildFault.NO_ROOM), "is full"),
        (BuildFailed(BuildFault.INSTALLER, "error: No space left on device (os error 28)"), "is full"),
        (BuildFailed(BuildFault.FAULT, "killed through the engine"), "killed through the engine"),
        (
            BuildFailed(BuildFault.INSTALLER, "error: Hash mismatch for `six==1`"),
            "not the one that the index's listing names",
        ),
        (
            BuildFailed(
                BuildFault.INSTALLER,
                "Because tensorflow==2.10.0 has no wheels with a matching Python ABI tag (e.g., `cp313`)",
            ),
            "tensorflow==2.10.0 has no build for this Python",
        ),
    ],
)
async def test_each_failure_has_words_of_its_own(failed: BuildFailed, words: str) -> None:
    judged = judge_build(failed, job().limits, ("six",))
    assert judged.verdict is Verdict.REQUIREMENTS_FAILED
    assert judged.sentence.startswith("The script did not start. ")
    assert words in judged.sentence


CUTOFF = '# /// script\n# dependencies = ["six"]\n# [tool.uv]\n# exclude-newer = "2020-01-01"\n# ///\n'


async def test_a_scripts_own_cutoff_is_kept_and_told() -> None:
    environments = ScriptedEnvironments([ready()])
    runs = Executor(ScriptedPool([prints]), ExecutorOptions(driver="fake"), environments)
    result = await runs.run(RunRequest(CUTOFF))
    assert environments.cutoffs == ["2020-01-01"]
    assert result.notes == ("The script's exclude-newer (2020-01-01) was kept: nothing newer is installed.",)


async def test_a_cutoff_that_a_sandbox_would_not_keep_is_told_or_nothing_installed() -> None:
    runs = Executor(ScriptedPool([prints]), ExecutorOptions(driver="fake"))
    assert "was ignored" in (await runs.run(RunRequest(CUTOFF))).notes[0]
    packages = Packages(ScriptedEnvironments([NEEDS_SOURCE]), in_sandbox=True)
    wanted = replace(job("docopt"), exclude_newer="2020-01-01")
    assert await packages.install(wanted, Diary()) == NEEDS_SOURCE


async def test_only_index_refuses_addresses_however_they_are_named() -> None:
    runs = Executor(ScriptedPool([prints]), ExecutorOptions(driver="fake", only_index=True))
    source = '# /// script\n# dependencies = ["x"]\n# [tool.uv.sources]\n# x = { url = "https://f.example/x.zip" }\n# ///\n'
    for request in (RunRequest("pass", dependencies=("x @ https://f.example/x.zip",)), RunRequest(source)):
        with pytest.raises(RequestError, match="--only-index"):
            await runs.run(request)
    assert (await runs.run(RunRequest("pass", dependencies=("x",)))).verdict is Verdict.OK
