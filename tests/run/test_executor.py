from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel
import pytest

from python_exec_sandbox.drivers.base import RunWatcher
from python_exec_sandbox.errors import PoolBusy, PoolTimeout, RequestError
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.result import Loss, OutputStream, Phase, RunReport, StopReason, Verdict
from python_exec_sandbox.run.executor import RETRIED, Executor, ExecutorOptions, RunRequest

pytestmark = pytest.mark.anyio

Scene = Callable[[Job, RunWatcher], Awaitable[RunReport]]


@dataclass
class ScriptedSandbox:
    """Plays one scene instead of running a job."""

    scene: Scene
    id: str = "sandbox"
    python: str = "3.13"
    pythons: tuple[str, ...] = ("3.13",)
    alive: bool = True
    watched: bool = True
    finished: anyio.Event = field(default_factory=anyio.Event)

    async def check(self) -> bool:
        return True

    async def wait_ended(self) -> None:
        await self.finished.wait()

    async def run(self, job: Job, watcher: RunWatcher) -> RunReport:
        return await self.scene(job, watcher)

    async def destroy(self) -> None:
        self.finished.set()


@dataclass
class CountedLease:
    sandbox: ScriptedSandbox
    finished: int = 0
    left: bool = False

    def finish(self) -> None:
        self.finished += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.left = True


@dataclass
class ScriptedPool:
    """Lends one sandbox per scene, in their order, and remembers what it was asked."""

    scenes: list[Scene]
    asked: list[tuple[str, float]] = field(default_factory=list)
    leases: list[CountedLease] = field(default_factory=list)
    refuse: Exception | None = None

    async def acquire(self, python: str, *, timeout: float) -> CountedLease:  # noqa: ASYNC109 - as the pool's
        self.asked.append((python, timeout))
        if self.refuse is not None:
            raise self.refuse
        await anyio.lowlevel.checkpoint()
        lease = CountedLease(ScriptedSandbox(self.scenes[len(self.leases)]))
        self.leases.append(lease)
        return lease

    def all_given_back(self) -> bool:
        return all(lease.left and lease.finished >= 1 for lease in self.leases)


@dataclass
class Diary:
    """Listens and writes down."""

    phases: list[tuple[Phase, str]] = field(default_factory=list)
    heard: list[tuple[OutputStream, bytes]] = field(default_factory=list)

    def phase(self, phase: Phase, detail: str) -> None:
        self.phases.append((phase, detail))

    async def output(self, stream: OutputStream, data: bytes) -> None:
        self.heard.append((stream, data))


async def prints(job: Job, watcher: RunWatcher) -> RunReport:
    if job.requirements:
        watcher.phase(Phase.INSTALLING)
    watcher.phase(Phase.RUNNING)
    await watcher.output(OutputStream.STDOUT, b"out")
    await watcher.output(OutputStream.STDERR, b"err")
    return RunReport(reason=StopReason.EXITED, exit_code=0, warm=True)


def loses(loss: Loss, *, after: Phase | None = None) -> Scene:
    async def scene(job: Job, watcher: RunWatcher) -> RunReport:
        if after is not None:
            watcher.phase(after)
        await anyio.lowlevel.checkpoint()
        return RunReport(reason=StopReason.LOST, loss=loss)

    return scene


def executor(pool: ScriptedPool, **options: float) -> Executor:
    return Executor(pool, ExecutorOptions(driver="fake", guard_seconds=options.get("guard_seconds", 10.0)))


async def test_a_run_carries_the_request_to_a_sandbox_and_its_report_back() -> None:
    jobs: list[Job] = []

    async def notes_the_job(job: Job, watcher: RunWatcher) -> RunReport:
        jobs.append(job)
        return await prints(job, watcher)

    pool, diary = ScriptedPool([notes_the_job]), Diary()
    request = RunRequest(
        script='# /// script\r\n# dependencies = ["six"]\r\n# ///\r\nprint(1)',
        dependencies=("humanize",),
        timeout_seconds=5,
        python_version=">=3.14",
        args=("a b", "ü"),
        stdin="in",
    )
    result = await executor(pool).run(request, diary)
    (job,) = jobs
    assert job.script == b'# /// script\n# dependencies = ["six"]\n# ///\nprint(1)'
    assert (job.python, job.requirements, job.args, job.stdin) == (
        "3.14",
        ("six", "humanize"),
        ("a b", "ü"),
        b"in",
    )
    assert (job.limits.run_seconds, job.limits.install_seconds) == (5, 120)
    assert result.verdict is Verdict.OK
    assert (result.stdout.head + result.stdout.tail, result.stderr.total_bytes) == (b"out", 3)
    assert (result.run_id, result.python, result.driver, result.warm) == (job.run_id, "3.14", "fake", True)
    assert result.stdin_given
    assert diary.heard == [(OutputStream.STDOUT, b"out"), (OutputStream.STDERR, b"err")]
    assert diary.phases == [
        (Phase.WAITING, "waiting for a sandbox"),
        (Phase.INSTALLING, "installing six, humanize"),
        (Phase.RUNNING, "running (limit 5 s)"),
    ]
    assert pool.asked == [("3.14", 120)]
    assert pool.all_given_back()


async def test_a_request_with_many_faults_takes_no_sandbox_and_names_all() -> None:
    pool = ScriptedPool([])
    with pytest.raises(RequestError, match=r"(?s)5 problems.*timeout_seconds.*args.*stdin.*empty.*3\.9"):
        await executor(pool).run(
            RunRequest(script="", timeout_seconds=0, args=("\0",), stdin="\ud800", python_version="3.9")
        )
    assert not pool.asked


async def test_a_long_script_is_read_off_the_event_loop() -> None:
    script = '# /// script\n# dependencies = ["six"]\n# ///\n' + "x = 1\n" * 100_000
    result = await executor(ScriptedPool([prints])).run(RunRequest(script=script))
    assert result.requirements == ("six",)
    with pytest.raises(RequestError, match="never closed"):
        await executor(ScriptedPool([])).run(RunRequest(script=script.replace("# ///\n", "")))


@pytest.mark.parametrize("refusal", [PoolBusy("the queue is full"), PoolTimeout("waited 120 s")])
async def test_a_pool_that_gives_nothing_is_an_error_and_not_a_verdict(refusal: Exception) -> None:
    with pytest.raises(type(refusal)):
        await executor(ScriptedPool([], refuse=refusal)).run(RunRequest(script="1"))


@pytest.mark.parametrize("loss", [Loss.KILLED, Loss.FAULT])
async def test_a_sandbox_lost_before_the_script_began_is_replaced_once(loss: Loss) -> None:
    pool = ScriptedPool([loses(loss), prints])
    result = await executor(pool).run(RunRequest(script="1"))
    assert result.verdict is Verdict.OK
    assert result.notes == (RETRIED,)
    assert result.stdout.total_bytes == 3
    assert len(pool.leases) == 2
    assert pool.asked[1][1] <= 120
    assert pool.all_given_back()


async def test_a_second_loss_is_told_and_not_tried_again() -> None:
    pool = ScriptedPool([loses(Loss.KILLED), loses(Loss.KILLED)])
    result = await executor(pool).run(RunRequest(script="1"))
    assert result.verdict is Verdict.SANDBOX_LOST
    assert len(pool.leases) == 2


@pytest.mark.parametrize(
    "scene",
    [
        loses(Loss.KILLED, after=Phase.RUNNING),
        loses(Loss.FAULT, after=Phase.RUNNING),
        loses(Loss.SILENT),
        loses(Loss.PROTOCOL),
        loses(Loss.MEMORY, after=Phase.INSTALLING),
    ],
)
async def test_a_run_that_may_have_begun_is_never_repeated(scene: Scene) -> None:
    pool = ScriptedPool([scene])
    result = await executor(pool).run(RunRequest(script="1"))
    assert result.verdict in {Verdict.SANDBOX_LOST, Verdict.OUT_OF_MEMORY}
    assert pool.all_given_back()


async def test_output_without_a_word_of_running_means_that_it_began() -> None:
    async def scene(job: Job, watcher: RunWatcher) -> RunReport:
        await watcher.output(OutputStream.STDOUT, b"x")
        return RunReport(reason=StopReason.LOST, loss=Loss.KILLED)

    result = await executor(ScriptedPool([scene])).run(RunRequest(script="1"))
    assert (result.verdict, result.stdout.total_bytes) == (Verdict.SANDBOX_LOST, 1)


async def test_a_sandbox_that_never_reports_is_given_up_and_its_output_kept() -> None:
    async def hangs(job: Job, watcher: RunWatcher) -> RunReport:
        watcher.phase(Phase.RUNNING)
        await watcher.output(OutputStream.STDOUT, b"so far")
        await anyio.sleep_forever()
        raise AssertionError

    pool = ScriptedPool([hangs])
    with anyio.fail_after(10):
        result = await executor(pool, guard_seconds=0.01).run(RunRequest(script="1", timeout_seconds=0.1))
    assert result.verdict is Verdict.SANDBOX_LOST
    assert result.stdout.total_bytes == 6
    assert pool.all_given_back()


async def test_a_cancelled_run_gives_its_sandbox_back_at_once() -> None:
    running = anyio.Event()

    async def hangs(job: Job, watcher: RunWatcher) -> RunReport:
        running.set()
        await anyio.sleep_forever()
        raise AssertionError

    pool = ScriptedPool([hangs])
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor(pool).run, RunRequest(script="1"))
            await running.wait()
            tasks.cancel_scope.cancel()
    assert pool.all_given_back()


async def test_a_listener_that_fails_ends_the_run_and_gives_the_sandbox_back() -> None:
    class Broken(Diary):
        async def output(self, stream: OutputStream, data: bytes) -> None:
            raise BrokenPipeError

    pool = ScriptedPool([prints])
    with pytest.raises(BrokenPipeError):
        await executor(pool).run(RunRequest(script="1"), Broken())
    assert pool.all_given_back()


async def test_runs_go_on_side_by_side() -> None:
    both = anyio.Event()
    began: list[str] = []

    async def meets_the_other(job: Job, watcher: RunWatcher) -> RunReport:
        began.append(job.run_id)
        if len(began) == 2:
            both.set()
        await both.wait()
        return await prints(job, watcher)

    runs = executor(ScriptedPool([meets_the_other, meets_the_other]))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runs.run, RunRequest(script="1"))
            tasks.start_soon(runs.run, RunRequest(script="2"))
    assert len(set(began)) == 2


async def test_kept_output_is_bounded_per_stream() -> None:
    async def floods(job: Job, watcher: RunWatcher) -> RunReport:
        for _ in range(100):
            await watcher.output(OutputStream.STDOUT, b"x" * 65536)
        return RunReport(reason=StopReason.EXITED, exit_code=0)

    result = await executor(ScriptedPool([floods])).run(RunRequest(script="1"))
    assert len(result.stdout.head + result.stdout.tail) == 100 * 1024
    assert result.stdout.total_bytes == 100 * 65536


@pytest.mark.parametrize(
    "request_",
    [
        RunRequest(script="1", dependencies=("six",)),
        RunRequest(script='# /// script\n# dependencies = ["six"]\n# ///'),
    ],
)
async def test_dependencies_are_refused_at_once_where_nothing_can_be_installed(request_: RunRequest) -> None:
    pool = ScriptedPool([prints])
    runs = Executor(pool, ExecutorOptions(driver="fake", can_install=False))
    with pytest.raises(RequestError, match="no store for them"):
        await runs.run(request_)
    assert not pool.asked
    assert (await runs.run(RunRequest(script="1"))).verdict is Verdict.OK


async def test_the_default_python_is_one_to_choose_even_where_the_image_is_somebodys_own() -> None:
    pool = ScriptedPool([prints, prints])
    runs = Executor(pool, ExecutorOptions(driver="fake", default_python="3.12"))
    await runs.run(RunRequest(script="1"))
    await runs.run(RunRequest(script="1", python_version="3.14"))
    assert [python for python, _ in pool.asked] == ["3.12", "3.14"]
