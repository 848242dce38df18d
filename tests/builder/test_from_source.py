import base64
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.from_source import build
from builder.installer import InstallerFailed

LOCK = """
lock-version = "1.0"
[[packages]]
name = "six"
version = "1.17.0"
wheels = [{{ url = "https://files.example/six.whl", hashes = {{ sha256 = "00" }} }}]
[[packages]]
name = "docopt"
version = "0.6.2"
sdist = {{ url = "{address}/docopt-0.6.2.tar.gz", hashes = {{ sha256 = "00" }} }}
[[packages]]
name = "x"
archive = {{ url = "{address}/x-1.0-py3-none-any.whl", hashes = {{ sha256 = "00" }} }}
"""


class FakeInstaller:
    """Locks what it is told to, and builds by putting the source's bytes into a wheel."""

    def __init__(self, lock: str) -> None:
        self._lock = lock

    def lock(self, python: str, requirements: list[str], scratch: str) -> str:
        return self._lock

    def build(self, python: str, source: str, folder: str) -> str:
        wheel = Path(folder, "docopt-0.6.2-py3-none-any.whl")
        wheel.parent.mkdir()
        wheel.write_bytes(b"built from " + Path(source).read_bytes())
        return str(wheel)


@pytest.fixture
def address() -> Iterator[str]:
    """A server whose files contain their own paths."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if "missing" in self.path else 200)
            self.end_headers()
            self.wfile.write(self.path.encode())

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(5)


def made(lock: str, place: Path) -> dict[str, object]:
    return build(FakeInstaller(lock), "python", ["x"], str(place))  # type: ignore[arg-type]  # a fake


def test_what_has_wheels_is_pinned_and_all_else_comes_as_wheels(address: str, tmp_path: Path) -> None:
    assert made(LOCK.format(address=address), tmp_path) == {
        "pins": [["six", "1.17.0", ["sha256:00"]]],
        "wheels": [
            ["docopt-0.6.2-py3-none-any.whl", base64.b64encode(b"built from /docopt-0.6.2.tar.gz").decode()],
            ["x-1.0-py3-none-any.whl", base64.b64encode(b"/x-1.0-py3-none-any.whl").decode()],
        ],
    }


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "", "{address}/", "{address}/..", "{address}/missing.tar.gz"]
)
def test_a_source_that_cannot_be_fetched_is_named(address: str, tmp_path: Path, url: str) -> None:
    lock = f'[[packages]]\nname = "docopt"\nsdist = {{ url = "{url.format(address=address)}" }}\n'
    with pytest.raises(InstallerFailed, match="docopt"):
        made(lock, tmp_path)
