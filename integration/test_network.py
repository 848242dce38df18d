"""The filtered network on each driver, through the real client: what gets out, what doesn't, and what is told."""

import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import trustme
from dulwich import porcelain
from dulwich.server import BackendRepo, DictBackend
from dulwich.web import make_wsgi_chain

from integration.support import own_network
from integration.support.engine import Engine
from integration.support.index import package_index
from integration.support.native import why_no_bubblewrap
from integration.support.servers import SERVER, RunningServer, StartServer, text_of
from integration.support.wheels import bridge_address, wheel

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

Start = Callable[..., AbstractAsyncContextManager[RunningServer]]

PAGE = b"a page of the test's own " * 400

LARGE = bytes(range(256)) * 4096

MOST_GROWTH_BYTES = 48 * 1024 * 1024
"""What a server may grow by while a script reads nothing of an endless answer."""

REFUSALS_SECONDS = 20.0
"""A refusal comes at once: so many of them take less than one time-out of a library."""


class Pages(BaseHTTPRequestHandler):
    """``/flood`` never ends; ``POST`` gives back what was sent; anything else is :data:`PAGE`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/flood":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            while True:
                self.wfile.write(b"f" * 65536)
        self._send(LARGE if self.path == "/large" else PAGE)

    def do_POST(self) -> None:
        self._send(self.rfile.read(int(self.headers["Content-Length"])))

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave as they like."""


@pytest.fixture
def address(engine: Engine) -> str:
    """One of this machine's own, private, and not the loopback, for which no library asks a proxy."""
    return bridge_address(engine.client)


@pytest.fixture
def port(address: str) -> Iterator[int]:
    """Where :class:`Pages` is served."""
    with Quiet((address, 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(params=["docker", "native"])
def start(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> Start:
    """Servers of one backend."""
    if request.param == "native" and (reason := why_no_bubblewrap()):
        pytest.skip(reason)
    cache = tmp_path_factory.mktemp("cache")

    @asynccontextmanager
    async def started(
        *flags: str, environment: dict[str, str] | None = None, command: Sequence[str] = SERVER
    ) -> AsyncIterator[RunningServer]:
        backend = ("--sandbox-backend", request.param, "--pool-size", "1")
        variables = {"XDG_CACHE_HOME": str(cache), **(environment or {})}
        async with start_server(*backend, *flags, environment=variables, command=command) as server:
            yield server

    return started


def opened(address: str, port: int) -> tuple[str, ...]:
    return ("--allow-address", f"{address}/32", "--allow-port", str(port))


def meta_of(result: Any) -> dict[str, Any]:
    return dict(result.meta["io.github.python-exec-sandbox/run"]["network"])


LIBRARIES = """
import asyncio, urllib.request
import aiohttp, httpx, requests

url = "http://{address}:{port}/page"
print("urllib", len(urllib.request.urlopen(url).read()))
print("requests", len(requests.get(url).content), requests.post(url, data=b"x" * 300_000).content.count(b"x"))
with httpx.Client() as client:
    print("httpx", [len(client.get(url).content) for _ in range(3)])

async def by_aiohttp():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(url) as answer:
            return len(await answer.read())

print("aiohttp", asyncio.run(by_aiohttp()))
"""


async def test_a_page_is_read_by_each_library_and_the_host_is_listed_with_bytes(
    start: Start, address: str, port: int
) -> None:
    async with start(*opened(address, port)) as server:
        result = await server.execute(
            LIBRARIES.format(address=address, port=port), dependencies=["requests", "httpx", "aiohttp"]
        )
    text, size = text_of(result), len(PAGE)
    for line in (
        f"urllib {size}",
        f"requests {size} 300000",
        f"httpx [{size}, {size}, {size}]",
        f"aiohttp {size}",
    ):
        assert line in text, text
    assert f"network: {address}:{port} " in text
    (host,) = meta_of(result)["hosts"]
    assert (host["host"], host["port"]) == (address, port)
    assert host["received_bytes"] > 6 * size + 300_000
    assert host["sent_bytes"] > 300_000


async def test_connect_carries_any_bytes_with_half_closed_ends(start: Start, address: str) -> None:
    script = """
import http.client, os, socket, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
with socket.create_connection((proxy.hostname, proxy.port)) as way:
    way.sendall(b"CONNECT {address}:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    assert way.recv(4096).startswith(b"HTTP/1.1 200 ")
    way.sendall(bytes(range(256)) * 4000)
    way.shutdown(socket.SHUT_WR)
    back = b"".join(iter(lambda: way.recv(65536), b""))
print(back == (bytes(range(256)) * 4000)[::-1])
with socket.create_connection((proxy.hostname, proxy.port)) as way:
    way.sendall(b"\\x05\\x01\\x00")
    assert way.recv(2) == b"\\x05\\x00"
    way.sendall(b"\\x05\\x01\\x00\\x01" + socket.inet_aton("{address}") + ({port}).to_bytes(2, "big") + b"abc")
    assert way.recv(10)[1] == 0
    way.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: way.recv(65536), b"")))
"""
    with reversing(address) as port:
        async with start(*opened(address, port)) as server:
            text = text_of(
                await server.execute(script.replace("{address}", address).replace("{port}", str(port)))
            )
    assert "True" in text, text
    assert "b'cba'" in text, text


@contextmanager
def reversing(address: str) -> Iterator[int]:
    """A server that answers all it got, back to front, once the other side has ended."""
    with socket.create_server((address, 0)) as listener, ExitStack() as threads:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer, peer.makefile("rb") as incoming:
                    peer.sendall(incoming.read()[::-1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        threads.callback(thread.join, 5)
        threads.callback(listener.shutdown, socket.SHUT_RDWR)
        yield int(listener.getsockname()[1])


async def test_who_reads_late_reads_all_and_who_sends_much_hears_why_not(
    start: Start, address: str, port: int
) -> None:
    script = """
import time, urllib.error, urllib.request
answer = urllib.request.urlopen("http://{address}:{port}/large")
time.sleep(0.5)
print("late", len(answer.read()))
try:
    urllib.request.urlopen("http://10.0.0.1/", data=bytes(3_000_000))
except urllib.error.HTTPError as error:
    print("said", error.code)
"""
    async with start(*opened(address, port)) as server:
        text = text_of(
            await server.execute(script.replace("{address}", address).replace("{port}", str(port)))
        )
    assert f"late {len(LARGE)}" in text, text
    assert "said 403" in text, text


async def test_uv_installs_from_an_index_through_it(start: Start, address: str) -> None:
    script = """
import subprocess
done = subprocess.run(["uv", "pip", "install", "--quiet", "--target", "/tmp/there", "--index-url", "{url}", "alpha"],
                      capture_output=True, text=True)
print(done.returncode, done.stderr)
import sys; sys.path.insert(0, "/tmp/there")
import alpha; print(alpha.VERSION)
"""
    with package_index(address) as index:
        index.add(wheel("alpha", {"alpha.py": "VERSION = 'from there'"}, "1.0"))
        async with start(*opened(address, index.port)) as server:
            text = text_of(await server.execute(script.replace("{url}", index.url)))
    assert "from there" in text, text


SECURE = """
import ssl, subprocess, sys, urllib.request
import httpx, requests
from dulwich import porcelain

url = "https://{address}:{port}"
print("urllib", urllib.request.urlopen(url + "/plain").read())
print("requests", requests.get(url + "/plain").content)
print("httpx", httpx.get(url + "/plain").content)
done = subprocess.run(["uv", "pip", "install", "-q", "--target", "/tmp/there", "--index-url", url + "/simple", "alpha"],
                      capture_output=True, text=True)
print(done.returncode, done.stderr)
sys.path.insert(0, "/tmp/there")
import alpha
print("uv", alpha.VERSION)
porcelain.clone(url + "/repository", "/work/cloned", errstream=porcelain.NoneStream())
print("git", open("/work/cloned/page.txt").read())
"""


async def test_tls_is_end_to_end_with_the_certificates_of_the_server_machine(
    start: Start, address: str, tmp_path: Path
) -> None:
    authority = trustme.CA()
    bundle = tmp_path / "bundle.pem"
    known = Path(os.environ["SSL_CERT_FILE"]).read_bytes() if "SSL_CERT_FILE" in os.environ else b""
    bundle.write_bytes(known + b"\n" + authority.cert_pem.bytes())
    bundle.chmod(0o644)
    with secure_site(address, authority, tmp_path) as port:
        async with start(*opened(address, port), "--ca-bundle", str(bundle)) as server:
            script = SECURE.replace("{address}", address).replace("{port}", str(port))
            text = text_of(
                await server.execute(
                    script, dependencies=["requests", "httpx", "dulwich"], timeout_seconds=60
                )
            )
    for line in (
        "urllib b'plain'",
        "requests b'plain'",
        "httpx b'plain'",
        "uv from there",
        "git in a repository",
    ):
        assert line in text, text


@contextmanager
def secure_site(address: str, authority: trustme.CA, folder: Path) -> Iterator[int]:
    """Over TLS: a page, an index with one wheel, and a repository of git."""
    repository = porcelain.init(folder / "repository")
    (folder / "repository" / "page.txt").write_text("in a repository")
    porcelain.add(repository, [str(folder / "repository" / "page.txt")])
    porcelain.commit(
        repository, message=b"One page", author=b"A <a@example.org>", committer=b"A <a@example.org>"
    )
    name, content = wheel("alpha", {"alpha.py": "VERSION = 'from there'"}, "1.0")
    pages = {
        "/plain": ("text/plain", b"plain"),
        "/simple/alpha/": ("text/html", f'<a href="/files/{name}">{name}</a>'.encode()),
        f"/files/{name}": ("application/octet-stream", content),
    }
    served: dict[str, BackendRepo] = {"/repository": repository}
    git = make_wsgi_chain(DictBackend(served))

    def site(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"].startswith("/repository/"):
            return git(environ, start_response)
        kind, body = pages.get(environ["PATH_INFO"], ("text/plain", b""))
        start_response("200 OK" if body else "404 Not Found", [("Content-Type", kind)])
        return [body]

    with make_server(address, 0, site, handler_class=QuietPages) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(address).configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class QuietPages(WSGIRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


REFUSED = """
import socket, time, urllib.error, urllib.request

began = time.monotonic()
for url in {urls}:
    try:
        urllib.request.urlopen(url, timeout=30)
        print("OPEN", url)
    except urllib.error.HTTPError as error:
        print(error.code, error.reason, error.read().decode().strip())
    except urllib.error.URLError as error:
        print(error.reason)
print("took", time.monotonic() - began)
"""

CLOSED = {
    "http://10.1.2.3/": "private-address",
    "https://192.168.1.1/": "private-address",
    "http://169.254.169.254/latest/meta-data/": "link-local-address",
    "http://100.100.100.200/": "private-address",
    "http://[::ffff:10.1.2.3]/": "private-address",
    "http://2852039166/": "link-local-address",
    "http://0x7f.1/": "loopback-address",
    "http://name.localhost./": "loopback-name",
    "http://user@10.1.2.3/": "host",
    "https://example.org:22/": "port",
    "http://[fe80::1]/": "link-local-address",
}


async def test_refusals_come_at_once_and_say_why(start: Start, address: str, port: int) -> None:
    urls = [*CLOSED, f"http://{address}:{port}/page"]
    async with start("--allow-port", str(port)) as server:
        began = time.monotonic()
        result = await server.execute(REFUSED.replace("{urls}", repr(urls)))
        assert time.monotonic() - began < REFUSALS_SECONDS
    text = text_of(result)
    lines = [line for line in text.splitlines() if "Refused by the sandbox" in line]
    assert len(lines) == len(urls), text
    for line, rule in zip(lines, [*CLOSED.values(), "private-address"], strict=True):
        assert f"({rule})" in line, (line, rule)
    assert "OPEN" not in text
    assert "Note: The network refused" in text
    refused = meta_of(result)["refused"]
    assert {one["rule"] for one in refused} == set(CLOSED.values())
    assert not meta_of(result)["hosts"]


DIRECT = """
import os, socket, urllib.parse

def knock(name, family, where):
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.settimeout(3)
        try:
            door.connect(where)
        except OSError:
            return
        print("OPEN", name)

hosts = {hosts}
for host, port in hosts:
    knock(host, socket.AF_INET, (host, port))
knock("abstract", socket.AF_UNIX, "\\0{abstract}")
if "HTTPS_PROXY" in os.environ:
    proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
    for host, port in hosts:
        with socket.create_connection((proxy.hostname, proxy.port)) as way:
            way.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
            answer = way.recv(4096)
            if not answer.startswith(b"HTTP/1.1 403 "):
                print("OPEN", host, answer)
print(sorted(name for _, name in socket.if_nameindex()), "done")
"""


@pytest.mark.parametrize("network", ["none", "filtered"])
async def test_nothing_of_this_machine_opens(start: Start, address: str, network: str) -> None:
    abstract = f"python-exec-sandbox-test-{time.monotonic_ns()}"
    with ExitStack() as stack:
        doors = [stack.enter_context(socket.create_server((host, 0))) for host in ("127.0.0.1", address)]
        hidden = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        hidden.bind("\0" + abstract)
        hidden.listen()
        hosts = [door.getsockname() for door in doors]
        hosts += [("169.254.169.254", 80), ("100.100.100.200", 80), (address, 22)]
        flags = ["--network", network]
        if network == "filtered":
            flags += ["--allow-port", " ".join(str(port) for _, port in hosts)]
        async with start(*flags) as server:
            script = DIRECT.replace("{hosts}", repr(hosts)).replace("{abstract}", abstract)
            text = text_of(await server.execute(script))
        assert "['lo'] done" in text, text
        assert "OPEN" not in text, text
        for door in (*doors, hidden):
            door.setblocking(False)
            with pytest.raises(BlockingIOError):
                door.accept()


@pytest.mark.parametrize("network", ["none", "filtered"])
async def test_whoever_listens_where_no_script_must_come_hears_nothing(
    start: Start, tmp_path: Path, network: str
) -> None:
    """The server lives in a network in which each of those addresses answers, so that a gap would be heard."""
    heard = tmp_path / "heard"
    heard.touch()
    hosts = [(host, port) for host in ("127.0.0.1", *own_network.ADDRESSES) for port in own_network.PORTS]
    script = DIRECT.replace("{hosts}", repr(hosts)).replace("{abstract}", own_network.ABSTRACT)
    program = (sys.executable, own_network.__file__, str(heard), *SERVER)
    async with start("--network", network, command=program) as server:
        text = text_of(await server.execute(script))
    assert "['lo'] done" in text, text
    assert "OPEN" not in text, text
    assert not heard.read_text()


async def test_what_would_be_heard_is_heard(start: Start, tmp_path: Path) -> None:
    """The listeners of the test above do listen: with one of them opened on purpose its answer arrives."""
    heard = tmp_path / "heard"
    heard.touch()
    program = (sys.executable, own_network.__file__, str(heard), *SERVER)
    address = own_network.ADDRESSES[0]
    async with start("--allow-address", f"{address}/32", command=program) as server:
        script = f"import urllib.request as r; print(r.urlopen('http://{address}/').read())"
        text = text_of(await server.execute(script))
    assert "b'OPEN" in text, text
    assert heard.read_text() == f"{address}:80\n"


LIBRARIES_REFUSED = """
import asyncio, subprocess, time
import aiohttp, httpx, requests
from dulwich import porcelain

async def by_aiohttp():
    async with aiohttp.ClientSession(trust_env=True) as session:
        await session.get("https://10.0.0.1/")

def by_uv():
    done = subprocess.run(["uv", "pip", "install", "-q", "--target", "/tmp/there", "--index-url",
                           "http://10.0.0.1/simple", "alpha"], capture_output=True, text=True)
    raise RuntimeError(done.stderr)

for name, way in {
    "requests": lambda: requests.get("https://10.0.0.1/", timeout=60),
    "httpx": lambda: httpx.get("https://10.0.0.1/", timeout=60),
    "aiohttp": lambda: asyncio.run(by_aiohttp()),
    "uv": by_uv,
    "git": lambda: porcelain.clone("https://10.0.0.1/x", "/work/x", errstream=porcelain.NoneStream()),
}.items():
    began = time.monotonic()
    try:
        way()
        print("OPEN", name)
    except Exception as error:
        said = " ".join(str(error).split())
        print(name, "quick" if time.monotonic() - began < 15 else "SLOW", "403" in said, said[:300])
"""


async def test_each_library_says_at_once_that_it_was_refused(start: Start) -> None:
    async with start() as server:
        result = await server.execute(
            LIBRARIES_REFUSED,
            dependencies=["requests", "httpx", "aiohttp", "dulwich"],
            timeout_seconds=100,
        )
    text = text_of(result)
    for name in ("requests", "httpx", "aiohttp", "uv", "git"):
        assert f"{name} quick True" in text, text
    assert "10.0.0.1 is a private address" in text


async def test_a_script_that_leaves_connections_behind_ends_at_once_and_so_do_they(
    start: Start, address: str
) -> None:
    script = """
import os, socket, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
ways = []
for _ in range(20):
    way = socket.create_connection((proxy.hostname, proxy.port))
    way.sendall(b"CONNECT {address}:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    assert way.recv(4096).startswith(b"HTTP/1.1 200 ")
    ways.append(way)
idle = [socket.create_connection((proxy.hostname, proxy.port)) for _ in range(300)]
print("open", flush=True)
os._exit(3)
"""
    with socket.create_server((address, 0), backlog=64) as listener:
        port = listener.getsockname()[1]
        async with start(*opened(address, port)) as server:
            script = script.replace("{address}", address).replace("{port}", str(port))
            text = text_of(await server.execute(script, timeout_seconds=20))
            assert "open" in text, text
            assert "exit 3 in" in text, text
            listener.settimeout(5)
            for _ in range(20):
                peer, _ = listener.accept()
                with peer:
                    peer.settimeout(5)
                    assert peer.recv(1) == b""


async def test_an_answer_that_nobody_reads_fills_no_memory_and_holds_up_no_other(
    start: Start, address: str, port: int
) -> None:
    script = """
import os, socket, time, urllib.parse, urllib.request
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
stalled = []
for _ in range(30):
    way = socket.create_connection((proxy.hostname, proxy.port))
    way.sendall(b"GET http://{address}:{port}/flood HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    assert way.recv(1)
    stalled.append(way)
for _ in range(50):
    assert len(urllib.request.urlopen("http://{address}:{port}/page", timeout=20).read()) == {size}
print("all read")
"""
    script = script.replace("{size}", str(len(PAGE)))
    async with start(*opened(address, port)) as server:
        await server.execute("print('warm')")
        before = resident(server.pid)
        script = script.replace("{address}", address).replace("{port}", str(port))
        text = text_of(await server.execute(script, timeout_seconds=60))
        assert "all read" in text, text
        assert resident(server.pid) - before < MOST_GROWTH_BYTES


def resident(pid: int) -> int:
    """The most bytes of memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
