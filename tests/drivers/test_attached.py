"""The server's side of a sandbox, against a runner that is played."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from python_exec_sandbox.drivers import attached
from python_exec_sandbox.drivers.attached import AttachedSandbox
from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.errors import PythonUnavailable
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits
from python_exec_sandbox.model.result import Loss, OutputStream, Phase, RunReport, StopReason
from python_exec_sandbox.stream.frames import Kind, encode, encode_credit
from python_exec_sandbox.stream.protocol import PROTOCOL_VERSION, STDERR, STDIN, STDOUT, WINDOW_BYTES
from tests.support.fake_driver import (
    FakeDriver,
    FakeKeeper,
    FakeRunner,
    MemoryChannel,
    Scene,
    Stage,
    play,
    until_stopped,
)

pytestmark = pytest.mark.anyio

Made = Callable[[Scene], Awaitable[AttachedSandbox]]


class Watcher:
    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.data = {OutputStream.STDOUT: bytearray(), OutputStream.STDERR: bytearray()}

    async def serve(self, connection: Connection) -> None: ...

    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    async def output(self, stream: OutputStream, data: bytes) -> None:
        self.data[stream] += data


def job(run_seconds: float = 5, stdin: bytes = b"") -> Job:
    return Job("r", b"script", "3.13", RunLimits(run_seconds=run_seconds), stdin=stdin)


@pytest.fixture
async def driver() -> AsyncIterator[FakeDriver]:
    async with FakeDriver({}) as made:
        yield made


@pytest.fixture
def made(driver: FakeDriver) -> Made:
    async def make(scene: Scene) -> AttachedSandbox:
        driver._scenes["script"] = scene
        return await driver.create("3.13")

    return make


async def run(sandbox: AttachedSandbox, work: Job | None = None) -> tuple[RunReport, Watcher]:
    watcher = Watcher()
    with anyio.fail_after(10):
        return await sandbox.run(work or job(), watcher), watcher


async def test_a_sandbox_that_ends_for_want_of_its_python_says_so_and_names_those_it_has() -> None:
    channel = MemoryChannel()
    sandbox = AttachedSandbox("s", "3.12", channel, FakeKeeper(channel, FakeRunner(channel, {}, [])))
    hello = {"type": "hello", "protocol": PROTOCOL_VERSION, "pythons": ["3.13", "3.14"]}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.pump)
        await channel.to_server_in.send(encode(Kind.CONTROL, 0, json.dumps(hello).encode()))
        channel.end()
        with pytest.raises(PythonUnavailable, match=r"no Python 3\.12, but 3\.13, 3\.14"):
            await sandbox.wait_ready(5)


async def test_a_run_delivers_phases_output_and_report(made: Made) -> None:
    report, watcher = await run(await made(play(b"out", b"err", code=3)))
    assert (report.reason, report.exit_code) == (StopReason.EXITED, 3)
    assert watcher.phases == [Phase.RUNNING]
    assert watcher.data == {OutputStream.STDOUT: b"out", OutputStream.STDERR: b"err"}


async def test_output_beyond_every_window_arrives_whole(made: Made) -> None:
    flood = bytes(range(256)) * (5 * WINDOW_BYTES // 256)
    _, watcher = await run(await made(play(flood)))
    assert watcher.data[OutputStream.STDOUT] == flood


async def test_stdin_beyond_the_window_arrives_whole(made: Made) -> None:
    seen = []

    async def scene(stage: Stage) -> None:
        seen.append(stage.stdin)
        await play()(stage)

    data = b"i" * (3 * WINDOW_BYTES)
    await run(await made(scene), job(stdin=data))
    assert seen == [data]


async def test_a_slow_watcher_holds_the_script_back(made: Made) -> None:
    sent = 0
    release = anyio.Event()

    async def scene(stage: Stage) -> None:
        nonlocal sent
        await stage.running()
        for _ in range(64):
            await stage.output(STDOUT, b"x" * 65536)
            sent += 65536
        await stage.exit(code=0)

    class Slow(Watcher):
        async def output(self, stream: OutputStream, data: bytes) -> None:
            await release.wait()
            await super().output(stream, data)

    sandbox = await made(scene)
    watcher = Slow()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.run, job(), watcher)
        await anyio.wait_all_tasks_blocked()
        assert sent <= 2 * WINDOW_BYTES
        release.set()
    assert len(watcher.data[OutputStream.STDOUT]) == 64 * 65536


async def test_a_sandbox_runs_once(made: Made) -> None:
    sandbox = await made(play())
    await run(sandbox)
    assert not sandbox.alive
    with pytest.raises(RuntimeError, match="used before"):
        await sandbox.run(job(), Watcher())


async def test_a_ping_tells_the_living_from_the_silent(
    made: Made, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await made(play())
    assert await sandbox.check()
    driver.keepers[sandbox.id].runner.silent = True
    monkeypatch.setattr(attached, "PING_SECONDS", 0.01)
    assert not await sandbox.check()


async def test_two_pings_at_once_both_get_their_answer(made: Made) -> None:
    sandbox = await made(play())
    answers: list[bool] = []

    async def ask() -> None:
        answers.append(await sandbox.check())

    with anyio.fail_after(1):  # well below the time after which an answer counts as missing
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
    assert answers == [True] * 3


async def test_death_while_idle_is_noticed(made: Made, driver: FakeDriver) -> None:
    sandbox = await made(play())
    driver.keepers[sandbox.id].channel.end()
    with anyio.fail_after(2):
        await sandbox.wait_ended()
    assert not sandbox.alive
    assert not await sandbox.check()


async def test_death_in_the_middle_is_a_loss_with_the_keepers_cause_and_keeps_the_output(
    made: Made, driver: FakeDriver
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.running()
        await stage.output(STDOUT, b"half")
        stage.die()

    sandbox = await made(scene)
    driver.keepers[sandbox.id].loss = (Loss.MEMORY, "the kernel took it")
    report, watcher = await run(sandbox)
    assert (report.reason, report.loss, report.notes) == (StopReason.LOST, Loss.MEMORY, "the kernel took it")
    assert watcher.data[OutputStream.STDOUT] == b"half"


HOSTILE = {
    "no frames at all": b"\xff" * 64,
    "output over its credit": encode(Kind.DATA, STDOUT, b"x" * 65536) * (WINDOW_BYTES // 65536 + 1),
    "output on stdin": encode(Kind.DATA, STDIN, b"x"),
    "endless credit": encode_credit(STDIN, 2**32 - 1),
    "an exit of its own": encode(Kind.CONTROL, 0, json.dumps({"type": "exit", "reason": "lost"}).encode()),
    "a second greeting": encode(Kind.CONTROL, 0, b'{"type":"hello","protocol":1,"pythons":[]}'),
    "stderr after its end": encode(Kind.END, STDERR) * 2,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_bytes_end_the_sandbox_as_a_loss_and_nothing_else(made: Made, data: bytes) -> None:
    async def scene(stage: Stage) -> None:
        await stage.running()
        await stage.output(STDOUT, b"before")
        await stage.raw(data)

    sandbox = await made(scene)
    report, watcher = await run(sandbox)
    assert (report.reason, report.loss) == (StopReason.LOST, Loss.PROTOCOL)
    assert watcher.data[OutputStream.STDOUT].startswith(b"before")
    assert not sandbox.alive


async def test_a_fault_of_the_runner_is_a_loss_with_its_text(made: Made) -> None:
    async def scene(stage: Stage) -> None:
        await stage.control(type="fault", text="out of ideas")
        stage.die()

    report, _ = await run(await made(scene))
    assert (report.loss, report.notes) == (Loss.FAULT, "out of ideas")


@pytest.mark.parametrize("running", [False, True])
async def test_a_runner_that_falls_silent_is_given_up_by_the_servers_own_clock(
    made: Made, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    monkeypatch.setattr(attached, "OUTER_GRACE_SECONDS", 0.02)
    monkeypatch.setattr(attached, "START_SECONDS", 0.02)

    async def scene(stage: Stage) -> None:
        if running:
            await stage.running()
        await anyio.sleep_forever()

    report, _ = await run(await made(scene), job(run_seconds=0.02))
    assert (report.reason, report.loss) == (StopReason.LOST, Loss.SILENT)


async def test_a_flood_does_not_stretch_the_servers_clock(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "OUTER_GRACE_SECONDS", 0.02)

    async def scene(stage: Stage) -> None:
        await stage.running()
        while True:
            await stage.output(STDOUT, b"x" * 65536)

    report, _ = await run(await made(scene), job(run_seconds=0.05))
    assert report.loss is Loss.SILENT


async def test_a_cancelled_run_tells_the_runner_to_stop(made: Made) -> None:
    stopped = anyio.Event()

    async def scene(stage: Stage) -> None:
        await stage.running()
        await stage.stopped.wait()
        stopped.set()

    sandbox = await made(scene)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.run, job(), Watcher())
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(2):
        await stopped.wait()
    assert not sandbox.alive


async def test_time_out_is_the_runners_own_report(made: Made) -> None:
    report, watcher = await run(await made(until_stopped(b"partial")), job(run_seconds=0.05))
    assert report.reason is StopReason.RUN_TIME
    assert watcher.data[OutputStream.STDOUT] == b"partial"


async def test_destroy_closes_the_stream_and_may_be_repeated(made: Made, driver: FakeDriver) -> None:
    sandbox = await made(play())
    await sandbox.destroy()
    await sandbox.destroy()
    with anyio.fail_after(2):
        await sandbox.wait_ended()
    assert driver.keepers[sandbox.id].removed
