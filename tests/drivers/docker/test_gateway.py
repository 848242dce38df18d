"""The gateway against a fake engine: what real engines say, and what only broken ones do."""

import json
import logging
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from python_exec_sandbox.drivers.docker import gateway as gateway_module
from python_exec_sandbox.drivers.docker.calls import CANCEL_GRACE_SECONDS
from python_exec_sandbox.drivers.docker.channel import AttachedChannel
from python_exec_sandbox.drivers.docker.discovery import Candidate
from python_exec_sandbox.drivers.docker.facts import BuildRequest
from python_exec_sandbox.drivers.docker.failure import EngineRefused
from python_exec_sandbox.drivers.docker.gateway import Gateway
from python_exec_sandbox.drivers.docker.versions import negotiate
from python_exec_sandbox.errors import EngineUnreachable
from tests.support.fake_engine import Cut, FakeEngine, Hang, Late, Refuse, RunnerEnd, frame

pytestmark = pytest.mark.anyio

BUILD = BuildRequest(tag="img:1", context=b"", arguments={"UV_IMAGE": "uv:1"}, anonymous=True)


def candidate(engine: FakeEngine) -> Candidate:
    return Candidate(engine.address, "a test")


@pytest.fixture
async def gateway(engine: FakeEngine) -> AsyncIterator[Gateway]:
    with anyio.fail_after(10):
        connected = await Gateway.connect(candidate(engine))
    yield connected
    connected.close()


async def started(gateway: Gateway) -> tuple[str, AttachedChannel]:
    created = await gateway.create("name", {"Image": "x"})
    channel = AttachedChannel(await gateway.attach(created.id))
    try:
        await gateway.start(created.id)
    except EngineRefused:
        channel.close()
        raise
    return created.id, channel


async def read_all(channel: AttachedChannel) -> bytes:
    received = b""
    while data := await channel.receive():
        received += data
    return received


async def test_bytes_in_one_packet_with_the_headers_of_an_attach_are_not_lost(
    engine: FakeEngine, gateway: Gateway
) -> None:
    whole = frame(1, b"hello from ") + frame(1, b"the runner")
    engine.greeting = whole[:15]
    engine.player = lambda end: end.sock.sendall(whole[15:])
    with anyio.fail_after(10):
        _, channel = await started(gateway)
        assert await read_all(channel) == b"hello from the runner"
    channel.close()


async def test_an_attached_stream_carries_both_directions(engine: FakeEngine, gateway: Gateway) -> None:
    def echo(end: RunnerEnd) -> None:
        while data := end.receive():
            end.send(data)

    engine.player = echo
    with anyio.fail_after(10):
        _, channel = await started(gateway)
        await channel.send(b"ping")
        assert await channel.receive() == b"ping"
    channel.close()


async def test_closing_the_gateway_leaves_attached_streams_alone(
    engine: FakeEngine, gateway: Gateway
) -> None:
    engine.player = lambda end: end.send(end.receive())
    with anyio.fail_after(10):
        _, channel = await started(gateway)
        gateway.close()
        await channel.send(b"still here")
        assert await channel.receive() == b"still here"
    channel.close()


async def test_a_stream_that_is_cut_in_a_frame_is_an_error(engine: FakeEngine, gateway: Gateway) -> None:
    engine.player = lambda end: end.sock.sendall(frame(1, b"half a frame")[:-4])
    with anyio.fail_after(10):
        _, channel = await started(gateway)
        with pytest.raises(OSError, match="middle of a frame"):
            await read_all(channel)
    channel.close()


@pytest.mark.parametrize(
    ("operation", "status", "said"),
    [
        ("create", 404, "No such image: sha256:00"),
        ("create", 409, 'Conflict. The container name "/name" is already in use by container "12"'),
        ("create", 500, "devmapper: Thin Pool has 0 free data blocks: no space left on device"),
        ("attach", 404, "No such container: 12"),
        ("start", 500, "OCI runtime create failed: container_linux.go:380: starting container process"),
        ("start", 400, "Unknown runtime specified runsc"),
    ],
)
async def test_a_refusal_keeps_the_engines_status_and_words(
    engine: FakeEngine, gateway: Gateway, operation: str, status: int, said: str
) -> None:
    engine.faults[operation] = Refuse(status, said)
    with anyio.fail_after(10), pytest.raises(EngineRefused) as refused:
        await started(gateway)
    assert (refused.value.status, refused.value.said) == (status, said)


async def test_a_container_exists_until_it_is_removed(engine: FakeEngine, gateway: Gateway) -> None:
    with anyio.fail_after(10):
        created = await gateway.create("name", {"Image": "x"})
        assert await gateway.exists("name")
        await gateway.remove("name")
        assert not await gateway.exists(created.id)
        with pytest.raises(EngineRefused) as refused:
            await gateway.remove("name")
    assert refused.value.is_missing


async def test_a_connection_that_is_closed_instead_of_an_answer_is_an_unreachable_engine(
    engine: FakeEngine, gateway: Gateway
) -> None:
    engine.faults["create"] = Cut()
    with anyio.fail_after(10), pytest.raises(EngineUnreachable, match=engine.address):
        await gateway.create("name", {})


async def test_an_engine_that_never_answers_is_unreachable_after_the_time_out(
    engine: FakeEngine, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "CALL_SECONDS", 1)
    gateway.close()
    engine.faults["create"] = Hang()
    with anyio.fail_after(5), pytest.raises(EngineUnreachable, match="did not answer in time"):
        await gateway.create("name", {})


async def test_an_attach_to_a_hung_engine_has_a_time_out_too(
    engine: FakeEngine, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "CALL_SECONDS", 1)
    gateway.close()
    engine.faults["attach"] = Hang()
    with anyio.fail_after(5), pytest.raises(EngineUnreachable, match="did not answer in time"):
        await gateway.attach("12")


async def test_a_cancelled_call_to_a_hung_engine_ends_its_thread_soon(
    engine: FakeEngine, gateway: Gateway
) -> None:
    engine.faults["create"] = Hang()
    with anyio.fail_after(CANCEL_GRACE_SECONDS + 2):
        with anyio.move_on_after(0.1) as scope:
            await gateway.create("name", {})
    assert scope.cancelled_caught
    assert gateway._limiter.borrowed_tokens == 0


async def test_a_cancelled_call_that_is_about_to_succeed_may_end_first(
    engine: FakeEngine, gateway: Gateway
) -> None:
    late = engine.faults["create"] = Late()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.create, "name", {})
            assert await anyio.to_thread.run_sync(late.reached.wait, 5)
            tasks.cancel_scope.cancel()
            late.gate.set()
    assert [container.name for container in engine.containers.values()] == ["name"]


async def test_an_attach_that_succeeds_after_its_cancellation_is_closed(
    engine: FakeEngine, gateway: Gateway
) -> None:
    ended = threading.Event()

    def wait_for_the_end(end: RunnerEnd) -> None:
        if not end.receive():
            ended.set()

    engine.player = wait_for_the_end
    late = engine.faults["attach"] = Late()
    with anyio.fail_after(10):
        created = await gateway.create("name", {})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.attach, created.id)
            assert await anyio.to_thread.run_sync(late.reached.wait, 5)
            tasks.cancel_scope.cancel()
            late.gate.set()
        await gateway.start(created.id)
        assert await anyio.to_thread.run_sync(ended.wait, 5)


async def test_hung_calls_hold_neither_the_loop_nor_anyones_threads_but_ours(
    engine: FakeEngine, gateway: Gateway
) -> None:
    engine.faults["create"] = Hang()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(2 * gateway_module.CALLS):
                tasks.start_soon(gateway.create, f"n{number}", {})
            await anyio.wait_all_tasks_blocked()
            assert gateway._limiter.borrowed_tokens == gateway_module.CALLS
            assert anyio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
            tasks.cancel_scope.cancel()


async def test_calls_reuse_their_connections(engine: FakeEngine, gateway: Gateway) -> None:
    with anyio.fail_after(10):
        for number in range(5):
            await gateway.exists(f"container{number}")
    assert engine._server is not None
    assert len(engine._server._connections) == 2  # one to ask the version, one for all that follows


async def test_an_engine_that_was_restarted_is_used_again(engine: FakeEngine, gateway: Gateway) -> None:
    with anyio.fail_after(10):
        assert not await gateway.exists("x")
        await anyio.to_thread.run_sync(engine.stop)
        with pytest.raises(EngineUnreachable, match="isn't running"):
            await gateway.exists("x")
        engine.start()
        assert not await gateway.exists("x")


async def test_events_arrive_from_the_moment_of_the_subscription(
    engine: FakeEngine, gateway: Gateway
) -> None:
    with anyio.fail_after(10):
        stream = await gateway.events("python-exec-sandbox.instance=a1")
        assert stream.chunked
        container = engine.add_container({})
        await anyio.to_thread.run_sync(lambda: engine.emit(container, "oom"))
        await anyio.wait_readable(stream.raw.sock)
        assert b'"oom"' in stream.raw.early + stream.raw.sock.recv(4096)
    stream.raw.sock.close()


async def test_a_socket_that_nobody_listens_on_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with anyio.fail_after(10), pytest.raises(EngineUnreachable, match="the engine isn't running"):
        await Gateway.connect(Candidate(f"unix://{path}", "a test"))


@pytest.mark.parametrize(
    ("newest", "oldest", "spoken"),
    [("1.41", "1.12", "1.41"), ("1.44", "1.24", "1.44"), ("1.52", "1.44", "1.45"), ("1.60", "1.50", "1.50")],
)
async def test_the_newest_version_that_both_know_is_spoken(newest: str, oldest: str, spoken: str) -> None:
    assert negotiate(newest, oldest, Candidate("unix:///s", "a test")) == spoken


@pytest.mark.parametrize(("newest", "words"), [("1.40", "too old: 1.41"), ("None", "not a container engine")])
async def test_an_engine_that_can_not_be_used_says_why(newest: str, words: str) -> None:
    with pytest.raises(EngineUnreachable, match=words):
        negotiate(newest, "1.12", Candidate("unix:///s", "a test"))


async def test_versions_are_negotiated_once(engine: FakeEngine, gateway: Gateway) -> None:
    with anyio.fail_after(10):
        for number in range(3):
            await gateway.exists(f"c{number}")
    assert engine.requests.count("GET /version") == 1


MISSING_HELPER_TOLD = pytest.mark.filterwarnings("ignore:docker-credential-absent not installed:UserWarning")


@MISSING_HELPER_TOLD
@pytest.mark.parametrize(
    "config",
    [
        '{"credsStore": "absent"}',
        '{"credsStore": "failing"}',
        '{"credHelpers": {"docker.io": "absent"}}',
        "{",
    ],
)
async def test_a_broken_credential_helper_matters_neither_for_a_build_nor_for_a_pull(
    engine: FakeEngine,
    gateway: Gateway,
    nothing_of_this_machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: str,
) -> None:
    helper = nothing_of_this_machine / "docker-credential-failing"
    helper.write_text("#!/bin/sh\nexit 1\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(nothing_of_this_machine))
    (nothing_of_this_machine / ".docker").mkdir()
    (nothing_of_this_machine / ".docker" / "config.json").write_text(config)
    with anyio.fail_after(10):
        await gateway.build(BUILD, lambda message: None)
        await gateway.pull("other", lambda message: None)
        assert await gateway.image("img:1") is not None
        assert await gateway.image("other:latest") is not None
    assert "X-Registry-Config" not in engine.headers["build"]


async def test_a_build_that_needs_no_credentials_asks_no_helper(
    engine: FakeEngine, gateway: Gateway, nothing_of_this_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = nothing_of_this_machine / "asked"
    helper = nothing_of_this_machine / "docker-credential-curious"
    helper.write_text(f"#!/bin/sh\n: > {asked}\nexit 1\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(nothing_of_this_machine))
    (nothing_of_this_machine / ".docker").mkdir()
    (nothing_of_this_machine / ".docker" / "config.json").write_text('{"credsStore": "curious"}')
    with anyio.fail_after(10):
        await gateway.build(BUILD, lambda message: None)
        assert not await anyio.Path(asked).exists()
        await gateway.build(replace(BUILD, anonymous=False), lambda message: None)
        assert await anyio.Path(asked).exists()


@pytest.mark.parametrize("config", ["[]", '{"auths": {"docker.io": {"auth": "not base64"}}}'])
async def test_a_configuration_that_the_sdk_can_not_read_is_named(
    engine: FakeEngine, nothing_of_this_machine: Path, config: str
) -> None:
    (nothing_of_this_machine / ".docker").mkdir()
    (nothing_of_this_machine / ".docker" / "config.json").write_text(config)
    with anyio.fail_after(10), pytest.raises(EngineUnreachable, match=r"config\.json .* Mend or remove it"):
        await Gateway.connect(candidate(engine))


@MISSING_HELPER_TOLD
async def test_a_build_over_a_base_of_ones_own_goes_on_without_a_broken_helper(
    engine: FakeEngine, gateway: Gateway, nothing_of_this_machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (nothing_of_this_machine / ".docker").mkdir()
    (nothing_of_this_machine / ".docker" / "config.json").write_text('{"credsStore": "absent"}')
    request = BuildRequest(tag="img:1", context=b"", arguments={}, anonymous=False)
    with anyio.fail_after(10), caplog.at_level(logging.WARNING):
        await gateway.build(request, lambda message: None)
    assert "building without credentials" in caplog.text


async def test_an_error_in_the_middle_of_a_build_is_raised(engine: FakeEngine, gateway: Gateway) -> None:
    engine.build_messages = [{"stream": "Step 1/2 : FROM x"}, {"error": "pull access denied for x"}]
    seen: list[str] = []
    with anyio.fail_after(10), pytest.raises(EngineRefused, match="pull access denied"):
        await gateway.build(BUILD, lambda message: seen.append(json.dumps(dict(message))))
    assert len(seen) == 1


async def test_a_pull_is_tried_again_after_a_passing_fault_only(engine: FakeEngine, gateway: Gateway) -> None:
    engine.faults["pull"] = Refuse(500, "Get registry: net/http: TLS handshake timeout", times=2)
    with anyio.fail_after(10):
        await gateway.pull("other:1", lambda message: None)
        assert engine.requests.count("POST /images/create") == 3
        engine.faults["pull"] = Refuse(404, "manifest for other:2 not found: manifest unknown")
        with pytest.raises(EngineRefused, match="manifest unknown"):
            await gateway.pull("other:2", lambda message: None)
    assert engine.requests.count("POST /images/create") == 4
