"""Wheels and source distributions that tests make, and a server that hands them out."""

import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import docker
from docker.errors import NotFound
from docker.models.networks import Network

from python_exec_sandbox.drivers.docker.network import NETWORK_NAME, NO_TRAFFIC_BETWEEN

JOIN_SECONDS = 5.0


def wheel(
    name: str, files: Mapping[str, str], version: str = "1.0", requires: Sequence[str] = ()
) -> tuple[str, bytes]:
    """The file name and the bytes of a pure wheel with ``files`` that needs what it ``requires``."""
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    folder = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/RECORD": "",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in whole.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", data.getvalue()


BUILD_SYSTEM = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

BACKEND = """
import zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    folder = f"{NAME}-{VERSION}.dist-info"
    whole = dict(FILES) | {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\\nName: {NAME}\\nVersion: {VERSION}\\n",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{folder}/RECORD": "",
    }
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as archive:
        for path, text in whole.items():
            archive.writestr(path, text)
    return name
"""


def source_distribution(name: str, setup: str, version: str = "1.0") -> tuple[str, bytes]:
    """The file name and the bytes of a source distribution whose build runs ``setup``, a ``setup.py``; it needs
    setuptools from an index."""
    return _archive(name, version, {"setup.py": setup})


def self_building(name: str, code: str, version: str = "1.0") -> tuple[str, bytes]:
    """As :func:`source_distribution`, for one that brings its own build backend and so needs nothing. The backend
    runs ``code`` first, which may set ``FILES``, the contents of the wheel by their paths."""
    backend = f"NAME, VERSION, FILES = {name!r}, {version!r}, {{}}\n{code}\n{BACKEND}"
    return _archive(name, version, {"backend.py": backend, "pyproject.toml": BUILD_SYSTEM})


def _archive(name: str, version: str, files: Mapping[str, str]) -> tuple[str, bytes]:
    data = io.BytesIO()
    folder = f"{name}-{version}"
    whole = {**files, "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in whole.items():
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return f"{folder}.tar.gz", data.getvalue()


@dataclass
class FileServer:
    """What it hands out is in ``files``; what it was asked for is in ``asked``."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add(self, file: tuple[str, bytes]) -> str:
        """The address of ``file`` from now on."""
        name, data = file
        self.files[f"/{name}"] = data
        return f"{self.address}/{name}"


@contextmanager
def file_server(client: docker.DockerClient) -> Iterator[FileServer]:
    """An HTTP server that containers reach: on this machine's side of their bridge."""
    with serving(bridge_address(client)) as served:
        yield served


@contextmanager
def serving(host: str) -> Iterator[FileServer]:
    """An HTTP server at the address ``host`` of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            body = served.files.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body or b"")

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer((host, 0), Handler)
    served = FileServer(f"http://{host}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join(JOIN_SECONDS)


def bridge_address(client: docker.DockerClient) -> str:
    """This machine's address on the bridge of sandboxes and builders."""
    return str(_bridge(client).attrs["IPAM"]["Config"][0]["Gateway"])


def _bridge(client: docker.DockerClient) -> Network:
    """The network of sandboxes, made as the server makes it where no server was started yet."""
    try:
        return client.networks.get(NETWORK_NAME)
    except NotFound:
        client.networks.create(NETWORK_NAME, driver="bridge", options=dict([NO_TRAFFIC_BETWEEN]))
        return client.networks.get(NETWORK_NAME)
