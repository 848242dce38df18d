"""The driver against a fake engine, its containers' runners played in threads."""

import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from python_exec_sandbox.drivers.attached import AttachedSandbox
from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.drivers.docker import connection, containers
from python_exec_sandbox.drivers.docker import driver as driver_module
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.options import DockerOptions, Network
from python_exec_sandbox.drivers.identity import own_identity
from python_exec_sandbox.errors import (
    ConfigurationError,
    CreateFailed,
    DriverError,
    EngineUnreachable,
    ImageUnavailable,
    ProtocolViolation,
)
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits
from python_exec_sandbox.model.result import Loss, OutputStream, Phase, RunReport
from python_exec_sandbox.stream.frames import Kind, encode
from python_exec_sandbox.stream.protocol import PROTOCOL_VERSION
from tests.support.fake_engine import Cut, FakeContainer, FakeEngine, Hang, Late, Refuse, RunnerEnd

pytestmark = pytest.mark.anyio

THIS_SERVER = own_identity()

FIT = {"python-exec-sandbox.protocol": str(PROTOCOL_VERSION)}

VERSION = "GET /version"


def control(**message: object) -> bytes:
    return encode(Kind.CONTROL, 0, json.dumps(message).encode())


READY = control(type="hello", protocol=PROTOCOL_VERSION, pythons=["3.13"]) + control(type="ready", warm=True)


def until_hung_up(end: RunnerEnd) -> None:
    """An honest runner without a job: ends when its input does, as the dead man's switch wants it."""
    end.send(READY)
    while end.receive():
        pass
    end.engine.end_container(end.container, 0)


def dying(*causes: str, exit_code: int = 137) -> Callable[[RunnerEnd], None]:
    """A runner that ends when it gets its job."""

    def play(end: RunnerEnd) -> None:
        end.send(READY)
        end.send(b"Traceback of the runner", source=2)
        end.receive()
        end.engine.end_container(end.container, exit_code, *causes)

    return play


def silent(end: RunnerEnd) -> None:
    """A runner that never says anything and doesn't mind what is said."""
    while end.receive():
        pass


def ready_then_silent(end: RunnerEnd) -> None:
    end.send(READY)
    silent(end)


class Deaf:
    """A watcher that looks at nothing."""

    async def serve(self, connection: Connection) -> None: ...

    def phase(self, phase: Phase) -> None: ...

    async def output(self, stream: OutputStream, data: bytes) -> None: ...


async def run(sandbox: AttachedSandbox) -> RunReport:
    return await sandbox.run(Job("r", b"pass", "3.13", RunLimits(run_seconds=5)), Deaf())


@pytest.fixture
def options(engine: FakeEngine) -> DockerOptions:
    engine.images["mine:1"] = FIT
    engine.player = until_hung_up
    return DockerOptions(docker_host=engine.address, image="mine:1")


@pytest.fixture
async def driver(options: DockerOptions) -> AsyncIterator[DockerDriver]:
    async with DockerDriver(options) as opened:
        yield opened


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "CLEANUP_SECONDS", 1.0)


async def test_a_sandbox_is_made_and_its_end_is_confirmed(engine: FakeEngine, driver: DockerDriver) -> None:
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        assert sandbox.alive
        assert sandbox.id in engine.containers
        await sandbox.destroy()
    assert engine.containers == {}
    assert driver._feed._fates == {}


async def test_a_container_is_attached_before_it_is_started(engine: FakeEngine, driver: DockerDriver) -> None:
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
    attach = engine.requests.index(f"POST /containers/{sandbox.id}/attach")
    assert attach < engine.requests.index(f"POST /containers/{sandbox.id}/start")


async def test_its_labels_say_whose_it_is(engine: FakeEngine, options: DockerOptions) -> None:
    async with DockerDriver(replace(options, instance="me", network=Network.NONE)) as driver:
        with anyio.fail_after(10):
            sandbox = await driver.create("3.13")
        body = engine.containers[sandbox.id].body
    assert body["Labels"]["python-exec-sandbox.instance"] == "me"
    assert body["Labels"]["python-exec-sandbox.pid"] == str(THIS_SERVER.pid)
    assert body["Image"] == "sha256:" + "ab" * 32
    assert body["HostConfig"]["NetworkMode"] == "none"


async def test_importing_and_opening_the_driver_needs_neither_the_sdk_nor_an_engine() -> None:
    code = (
        "import sys, anyio\n"
        "from python_exec_sandbox.drivers.docker.driver import DockerDriver\n"
        "from python_exec_sandbox.drivers.docker.options import DockerOptions\n"
        "async def main():\n"
        "    async with DockerDriver(DockerOptions(docker_host='unix:///nowhere')) as driver:\n"
        "        assert driver.activity is None\n"
        "anyio.run(main)\n"
        "assert not {'docker', 'requests', 'urllib3'} & set(sys.modules)\n"
    )
    await anyio.to_thread.run_sync(
        lambda: subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    )


@pytest.mark.parametrize(
    ("causes", "exit_code", "loss", "words"),
    [
        (("oom",), 137, Loss.MEMORY, "memory killer"),
        (("kill",), 137, Loss.KILLED, "through the engine"),
        ((), 137, Loss.KILLED, "doesn't say by whom"),
        ((), 1, Loss.FAULT, "exit code 1; it said: Traceback of the runner"),
    ],
)
async def test_a_sandbox_lost_in_a_run_is_explained_by_the_engines_events(
    engine: FakeEngine,
    driver: DockerDriver,
    causes: tuple[str, ...],
    exit_code: int,
    loss: Loss,
    words: str,
) -> None:
    engine.player = dying(*causes, exit_code=exit_code)
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        report = await run(sandbox)
        await sandbox.destroy()
    assert report.loss is loss
    assert words in report.notes


@pytest.mark.parametrize(
    ("operation", "fault", "error", "words"),
    [
        ("create", Refuse(500, "no space left on device"), CreateFailed, "docker system prune"),
        ("create", Refuse(404, "No such image: sha256:abab"), ImageUnavailable, "mine:1"),
        ("create", Cut(), EngineUnreachable, "can't be reached"),
        ("attach", Refuse(500, "odd"), CreateFailed, "odd"),
        ("attach", Cut(), EngineUnreachable, "can't be reached"),
        ("start", Refuse(400, "Unknown runtime specified runsc"), CreateFailed, "--runtime"),
        ("start", Cut(), EngineUnreachable, "can't be reached"),
    ],
)
async def test_a_failure_at_any_step_leaves_no_container_and_names_its_cause(
    engine: FakeEngine,
    driver: DockerDriver,
    operation: str,
    fault: Refuse | Cut,
    error: type[DriverError],
    words: str,
) -> None:
    engine.faults[operation] = fault
    with anyio.fail_after(10), pytest.raises(error, match=words):
        await driver.create("3.13")
    assert engine.containers == {}
    assert driver._feed._fates == {}


async def test_a_runner_of_another_protocol_leaves_no_container(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.player = lambda end: end.send(control(type="hello", protocol=99, pythons=[]))
    with anyio.fail_after(10), pytest.raises(ProtocolViolation, match="protocol 99"):
        await driver.create("3.13")
    assert engine.containers == {}


async def test_a_runner_that_dies_at_its_start_is_quoted(engine: FakeEngine, driver: DockerDriver) -> None:
    def play(end: RunnerEnd) -> None:
        end.send(b"no interpreter 3.13 here", source=2)
        end.engine.end_container(end.container, 2)

    engine.player = play
    with anyio.fail_after(10), pytest.raises(CreateFailed, match=r"exit code 2.*no interpreter 3\.13 here"):
        await driver.create("3.13")
    assert engine.containers == {}


async def test_a_runner_that_never_gets_ready_is_given_up(
    engine: FakeEngine, driver: DockerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "READY_SECONDS", 0.2)
    engine.player = silent
    with anyio.fail_after(10), pytest.raises(CreateFailed, match=r"not ready within 0\.2 s"):
        await driver.create("3.13")
    assert engine.containers == {}


async def test_a_sandbox_paused_before_it_is_ready_is_given_up_at_once(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    def play(end: RunnerEnd) -> None:
        end.engine.emit(end.container, "pause")
        silent(end)

    engine.player = play
    with anyio.fail_after(10), pytest.raises(CreateFailed, match="paused through the engine"):
        await driver.create("3.13")
    assert engine.containers == {}


@pytest.mark.parametrize("operation", ["create", "attach", "start"])
async def test_a_create_that_is_cancelled_at_any_step_leaves_no_container(
    engine: FakeEngine, driver: DockerDriver, operation: str
) -> None:
    late = engine.faults[operation] = Late()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(driver.create, "3.13")
            assert await anyio.to_thread.run_sync(late.reached.wait, 5)
            tasks.cancel_scope.cancel()
            late.gate.set()
    assert engine.containers == {}
    assert driver._feed._fates == {}


async def test_a_hung_engine_is_unreachable_in_time_and_the_text_says_so(
    engine: FakeEngine, driver: DockerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.3)
    engine.faults["version"] = Hang()
    with anyio.fail_after(5), pytest.raises(EngineUnreachable) as failed:
        await driver.create("3.13")
    assert f"{engine.address} (the option --docker-host): no answer within 0.3 s" in str(failed.value)
    assert driver.activity is None


async def test_all_who_wait_for_a_hung_engine_share_one_attempt(
    engine: FakeEngine, driver: DockerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.3)
    engine.faults["version"] = Hang()
    failed: list[EngineUnreachable] = []

    async def create() -> None:
        with pytest.raises(EngineUnreachable) as raised:
            await driver.create("3.13")
        failed.append(raised.value)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(create)
    assert len({str(error) for error in failed}) == 1
    assert engine.requests.count(VERSION) == 1


async def test_leaving_the_driver_in_the_middle_of_a_hung_build_ends_in_time(engine: FakeEngine) -> None:
    late = engine.faults["build"] = Late()
    with anyio.fail_after(5):
        async with DockerDriver(DockerOptions(docker_host=engine.address)) as driver:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(driver.create, "3.13")
                assert await anyio.to_thread.run_sync(late.reached.wait, 5)
                tasks.cancel_scope.cancel()
            assert "building" in str(driver.activity)
    late.gate.set()


async def test_a_cancelled_create_on_an_engine_that_hangs_in_the_middle_ends_in_time(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    late = engine.faults["create"] = Late()
    engine.faults["remove"] = Hang()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(driver.create, "3.13")
            assert await anyio.to_thread.run_sync(late.reached.wait, 5)
            tasks.cancel_scope.cancel()
    late.gate.set()


async def test_no_engine_at_all_lists_what_was_tried() -> None:
    async with DockerDriver(DockerOptions(docker_host="unix:///nowhere/docker.sock")) as driver:
        with anyio.fail_after(10), pytest.raises(EngineUnreachable) as failed:
            await driver.create("3.13")
    assert "unix:///nowhere/docker.sock" in str(failed.value)
    assert "the engine isn't running" in str(failed.value)


async def test_an_engine_that_was_restarted_is_used_again(engine: FakeEngine, driver: DockerDriver) -> None:
    with anyio.fail_after(20):
        first = await driver.create("3.13")
        await anyio.to_thread.run_sync(engine.stop)
        await first.wait_ended()
        with pytest.raises(EngineUnreachable):
            await driver.create("3.13")
        engine.start()
        second = await driver.create("3.13")
        assert second.alive
        assert not first.alive
        assert await anyio.to_thread.run_sync(engine.subscribed.wait, 5)
    assert engine.requests.count(VERSION) == 2


async def test_a_removal_that_is_going_on_already_is_waited_for(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    gone = threading.Event()

    def linger(end: RunnerEnd) -> None:
        end.send(READY)
        gone.wait(10)
        end.engine.end_container(end.container, 0)

    engine.player = linger
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        engine.faults["remove"] = Refuse(409, f"removal of container {sandbox.id} is already in progress")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sandbox.destroy)
            await anyio.wait_all_tasks_blocked()
            gone.set()
    assert engine.containers == {}


async def test_a_container_that_someone_else_removed_counts_as_destroyed(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        engine.containers.clear()
        await sandbox.destroy()


async def test_an_end_that_can_not_be_confirmed_is_an_error_and_can_be_tried_again(
    engine: FakeEngine, driver: DockerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "REMOVE_SECONDS", 0.3)
    engine.player = ready_then_silent
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        engine.faults["remove"] = Hang()
        with pytest.raises(DriverError, match=r"not gone within 0\.3 s"):
            await sandbox.destroy()
        del engine.faults["remove"]
        await sandbox.destroy()
    assert engine.containers == {}


async def test_leaving_the_driver_hangs_up_on_every_sandbox(
    engine: FakeEngine, options: DockerOptions
) -> None:
    hung_up = threading.Semaphore(0)

    def play(end: RunnerEnd) -> None:
        until_hung_up(end)
        hung_up.release()

    engine.player = play
    with anyio.fail_after(10):
        async with DockerDriver(options) as driver:
            for _ in range(3):
                await driver.create("3.13")
        for _ in range(3):
            assert await anyio.to_thread.run_sync(lambda: hung_up.acquire(timeout=5))
    assert engine.containers == {}


async def test_a_sweep_removes_what_dead_servers_left_and_nothing_else(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    mine = THIS_SERVER

    def labelled(instance: str, pid: int, start_time: str, boot_id: str) -> FakeContainer:
        return engine.add_container(
            {
                "python-exec-sandbox.instance": instance,
                "python-exec-sandbox.pid": str(pid),
                "python-exec-sandbox.start-time": start_time,
                "python-exec-sandbox.boot-id": boot_id,
            }
        )

    sibling = labelled("sibling", mine.pid, mine.start_time, mine.boot_id)
    reused = labelled("dead", mine.pid, "long ago", mine.boot_id)
    gone = labelled("dead", 2**22 + 1, mine.start_time, mine.boot_id)
    elsewhere = labelled("other machine", 2**22 + 1, mine.start_time, "another boot")
    foreign = engine.add_container({"python-exec-sandbox.instance": "odd"})
    with anyio.fail_after(10):
        assert await driver.sweep() == 2
    assert set(engine.containers) == {sibling.id, elsewhere.id, foreign.id}
    assert {reused.id, gone.id}.isdisjoint(engine.containers)


async def test_a_ca_bundle_reaches_the_container_by_its_real_path(
    engine: FakeEngine, options: DockerOptions, tmp_path: Path
) -> None:
    (tmp_path / "real.pem").write_text("certificates")
    (tmp_path / "link.pem").symlink_to("real.pem")
    async with DockerDriver(replace(options, ca_bundle=tmp_path / "link.pem")) as driver:
        with anyio.fail_after(10):
            sandbox = await driver.create("3.13")
        mounts = engine.containers[sandbox.id].body["HostConfig"]["Mounts"]
    assert mounts[-1]["Source"] == str((tmp_path / "real.pem").resolve())


async def test_a_ca_bundle_that_is_missing_is_a_setting_to_mend(
    options: DockerOptions, tmp_path: Path
) -> None:
    async with DockerDriver(replace(options, ca_bundle=tmp_path / "absent.pem")) as driver:
        with anyio.fail_after(10), pytest.raises(ConfigurationError, match=r"absent\.pem can't be read"):
            await driver.create("3.13")


def uid_in(engine: FakeEngine, sandbox: AttachedSandbox) -> int:
    command = engine.containers[sandbox.id].body["Cmd"]
    return int(command[command.index("--uid") + 1])


async def test_every_living_sandbox_has_a_user_of_its_own(engine: FakeEngine, driver: DockerDriver) -> None:
    with anyio.fail_after(20):
        sandboxes = [await driver.create("3.13") for _ in range(4)]
        uids = {uid_in(engine, sandbox) for sandbox in sandboxes}
        assert len(uids) == 4
        assert driver._users.taken == uids
        folders = engine.containers[sandboxes[0].id].body["HostConfig"]["Tmpfs"]
        assert f"uid={uid_in(engine, sandboxes[0])},gid=1000,mode=0700" in folders["/work"]
        for sandbox in sandboxes:
            await sandbox.destroy()
            await sandbox.destroy()
    assert not driver._users.taken


async def test_a_user_is_kept_until_the_end_of_its_sandbox_is_confirmed(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.player = ready_then_silent
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        uid = uid_in(engine, sandbox)
        engine.faults["remove"] = Refuse(500, "driver failed to remove root filesystem")
        with pytest.raises(DriverError):
            await sandbox.destroy()
        assert driver._users.taken == {uid}
        del engine.faults["remove"]
        await sandbox.destroy()
    assert not driver._users.taken


@pytest.mark.parametrize("operation", ["create", "attach", "start"])
async def test_a_failure_at_any_step_gives_its_user_back(
    engine: FakeEngine, driver: DockerDriver, operation: str
) -> None:
    engine.faults[operation] = Refuse(500, "odd")
    with anyio.fail_after(10), pytest.raises(CreateFailed, match="odd"):
        await driver.create("3.13")
    assert not driver._users.taken


async def test_sandboxes_share_the_network_that_keeps_them_apart(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    with anyio.fail_after(10):
        modes = {
            engine.containers[(await driver.create("3.13")).id].body["HostConfig"]["NetworkMode"]
            for _ in range(2)
        }
    assert modes == {engine.networks[0]["Id"]}
    assert engine.requests.count("GET /networks") == 2  # before it was made and after it


async def test_a_network_that_vanished_is_made_again(engine: FakeEngine, driver: DockerDriver) -> None:
    with anyio.fail_after(10):
        await driver.create("3.13")
        engine.networks.clear()
        sandbox = await driver.create("3.13")
        assert sandbox.alive
    assert engine.containers[sandbox.id].body["HostConfig"]["NetworkMode"] == engine.networks[0]["Id"]
    assert engine.requests.count("POST /networks/create") == 2


async def test_a_second_network_of_the_name_that_turns_up_is_removed(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    with anyio.fail_after(10):
        await driver.create("3.13")
        engine.add_network("python-exec-sandbox", created="2026-03-03")
        sandbox = await driver.create("3.13")
        assert sandbox.alive
    assert len(engine.networks) == 1


async def test_a_network_that_vanishes_again_and_again_is_an_error_with_advice(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.faults["start"] = Refuse(404, "network python-exec-sandbox not found")
    with anyio.fail_after(10), pytest.raises(CreateFailed, match=r"not found.*--network none"):
        await driver.create("3.13")
    assert engine.containers == {}


async def test_a_network_that_can_not_be_made_leaves_no_container(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.faults["network"] = Refuse(500, "Failed to Setup IP tables")
    with anyio.fail_after(10), pytest.raises(CreateFailed, match=r"Failed to Setup.*--network none"):
        await driver.create("3.13")
    assert "POST /containers/create" not in engine.requests


async def test_an_engine_that_goes_away_in_a_run_is_named_at_once(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    def play(end: RunnerEnd) -> None:
        end.send(READY)
        end.receive()
        threading.Thread(target=end.engine.stop).start()
        end.engine.stopped.wait(10)

    engine.player = play
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        assert await anyio.to_thread.run_sync(engine.subscribed.wait, 5)
        begin = anyio.current_time()
        report = await run(sandbox)
        took = anyio.current_time() - begin
        await anyio.to_thread.run_sync(engine.stopped.wait, 5)
    assert report.loss is Loss.KILLED
    assert report.notes == f"the container engine at {engine.address} went away"
    assert took < 1.5  # instead of the 1.8 s that its events are waited for
    engine.start()  # for the fixture to stop


async def test_an_engine_that_only_hangs_up_is_not_said_to_be_gone(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    def play(end: RunnerEnd) -> None:
        end.send(READY)
        end.receive()
        end.engine.end_events()

    engine.player = play
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        assert await anyio.to_thread.run_sync(engine.subscribed.wait, 5)
        report = await run(sandbox)
    assert report.loss is Loss.KILLED
    assert report.notes == f"the container engine at {engine.address} ended its connections"


async def test_events_that_broke_off_before_do_not_hide_why_a_sandbox_died(
    engine: FakeEngine, driver: DockerDriver
) -> None:
    engine.player = dying("oom")
    with anyio.fail_after(10):
        sandbox = await driver.create("3.13")
        assert await anyio.to_thread.run_sync(engine.subscribed.wait, 5)
        engine.subscribed.clear()
        engine.end_events()
        assert await anyio.to_thread.run_sync(engine.subscribed.wait, 5)
        await driver._feed.listening.wait()
        report = await run(sandbox)
    assert report.loss is Loss.MEMORY
