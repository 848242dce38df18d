"""The proxy that scripts speak to, over real connections to servers of the tests'."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from python_exec_sandbox.egress.dial import Dialer, DialFailed, Upstream, find_upstream
from python_exec_sandbox.egress.ledger import MOST_HOSTS, Ledger
from python_exec_sandbox.egress.policy import Policy, Refusal
from python_exec_sandbox.egress.tunnel import Tunnel

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"

Handler = Callable[[anyio.abc.SocketStream], Awaitable[None]]


class Script:
    """The script's end of a connection: what it sends is fixed, and what it got is kept."""

    def __init__(self, sent: bytes, piece: int = 65536, *, ends: bool = True) -> None:
        self._left = [sent[at : at + piece] for at in range(0, len(sent), piece)]
        self._ends = ends
        self.got = b""
        self.ended = False
        self.aborted = False

    async def receive(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self._left:
            return self._left.pop(0)
        if not self._ends:
            await anyio.sleep_forever()
        return b""

    async def send(self, data: bytes) -> None:
        self.got += data

    async def send_end(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted = True


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    async def handle(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await handler(stream)

    async with (
        await anyio.create_tcp_listener(local_host=HERE, local_port=0) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, handle)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


def tunnel(
    *ports: int,
    environment: dict[str, str] | None = None,
    most_bytes: int = 2**40,
    sockets: anyio.Semaphore | None = None,
) -> Tunnel:
    policy = Policy(ranges=(ip_network("127.0.0.0/8"),), ports=frozenset(ports))
    names = {"one.test": [HERE], "two.test": [HERE]}

    def resolve(name: str, port: int) -> list[str]:
        if name not in names:
            raise OSError("no such name")
        return names[name]

    return Tunnel(Dialer(policy, environment or {}, resolve).dial, most_bytes, sockets)


async def carried(script: Script, by: Tunnel) -> Script:
    with anyio.fail_after(10):
        await by.serve(script)
    return script


async def head_of(stream: anyio.abc.ByteReceiveStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive(1)
    return head


def answering(answer: bytes, heads: list[bytes]) -> Handler:
    async def handle(stream: anyio.abc.SocketStream) -> None:
        heads.append(await head_of(stream))
        await stream.send(answer)

    return handle


PLAIN = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\nhello"
)


@pytest.mark.parametrize("piece", [1, 7, 65536])
async def test_a_plain_request_loses_what_is_between_neighbours_alone(piece: int) -> None:
    heads: list[bytes] = []
    async with served(answering(PLAIN, heads)) as port:
        request = (
            f"GET http://one.test:{port}/a?b=c HTTP/1.1\r\nHost: one.test:{port}\r\nX-Mine: yes\r\n"
            "Proxy-Authorization: Basic c2VjcmV0\r\nConnection: X-Private\r\nX-Private: 1\r\n\r\n"
        )
        script = await carried(Script(request.encode(), piece), tunnel(port))
    (head,) = heads
    assert head.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    lowered = head.lower()
    assert b"x-mine: yes" in lowered
    assert b"connection: close" in lowered
    assert b"proxy-authorization" not in lowered
    assert b"x-private" not in lowered
    assert script.got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"x-end: 2" in script.got.lower()
    assert b"x-hop" not in script.got.lower()
    assert script.got.endswith(b"hello")
    assert script.ended


async def test_one_connection_carries_requests_to_several_hosts() -> None:
    heads: list[bytes] = []
    async with served(answering(PLAIN, heads)) as port:
        requests = "".join(
            f"GET http://{name}:{port}/{name} HTTP/1.1\r\nHost: {name}\r\n\r\n"
            for name in ("one.test", "two.test")
        )
        by = tunnel(port)
        script = await carried(Script(requests.encode()), by)
    assert [head.split()[1] for head in heads] == [b"/one.test", b"/two.test"]
    assert script.got.count(b"hello") == 2
    assert [(one.host, one.connections) for one in by.traffic().hosts] == [("one.test", 1), ("two.test", 1)]


async def test_a_chunked_body_arrives_whole() -> None:
    bodies: list[bytes] = []

    async def handle(stream: anyio.abc.SocketStream) -> None:
        await head_of(stream)
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            body += await stream.receive()
        bodies.append(body)
        await stream.send(PLAIN)

    async with served(handle) as port:
        request = (
            f"POST http://one.test:{port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            "5\r\nabcde\r\n3\r\nfgh\r\n0\r\n\r\n"
        )
        await carried(Script(request.encode(), 3), tunnel(port))
    assert b"".join(part for part in bodies[0].split(b"\r\n")[1::2]).replace(b"\r\n", b"") == b"abcdefgh"


async def test_a_redirect_is_the_scripts_to_follow_and_is_judged_like_any_request() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    async with served(answering(answer, [])) as port:
        by = tunnel(port)
        first = await carried(Script(f"GET http://one.test:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()), by)
        second = await carried(Script(b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n"), by)
    assert first.got.startswith(b"HTTP/1.1 302 ")
    assert second.got.startswith(b"HTTP/1.1 403 ")
    assert [one.host for one in by.traffic().hosts] == ["one.test"]


async def test_the_host_that_was_checked_is_the_one_that_is_told() -> None:
    heads: list[bytes] = []
    async with served(answering(PLAIN, heads)) as port:
        for more in (
            " HTTP/1.0\r\n",
            " HTTP/1.1\r\nHost: other.test\r\n",
            " HTTP/1.1\r\nHost: x\r\nConnection: host\r\n",
        ):
            script = await carried(Script(f"GET http://one.test:{port}/{more}\r\n".encode()), tunnel(port))
            assert b"hello" in script.got
    assert len(heads) == 3
    for head in heads:
        assert head.lower().count(b"host:") == 1
        assert f"host: one.test:{port}\r\n".encode() in head.lower()


async def test_an_answer_before_the_end_of_the_question_arrives() -> None:
    async def handle(stream: anyio.abc.SocketStream) -> None:
        await head_of(stream)
        await stream.send(b"HTTP/1.1 413 Too large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")

    async with served(handle) as port:
        size = 40_000_000
        head = f"POST http://one.test:{port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
        script = await carried(Script(head + bytes(size)), tunnel(port))
    assert script.got.startswith(b"HTTP/1.1 413 ")
    assert script.got.endswith(b"no\n")
    assert script.ended
    assert not script.aborted


async def test_an_answer_in_chunks_of_a_byte_goes_on_in_few_pieces_and_others_have_their_turn() -> None:
    body = b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    class Counting(Script):
        pieces = 0

        async def send(self, data: bytes) -> None:
            self.pieces += 1
            await super().send(data)

    script = Counting(b"")
    async with served(answering(answer, [])) as port, anyio.create_task_group() as tasks:
        script = Counting(f"GET http://one.test:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        tasks.start_soon(take_turns)
        await carried(script, tunnel(port))
        tasks.cancel_scope.cancel()
    assert script.got.count(b"x") == 20_000
    assert script.pieces < 100
    assert turns > 20_000 // 64


async def test_a_body_that_breaks_off_is_nobody_elses_fault() -> None:
    async with served(answering(b"", [])) as port:
        request = (
            f"POST http://one.test:{port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
        )
        script = await carried(Script(request.encode()), tunnel(port))
    assert script.aborted
    assert b"502" not in script.got


async def test_no_more_sockets_are_held_than_there_are_places() -> None:
    places = anyio.Semaphore(2)
    by = tunnel(sockets=places)

    async def wait(stream: anyio.abc.SocketStream) -> None:
        await stream.receive()

    async with served(wait) as port, anyio.create_task_group() as tasks:
        by = tunnel(port, sockets=places)
        request = f"CONNECT one.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        scripts = [Script(request, ends=False) for _ in range(3)]
        for script in scripts:
            tasks.start_soon(by.serve, script)
        await anyio.sleep(0.3)
        assert sorted(bool(script.got) for script in scripts) == [False, True, True]
        tasks.cancel_scope.cancel()
    assert places.value == 2


async def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    async with served(answering(b"HTTP/1.0 200 OK\r\n\r\nuntil the end", [])) as port:
        request = f"GET http://one.test:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        script = await carried(Script(request), tunnel(port))
    assert b"until the end" in script.got
    assert script.got.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: x", b"400"),
        ("GET ftp://one.test/ HTTP/1.1\r\nHost: x", b"400"),
        ("GET http://one.test:22/ HTTP/1.1\r\nHost: x", b"403"),
        ("GET http://10.0.0.1/ HTTP/1.1\r\nHost: x", b"403"),
        ("HEAD http://10.0.0.1/ HTTP/1.1\r\nHost: x", b"403"),
        ("CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x", b"403"),
        ("CONNECT one.test HTTP/1.1\r\nHost: x", b"502"),
        ("CONNECT one.test:x HTTP/1.1\r\nHost: x", b"403"),
        ("CONNECT one.test:99999999 HTTP/1.1\r\nHost: x", b"403"),
        ("CONNECT user:word@one.test:443 HTTP/1.1\r\nHost: x", b"403"),
        ("GET http://none.test/ HTTP/1.1\r\nHost: x", b"502"),
        ("GET http://[::1/ HTTP/1.1\r\nHost: x", b"400"),
        ("GET http://[foo]/ HTTP/1.1\r\nHost: x", b"400"),
        ("GET http://168.63.129.16/ HTTP/1.1\r\nHost: x", b"403"),
        ("GET\x00 nonsense", b"400"),
        ("GET http://one.test/ HTTP/1.1\r\nHost: x\r\nX: " + "y" * 200_000, b"431"),
    ],
)
async def test_what_is_not_carried_is_answered_readably(request_line: str, status: bytes) -> None:
    script = await carried(Script(f"{request_line}\r\n\r\n".encode()), tunnel())
    first, _, rest = script.got.partition(b"\r\n")
    assert first.startswith(b"HTTP/1.1 " + status + b" "), first
    assert b"x-sandbox-network:" in rest.lower()
    assert rest.endswith(b"\r\n\r\n" if request_line.startswith("HEAD") else b"\n")
    assert script.ended


async def test_a_server_that_speaks_no_http_is_said_to() -> None:
    async with served(answering(b"SSH-2.0-x\r\n\r\n", [])) as port:
        request = f"GET http://one.test:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        script = await carried(Script(request), tunnel(port))
    assert script.got.startswith(b"HTTP/1.1 502 ")


async def echo(stream: anyio.abc.SocketStream) -> None:
    async for data in stream:
        await stream.send(data)


@pytest.mark.parametrize("piece", [1, 3, 65536])
async def test_connect_and_socks_carry_bytes_to_the_end(piece: int) -> None:
    payload = bytes(range(256)) * 4
    async with served(echo) as port:
        connect = f"CONNECT one.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        by_http = await carried(Script(connect + payload, piece), tunnel(port))
        number = port.to_bytes(2, "big")
        for place in (b"\x01\x7f\x00\x00\x01", b"\x03\x08one.test"):
            socks = b"\x05\x02\x02\x00\x05\x01\x00" + place + number
            by_socks = await carried(Script(socks + payload, piece), tunnel(port))
            assert by_socks.got == b"\x05\x00" + b"\x05\x00\x00\x01" + bytes(6) + payload
    assert by_http.got == b"HTTP/1.1 200 Connection established\r\n\r\n" + payload
    assert by_http.ended


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b"\x05\x01\x02", b"\x05\xff"),
        (b"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x01\xbb", b"\x05\x00\x05\x02\x00\x01" + bytes(6)),
        (b"\x05\x01\x00\x05\x02\x00\x01\x0a\x00\x00\x01\x01\xbb", b"\x05\x00\x05\x07\x00\x01" + bytes(6)),
        (b"\x05\x01\x00\x05\x01\x00\x05\x0a\x00\x00\x01\x01\xbb", b"\x05\x00\x05\x08\x00\x01" + bytes(6)),
        (b"\x05\x01\x00\x05\x01\x00\x03\x09none.test\x01\xbb", b"\x05\x00\x05\x04\x00\x01" + bytes(6)),
    ],
)
async def test_socks_says_what_it_does_not_do(sent: bytes, got: bytes) -> None:
    assert (await carried(Script(sent), tunnel())).got == got


async def test_a_name_of_any_bytes_is_told_as_one_word() -> None:
    by = tunnel()
    await carried(Script(b"\x05\x01\x00\x05\x01\x00\x03\x07a\nb \x1b\xffc\x01\xbb"), by)
    assert [one.host for one in by.traffic().refused] == ["a?b??\ufffdc"]


@pytest.mark.parametrize("sent", [b"\x05", b"\x05\x01\x00\x04\x01\x00\x01", b"\x05\x01\x00\x05\x01"])
async def test_broken_socks_is_given_up(sent: bytes) -> None:
    assert (await carried(Script(sent), tunnel())).aborted


async def test_refusals_and_reached_hosts_are_told() -> None:
    by = tunnel()
    await carried(Script(b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n"), by)
    await carried(Script(b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n"), by)
    (refused,) = by.traffic().refused
    assert (refused.host, refused.port, refused.rule, refused.count) == (
        "10.0.0.1",
        443,
        "private-address",
        2,
    )


async def test_beyond_its_bytes_a_run_moves_none() -> None:
    async with served(echo) as port:
        by = tunnel(port, most_bytes=10_000)
        connect = f"CONNECT one.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        first = await carried(Script(connect + b"x" * 100_000, 1000), by)
        second = await carried(Script(connect), by)
    assert first.aborted
    assert len(first.got) < 11_000
    assert second.got.startswith(b"HTTP/1.1 403 ")
    assert by.traffic().refused[0].rule == "bytes"


def test_the_ledger_is_bounded_whatever_names_a_script_thinks_of() -> None:
    ledger = Ledger()
    for number in range(1000):
        count = ledger.reached(f"{number}." + "x" * 1000, 80)
        count.sent += 2
        count.received += 1
        ledger.refused(f"{number}." + "x" * 1000, 80, Refusal("port", "closed"))
    told = ledger.traffic()
    assert len(told.hosts) == len(told.refused) == MOST_HOSTS
    assert told.other_connections == told.other_refusals == 1000 - MOST_HOSTS
    assert (told.other_sent_bytes, told.other_received_bytes) == (2 * (1000 - MOST_HOSTS), 1000 - MOST_HOSTS)
    assert (
        max(len(host) for host in [one.host for one in told.hosts] + [one.host for one in told.refused])
        <= 253
    )


@pytest.mark.parametrize(
    ("variables", "name", "secure", "expected"),
    [
        ({}, "a.test", True, None),
        ({"HTTPS_PROXY": "http://p:3128"}, "a.test", True, Upstream("p", 3128)),
        ({"HTTPS_PROXY": "http://p:3128"}, "a.test", False, None),
        ({"https_proxy": "http://q", "HTTPS_PROXY": "http://p"}, "a.test", True, Upstream("q", 80)),
        ({"ALL_PROXY": "p:1"}, "a.test", False, Upstream("p", 1)),
        ({"ALL_PROXY": "http://p", "NO_PROXY": "b.test, a.test"}, "x.a.test", True, None),
        ({"ALL_PROXY": "http://p", "NO_PROXY": ".a.test"}, "ba.test", True, Upstream("p", 80)),
        ({"ALL_PROXY": "http://p", "NO_PROXY": "*"}, "a.test", True, None),
        (
            {"ALL_PROXY": "http://u:%40w@p"},
            "a.test",
            True,
            Upstream("p", 80, "Basic " + base64.b64encode(b"u:@w").decode()),
        ),
    ],
)
def test_the_servers_own_proxy(
    variables: dict[str, str], name: str, secure: bool, expected: Upstream | None
) -> None:
    assert find_upstream(variables, name, secure=secure) == expected


async def test_a_connection_that_comes_about_as_its_run_ends_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[anyio.abc.SocketStream] = []
    connect = anyio.connect_tcp

    async def connect_and_end(address: str, port: int) -> anyio.abc.SocketStream:
        stream = await connect(address, port)
        made.append(stream)
        run.cancel()
        return stream

    async with served(echo) as port:
        by = tunnel(port)
        monkeypatch.setattr(anyio, "connect_tcp", connect_and_end)
        with anyio.CancelScope() as run:
            await by.reach("one.test", port)
        assert run.cancelled_caught
        with pytest.raises(anyio.ClosedResourceError):
            await made[0].send(b"x")


def test_a_proxy_of_another_kind_is_said_not_to_be_supported() -> None:
    with pytest.raises(DialFailed, match="socks5"):
        find_upstream({"ALL_PROXY": "socks5://p"}, "a.test", secure=True)


async def test_the_servers_own_proxy_is_asked_for_the_address_that_was_checked() -> None:
    heads: list[bytes] = []

    async def proxy(stream: anyio.abc.SocketStream) -> None:
        heads.append(await head_of(stream))
        await stream.send(b"HTTP/1.1 200 Fine\r\nVia: x\r\n\r\n")
        await echo(stream)

    async with served(proxy) as port:
        environment = {"HTTPS_PROXY": f"http://user:word@{HERE}:{port}"}
        by = tunnel(environment=environment)
        script = await carried(Script(b"CONNECT one.test:443 HTTP/1.1\r\nHost: x\r\n\r\nabc"), by)
        unknown = await carried(Script(b"CONNECT none.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"), by)
    assert script.got.endswith(b"\r\n\r\nabc")
    assert len(heads) == 1, "a name that the server can't check went to its proxy"
    assert heads[0].startswith(b"CONNECT 127.0.0.1:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic " in heads[0]
    assert unknown.got.startswith(b"HTTP/1.1 502 ")
