"""What answers at an engine's address may be anything: it takes neither the memory nor the words of the server."""

import json
import resource
import socketserver
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import pytest

from python_exec_sandbox.drivers.docker import gateway as gateway_module
from python_exec_sandbox.drivers.docker.discovery import Candidate
from python_exec_sandbox.drivers.docker.facts import BuildRequest
from python_exec_sandbox.drivers.docker.failure import EngineRefused, quote
from python_exec_sandbox.drivers.docker.gateway import Gateway
from python_exec_sandbox.drivers.docker.meter import Meter
from python_exec_sandbox.errors import EngineUnreachable
from tests.support.fake_engine import Endless, FakeEngine, Refuse, Says

pytestmark = pytest.mark.anyio

BUILD = BuildRequest(tag="img:1", context=b"", arguments={}, anonymous=True)

MEMORY_MIB = 200
"""Enough for everything else in this process to go on meanwhile; an endless answer took gigabytes."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

FLOODS = {
    "a body without end": Endless(),
    "a body of the length it says": Endless(HEAD + b"Content-Length: 99999999999\r\n\r\n"),
    "a chunk's size without end": Endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1"),
    "a chunk as large as it can be": Endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n"),
    "chunks without end": Endless(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"40\r\n" + b"[" * 64 + b"\r\n"
    ),
    "interim answers without end": Endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers without end": Endless(HEAD, b"X: y\r\n"),
    "a header line without end": Endless(HEAD, b"X"),
    "an error without end": Endless(b"HTTP/1.1 500 Internal Server Error\r\n\r\n"),
}

CALLS: dict[str, tuple[str, Callable[[Gateway], Awaitable[object]]]] = {
    "create": ("create", lambda gateway: gateway.create("name", {})),
    "list": ("list", lambda gateway: gateway.containers("label")),
    "networks": ("networks", lambda gateway: gateway.networks("name")),
    "inspect": ("inspect", lambda gateway: gateway.exists("name")),
    "image": ("image", lambda gateway: gateway.image("name")),
    "attach": ("attach", lambda gateway: gateway.attach("0123")),
    "start": ("start", lambda gateway: gateway.start("0123")),
    "remove": ("remove", lambda gateway: gateway.remove("0123")),
}


def peak_mib() -> float:
    """Of this process since its start; Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)


async def connected(engine: FakeEngine) -> Gateway:
    with anyio.fail_after(10):
        return await Gateway.connect(Candidate(engine.address, "a test"))


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_whatever_has_no_end_in_an_answer_is_an_unreachable_engine_in_little_memory(
    engine: FakeEngine, flood: Endless
) -> None:
    engine.faults["version"] = flood
    before = peak_mib()
    with anyio.fail_after(20), pytest.raises(EngineUnreachable) as failed:
        await Gateway.connect(Candidate(engine.address, "a test"))
    assert peak_mib() - before < MEMORY_MIB
    assert engine.address in str(failed.value)
    assert len(str(failed.value)) < 500


@pytest.mark.parametrize("call", CALLS)
async def test_every_short_call_is_bounded(engine: FakeEngine, call: str) -> None:
    operation, ask = CALLS[call]
    gateway = await connected(engine)
    # Success or not: what a refusal says is read to its end too.
    engine.faults[operation] = Endless(b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n\r\n")
    with anyio.fail_after(20), pytest.raises(EngineUnreachable, match=r"more than 8 MiB .*--docker-host"):
        await ask(gateway)
    gateway.close()


@pytest.mark.parametrize("operation", ["build", "pull"])
async def test_a_build_or_pull_that_tells_no_end_is_given_up(engine: FakeEngine, operation: str) -> None:
    gateway = await connected(engine)
    engine.faults[operation] = Endless(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"100\r\n" + b"{" * 256 + b"\r\n"
    )
    calls = {"build": gateway.build(BUILD, print), "pull": gateway.pull("other", print)}
    calls.pop("pull" if operation == "build" else "build").close()
    with anyio.fail_after(40), pytest.raises(EngineUnreachable, match="a message of more than"):
        await calls[operation]
    gateway.close()


async def test_the_bound_is_for_one_answer_and_not_for_all(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "SHORT_ANSWER_BYTES", 100_000)
    gateway = await connected(engine)
    for number in range(20):
        engine.add_container({"a": "x" * 1000, "n": str(number)})
    with anyio.fail_after(10):
        for _ in range(20):
            assert len(await gateway.containers("a")) == 20
    gateway.close()


async def test_an_answer_in_drops_ends_with_the_whole_call(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await connected(engine)
    monkeypatch.setattr(gateway_module, "WHOLE_CALL_SECONDS", 0.3)
    engine.faults["create"] = FLOODS["interim answers without end"]
    monkeypatch.setattr(Meter, "count", lambda meter, size: None)
    with anyio.fail_after(10), pytest.raises(EngineUnreachable, match=r"end of its answer within 0\.3 s"):
        await gateway.create("name", {})
    assert gateway._limiter.borrowed_tokens == 0
    gateway.close()


@pytest.mark.parametrize("call", ["create", "list", "networks", "image"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"7",
        b"[7]",
        b'"text"',
        b"{}",
        b"\xff\xfe{",
        b"[" * 100_000,
        b'{"Id": null}',
        b'[{"Id": "../../x"}]',
        b'{"Id": "' + b"a" * 100_000 + b'"}',
        b"<html>" + b"\x1b[31m\x07" * 1000,
    ],
)
async def test_an_answer_that_makes_no_sense_is_told_in_a_few_printable_words(
    engine: FakeEngine, call: str, body: bytes
) -> None:
    operation, ask = CALLS[call]
    gateway = await connected(engine)
    engine.faults[operation] = Says(body)
    with anyio.fail_after(10), pytest.raises(EngineUnreachable) as failed:
        await ask(gateway)
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 450
    gateway.close()


@pytest.mark.parametrize(
    "facts",
    [
        [],
        {"ApiVersion": 7},
        {"ApiVersion": "9" * 10_000 + ".1"},
        {"ApiVersion": "\u0664.\u0661"},
        {"ApiVersion": None},
    ],
)
async def test_a_version_that_is_none_is_no_engine(engine: FakeEngine, facts: object) -> None:
    engine.faults["version"] = Says(json.dumps(facts).encode())
    with anyio.fail_after(10), pytest.raises(EngineUnreachable) as failed:
        await Gateway.connect(Candidate(engine.address, "a test"))
    assert len(str(failed.value)) < 400


async def test_a_refusal_in_no_engines_words_is_quoted_in_200_printable_characters(
    engine: FakeEngine,
) -> None:
    gateway = await connected(engine)
    head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 50000\r\n\r\n"
    engine.faults["create"] = Endless(head + (b"\x1b[1mgarbage\x00 " * 5000)[:50000])
    with anyio.fail_after(10), pytest.raises(EngineRefused) as refused:
        await gateway.create("name", {})
    assert refused.value.said.isprintable()
    assert 100 < len(refused.value.said) <= 200
    gateway.close()


async def test_an_engines_own_words_may_be_longer_but_printable_too(engine: FakeEngine) -> None:
    gateway = await connected(engine)
    engine.faults["create"] = Refuse(500, "OCI runtime create failed:\n\x1b[31m" + "word " * 1000)
    with anyio.fail_after(10), pytest.raises(EngineRefused) as refused:
        await gateway.create("name", {})
    assert refused.value.said.startswith("OCI runtime create failed: [31mword word")
    assert refused.value.said.isprintable()
    assert len(refused.value.said) == 600
    gateway.close()


@contextmanager
def flooding_tcp_server() -> Iterator[str]:
    """An address on the loopback where everything is answered without end."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            try:
                self.request.sendall(HEAD + b"\r\n")
                while True:
                    self.request.sendall(b"{" * 65536)
            except OSError:
                return  # the other side has enough

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"tcp://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def test_an_engine_over_tcp_is_bounded_too() -> None:
    with flooding_tcp_server() as address:
        before = peak_mib()
        with anyio.fail_after(20), pytest.raises(EngineUnreachable, match="more than 8 MiB"):
            await Gateway.connect(Candidate(address, "a test"))
        assert peak_mib() - before < MEMORY_MIB


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", "plain"),
        ("two\r\nlines\t", "two lines"),
        ("\x1b[2J\x9b\u202ex\ud800", "[2J x"),
        ("x" * 201, "x" * 199 + "…"),
        ("\0" * 10_000_000, ""),
    ],
)
def test_a_quotation_is_short_and_printable(text: str, quoted: str) -> None:
    assert quote(text) == quoted
