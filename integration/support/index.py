"""A package index of a test's own: what it holds, whom it lets in, what it was asked, and how it fails."""

import base64
import hashlib
import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

JOIN_SECONDS = 5.0

HANG_SECONDS = 60.0
"""Longer than any test lets an installation take."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    path: str
    headers: Message


@dataclass
class PackageIndex:
    """An index at ``url`` (PEP 503). ``credentials`` are what it demands, as ``user:password``.

    It serves as a proxy for itself, too, under any host's name. Requests for the packages in ``broken`` are answered with 500, those in ``hanging`` not at all; the files of
    those in ``altered`` have other bytes than those that the listing has hashes of.
    """

    host: str
    port: int
    credentials: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    altered: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    on_request: Callable[[Asked], None] = lambda _: None
    released: threading.Event = field(default_factory=threading.Event)
    """Set to let what hangs be answered."""

    @property
    def url(self) -> str:
        """Without credentials."""
        return f"http://{self.host}:{self.port}/simple/"

    @property
    def url_with_credentials(self) -> str:
        return f"http://{self.credentials}@{self.host}:{self.port}/simple/"

    def add(self, file: tuple[str, bytes]) -> str:
        """List ``file``, as :mod:`.wheels` makes it, under its package's name; its address."""
        name = re.sub(r"[-_.]+", "-", file[0].split("-")[0]).lower()
        self.files.setdefault(name, {})[file[0]] = file[1]
        return f"http://{self.host}:{self.port}/files/{name}/{file[0]}"

    def authorizations(self) -> set[str | None]:
        """All values of the header ``Authorization`` that came."""
        return {one.headers["Authorization"] for one in self.asked}

    def answer(self, path: str, headers: Message) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        asked = Asked(path, headers)
        self.asked.append(asked)
        self.on_request(asked)
        if self.credentials and headers["Authorization"] != _basic(self.credentials):
            return 401, "text/plain", b"who are you?"
        kind, _, rest = urlsplit(path).path.strip("/").partition("/")
        name, _, file = rest.partition("/")
        if name in self.hanging:
            self.released.wait(HANG_SECONDS)
        if name in self.broken:
            return 500, "text/plain", b"the index is broken"
        held = self.files.get(name)
        if held is None:
            return 404, "text/plain", b"no such package"
        if kind == "simple":
            return 200, "text/html", self._page(name, held).encode()
        if file not in held:
            return 404, "text/plain", b"no such file"
        return 200, "application/octet-stream", self.altered.get(name, held[file])

    @staticmethod
    def _page(name: str, held: dict[str, bytes]) -> str:
        links = (
            f'<a href="/files/{name}/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'
            for file, data in held.items()
        )
        return f"<!DOCTYPE html><html><body>{' '.join(links)}</body></html>"


def _basic(credentials: str) -> str:
    return "Basic " + base64.b64encode(credentials.encode()).decode()


@contextmanager
def package_index(host: str, credentials: str = "", port: int = 0) -> Iterator[PackageIndex]:
    """An index that listens at ``host``, an address of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = served.answer(self.path, self.headers)
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="packages"')
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # an installer that was ended doesn't say good-bye

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    served = PackageIndex(host, server.server_port, credentials)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.released.set()
        server.shutdown()
        server.server_close()
        thread.join(JOIN_SECONDS)


def main(folder: Path) -> None:
    """Serve the files in ``folder`` at port 8080 until killed, as ``settings.json`` there says: ``credentials``,
    ``broken`` and ``hanging``. Each request is printed, a line of JSON, after a line "ready"."""
    settings = json.loads((folder / "settings.json").read_text())
    with package_index("0.0.0.0", settings["credentials"], 8080) as index:
        index.broken.update(settings["broken"])
        index.hanging.update(settings["hanging"])
        for path in folder.glob("files/*"):
            index.add((path.name, path.read_bytes()))
        index.on_request = _print
        _say("ready")
        while True:
            signal.pause()


def _print(asked: Asked) -> None:
    _say(json.dumps({"path": asked.path, "authorization": asked.headers["Authorization"]}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
