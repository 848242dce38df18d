"""An engine on a Unix socket that answers what the gateway asks, and misbehaves on demand.

It runs in threads of its own, as the real one runs elsewhere: a test's event loop never waits for it.
"""

import contextlib
import http.server
import json
import re
import secrets
import socket
import socketserver
import struct
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A test that goes wrong must not leave a thread waiting for ever.
LONGEST_WAIT_SECONDS = 30.0


def frame(source: int, data: bytes) -> bytes:
    """``data`` as the engine sends it over an attached stream (1 stdout, 2 stderr)."""
    return struct.pack(">BxxxL", source, len(data)) + data


@dataclass
class Refuse:
    """Answer with an error. Real engines' texts are in the tests that use them."""

    status: int
    message: str
    times: int = 1_000_000


@dataclass
class Hang:
    """Accept the request and never answer."""


@dataclass
class Late:
    """Do and answer what is asked once ``gate`` is set; ``reached`` tells that the request is here."""

    gate: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)


@dataclass
class Cut:
    """Do what is asked, but close the connection instead of answering."""


@dataclass
class Endless:
    """Answer with ``head`` and then ``body`` for ever, or until the other side has enough."""

    head: bytes = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    body: bytes = b"{"


@dataclass
class Says:
    """Answer with this in place of what was asked for."""

    body: bytes


Fault = Refuse | Hang | Late | Cut | Endless | Says


class RunnerEnd:
    """The container's side of an attached stream, for a test to play."""

    def __init__(self, engine: "FakeEngine", container: "FakeContainer", sock: socket.socket) -> None:
        self.engine = engine
        self.container = container
        self.sock = sock

    def send(self, data: bytes, source: int = 1) -> None:
        self.sock.sendall(frame(source, data))

    def receive(self) -> bytes:
        return self.sock.recv(65536)


@dataclass
class FakeContainer:
    id: str
    name: str
    body: dict[str, Any]
    started: threading.Event = field(default_factory=threading.Event)
    state: str = "created"


class FakeEngine:
    """What it was asked is in ``requests`` ("POST /containers/create"), what exists in ``containers``.

    ``faults`` are by operation: version, create, attach, start, kill, remove, inspect, list, image, build,
    pull, events, ping, networks, network, look, unmake, images, unimage, info, volume, unvolume. ``player`` is called in a thread when an attached container was started; the stream ends
    when it returns. ``greeting`` goes out in one packet with the headers of an attach.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.containers: dict[str, FakeContainer] = {}
        self.images: dict[str, dict[str, str]] = {}
        self.listed_images: list[dict[str, Any]] = []
        self.info: dict[str, Any] = {"OperatingSystem": "Test OS", "NCPU": 2, "CgroupVersion": "2"}
        self.networks: list[dict[str, Any]] = []
        self.volumes: dict[str, dict[str, str]] = {}
        self.faults: dict[str, Fault] = {}
        self.requests: list[str] = []
        self.headers: dict[str, dict[str, str]] = {}
        self.player: Callable[[RunnerEnd], None] = lambda end: None
        self.greeting = b""
        self.api = ("1.41", "1.12")
        self.build_messages: list[dict[str, Any]] = [
            {"stream": "Step 1/2 : FROM base"},
            {"stream": "Step 2/2 : RUN x"},
        ]
        self.pull_messages: list[dict[str, Any]] = []
        self.built_labels: dict[str, str] = {}
        self.bodies: dict[str, bytes] = {}
        self.subscribed = threading.Event()
        self.stopped = threading.Event()
        self._subscribers: list[socket.socket] = []
        self._server: _Server | None = None

    @property
    def address(self) -> str:
        return f"unix://{self.path}"

    @contextmanager
    def running(self) -> Iterator["FakeEngine"]:
        """Listen, and stop with every connection at the end."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        self.stopped.clear()
        self.path.unlink(missing_ok=True)
        self._server = _Server(str(self.path), self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.end_connections()
        self.subscribed.clear()
        self._subscribers.clear()
        self.path.unlink(missing_ok=True)

    def add_container(self, labels: dict[str, str]) -> FakeContainer:
        container = FakeContainer(secrets.token_hex(32), secrets.token_hex(4), {"Labels": labels})
        self.containers[container.id] = container
        return container

    def add_image(self, *tags: str) -> str:
        """An image of this package as a list of images has it; its id."""
        image = {
            "Id": "sha256:" + secrets.token_hex(32),
            "RepoTags": list(tags) or None,
            "Size": 1024 * 1024,
            "Labels": {"python-exec-sandbox.protocol": "1"},
        }
        self.listed_images.append(image)
        return str(image["Id"])

    def add_network(self, name: str, created: str = "2026-01-01", icc: str = "false") -> str:
        """A bridge; its id."""
        network = {
            "Id": secrets.token_hex(32),
            "Name": name,
            "Created": created,
            "Driver": "bridge",
            "Options": {"com.docker.network.bridge.enable_icc": icc},
        }
        self.networks.append(network)
        return str(network["Id"])

    def end_events(self) -> None:
        """Hang up on every subscriber, and on nobody else."""
        while self._subscribers:
            with contextlib.suppress(OSError):  # hung up already
                self._subscribers.pop().shutdown(socket.SHUT_RDWR)

    def find(self, key: str) -> FakeContainer | None:
        return next((c for c in self.containers.values() if key in {c.id, c.name}), None)

    def emit(self, container: FakeContainer, action: str, **attributes: str) -> None:
        """Tell every subscriber of an event, in HTTP's chunked coding as the engine does."""
        event = {
            "Type": "container",
            "Action": action,
            "Actor": {"ID": container.id, "Attributes": {"name": container.name, **attributes}},
        }
        line = json.dumps(event).encode() + b"\n"
        for sock in list(self._subscribers):
            with contextlib.suppress(OSError):  # unsubscribed
                sock.sendall(b"%x\r\n%s\r\n" % (len(line), line))

    def end_container(self, container: FakeContainer, exit_code: int, *causes: str) -> None:
        """A container's end with automatic removal: ``causes`` (oom, kill), die, destroy."""
        if self.containers.pop(container.id, None) is None:
            return
        for cause in causes:
            self.emit(container, cause)
        self.emit(container, "die", exitCode=str(exit_code))
        self.emit(container, "destroy")

    def subscribe(self, sock: socket.socket) -> None:
        self._subscribers.append(sock)
        self.subscribed.set()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, path: str, engine: FakeEngine) -> None:
        self.engine = engine
        self._connections: list[socket.socket] = []
        super().__init__(path, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.append(request)
        super().process_request(request, client_address)

    def end_connections(self) -> None:
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # ended already

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what these tests are about."""


_ROUTES: tuple[tuple[str, str, str], ...] = (
    ("GET", r"/version", "version"),
    ("POST", r"/containers/create", "create"),
    ("POST", r"/containers/([^/]+)/attach", "attach"),
    ("POST", r"/containers/([^/]+)/start", "start"),
    ("POST", r"/containers/([^/]+)/kill", "kill"),
    ("DELETE", r"/containers/([^/]+)", "remove"),
    ("GET", r"/containers/json", "list"),
    ("GET", r"/containers/([^/]+)/json", "inspect"),
    ("GET", r"/images/(.+)/json", "image"),
    ("GET", r"/images/json", "images"),
    ("DELETE", r"/images/(.+)", "unimage"),
    ("GET", r"/info", "info"),
    ("POST", r"/build", "build"),
    ("POST", r"/images/create", "pull"),
    ("GET", r"/events", "events"),
    ("GET", r"/_ping", "ping"),
    ("GET", r"/networks", "networks"),
    ("POST", r"/networks/create", "network"),
    ("GET", r"/networks/([^/]+)", "look"),
    ("DELETE", r"/networks/([^/]+)", "unmake"),
    ("GET", r"/volumes/([^/]+)", "volume"),
    ("DELETE", r"/volumes/([^/]+)", "unvolume"),
)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is the base class's
        """Nothing: a test's output is its own."""

    def address_string(self) -> str:
        return "unix"

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def do_DELETE(self) -> None:
        self._route("DELETE")

    def _route(self, method: str) -> None:
        url = urllib.parse.urlsplit(self.path)
        path = re.sub(r"^/v\d+\.\d+", "", urllib.parse.unquote(url.path))
        self.query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        self.body = self._read_body()
        engine = self.server.engine
        for wanted, pattern, operation in _ROUTES:
            if wanted == method and (found := re.fullmatch(pattern, path)):
                engine.headers[operation] = dict(self.headers.items())
                engine.bodies[operation] = self.body
                engine.requests.append(f"{method} {path}")
                if self._after_fault(engine.faults.get(operation)):
                    self._muted = isinstance(engine.faults.get(operation), Cut)
                    getattr(self, f"_on_{operation}")(*found.groups())
                return
        self._error(404, "page not found")

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _after_fault(self, fault: Fault | None) -> bool:
        """Whether to go on and do what is asked."""
        match fault:
            case Refuse() if fault.times > 0:
                fault.times -= 1
                self._error(fault.status, fault.message)
                return False
            case Hang():
                self.server.engine.stopped.wait(LONGEST_WAIT_SECONDS)
                self.close_connection = True
                return False
            case Endless():
                self._flood(fault)
                return False
            case Says():
                self._send(200, fault.body)
                return False
            case Late():
                fault.reached.set()
                fault.gate.wait(LONGEST_WAIT_SECONDS)
        return True

    def _flood(self, fault: Endless) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):  # the other side has enough
            self.connection.sendall(fault.head)
            while not self.server.engine.stopped.is_set():
                self.connection.sendall(fault.body * (65536 // len(fault.body)))

    def _answer(self, status: int, value: Any = None) -> None:
        if self._muted:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(status, b"" if value is None else json.dumps(value).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: int, message: str) -> None:
        self._muted = False
        self._answer(status, {"message": message})

    def _container(self, key: str) -> FakeContainer | None:
        container = self.server.engine.find(key)
        if container is None:
            self._error(404, f"No such container: {key}")
        return container

    def _stream(self, messages: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for message in messages:
            line = json.dumps(message).encode() + b"\r\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def _on_version(self) -> None:
        newest, oldest = self.server.engine.api
        self._answer(200, {"Version": "20.10.24", "ApiVersion": newest, "MinAPIVersion": oldest})

    def _on_create(self) -> None:
        container = FakeContainer(secrets.token_hex(32), self.query["name"], json.loads(self.body))
        self.server.engine.containers[container.id] = container
        self._answer(201, {"Id": container.id, "Warnings": []})

    def _on_attach(self, key: str) -> None:
        engine = self.server.engine
        if (container := self._container(key)) is None:
            return
        if self._muted:
            self._answer(101)
            return
        head = (
            b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
            b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        )
        self.connection.sendall(head + engine.greeting)
        self.close_connection = True
        while not container.started.wait(0.01):
            if engine.stopped.is_set() or container.state == "removed":
                return
        engine.player(RunnerEnd(engine, container, self.connection))

    def _on_start(self, key: str) -> None:
        engine = self.server.engine
        if (container := self._container(key)) is not None:
            mode = container.body.get("HostConfig", {}).get("NetworkMode", "none")
            if mode not in {"none", "bridge", *(network["Id"] for network in engine.networks)}:
                self._error(404, f"network {mode} not found")
                return
            names = [network["Name"] for network in engine.networks]
            if len(names) > len(set(names)):
                self._error(400, f"network {names[0]} is ambiguous ({len(names)} matches found on name)")
                return
            container.state = "running"
            container.started.set()
            self._answer(204)

    def _on_kill(self, key: str) -> None:
        if (container := self._container(key)) is not None:
            self.server.engine.emit(container, "kill", signal="9")
            self._answer(204)

    def _on_remove(self, key: str) -> None:
        if (container := self._container(key)) is not None:
            container.state = "removed"
            del self.server.engine.containers[container.id]
            self.server.engine.emit(container, "destroy")
            self._answer(204)

    def _on_inspect(self, key: str) -> None:
        if (container := self._container(key)) is not None:
            self._answer(200, {"Id": container.id, "State": {"Status": container.state}})

    def _on_list(self) -> None:
        found = self.server.engine.containers.values()
        self._answer(
            200,
            [
                {"Id": c.id, "Labels": c.body.get("Labels", {}), "ImageID": c.body.get("Image", "")}
                for c in found
            ],
        )

    def _on_ping(self) -> None:
        self._send(200, b"OK")

    def _on_networks(self) -> None:
        """The filter by name takes a part of it, as the engine's does."""
        (wanted,) = json.loads(self.query["filters"])["name"]
        self._answer(200, [n for n in self.server.engine.networks if wanted in n["Name"]])

    def _on_network(self) -> None:
        engine, asked = self.server.engine, json.loads(self.body)
        if any(network["Name"] == asked["Name"] for network in engine.networks):
            self._error(409, f"network with name {asked['Name']} already exists")
            return
        made = {**asked, "Id": secrets.token_hex(32), "Created": "2026-02-02"}
        engine.networks.append(made)
        self._answer(201, {"Id": made["Id"], "Warning": ""})

    def _on_unmake(self, key: str) -> None:
        engine = self.server.engine
        if any(c.body.get("HostConfig", {}).get("NetworkMode") == key for c in engine.containers.values()):
            self._error(403, f"error while removing network: network x id {key} has active endpoints")
        elif not any(network["Id"] == key for network in engine.networks):
            self._error(404, f"network {key} not found")
        else:
            engine.networks = [network for network in engine.networks if network["Id"] != key]
            self._answer(204)

    def _on_image(self, reference: str) -> None:
        labels = self.server.engine.images.get(reference)
        if labels is None:
            self._error(404, f"No such image: {reference}")
        else:
            self._answer(200, {"Id": "sha256:" + "ab" * 32, "Config": {"Labels": labels}})

    def _on_images(self) -> None:
        (wanted,) = json.loads(self.query["filters"])["label"]
        self._answer(200, [image for image in self.server.engine.listed_images if wanted in image["Labels"]])

    def _on_unimage(self, key: str) -> None:
        """By id or by tag; the last tag takes the image with it."""
        images = self.server.engine.listed_images
        for image in images:
            tags = image["RepoTags"] or []
            if key == image["Id"] and len(tags) > 1:
                self._error(409, f"conflict: unable to delete {key} (must be forced)")
                return
            if key == image["Id"] or key in tags:
                image["RepoTags"] = [tag for tag in tags if tag != key]
                if not image["RepoTags"] or key == image["Id"]:
                    images.remove(image)
                self._answer(200, [])
                return
        self._error(404, f"No such image: {key}")

    def _on_info(self) -> None:
        self._answer(200, self.server.engine.info)

    def _on_look(self, key: str) -> None:
        engine = self.server.engine
        users: dict[str, object] = {
            c.id: {}
            for c in engine.containers.values()
            if c.body.get("HostConfig", {}).get("NetworkMode") == key
        }
        found = [network for network in engine.networks if network["Id"] == key]
        if found:
            self._answer(200, {**found[0], "Containers": users})
        else:
            self._error(404, f"network {key} not found")

    def _on_volume(self, name: str) -> None:
        """``engine.volumes`` has the labels of each."""
        volumes = self.server.engine.volumes
        if name in volumes:
            self._answer(200, {"Name": name, "Labels": volumes[name]})
        else:
            self._error(404, f"get {name}: no such volume")

    def _on_unvolume(self, name: str) -> None:
        if self.server.engine.volumes.pop(name, None) is None:
            self._error(404, f"get {name}: no such volume")
        else:
            self._answer(204)

    def _on_build(self) -> None:
        engine = self.server.engine
        if not any("error" in message for message in engine.build_messages):
            engine.images[self.query["t"]] = engine.built_labels
        self._stream(engine.build_messages)

    def _on_pull(self) -> None:
        engine = self.server.engine
        if not any("error" in message for message in engine.pull_messages):
            engine.images[f"{self.query['fromImage']}:{self.query['tag']}"] = engine.built_labels
        self._stream(engine.pull_messages)

    def _on_events(self) -> None:
        engine = self.server.engine
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.connection.sendall(head)
        self.close_connection = True
        engine.subscribe(self.connection)
        engine.stopped.wait(LONGEST_WAIT_SECONDS)
