"""Packages whose code runs while they are installed, beside the runner: what they do is blamed on them."""

import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from integration.support.engine import Engine
from integration.support.servers import StartServer, text_of

pytestmark = pytest.mark.anyio

NETWORK = "python-exec-sandbox"

ATTACKS = {
    "takes the temporary name": "import os\nos.path.exists('/work/script.py.part') or os.mkdir('/work/script.py.part')",
    "removes the script's file": "import os, time\nos.unlink('/work/script.py'); time.sleep(1)",
    "puts a folder there": "import os, time\nos.unlink('/work/script.py'); os.mkdir('/work/script.py'); time.sleep(1)",
    "ends its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "fills the working folder": "f = open('/work/fill', 'wb', buffering=0)\ntry:\n    while True: f.write(bytes(1 << 20))\nexcept OSError: pass",
}


def wheel(code: str) -> bytes:
    """A wheel whose code every interpreter runs that starts where it is installed."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("hostile.pth", "import hostile_code\n")
        archive.writestr("hostile_code.py", code)
        archive.writestr(
            "hostile-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n"
        )
        archive.writestr(
            "hostile-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("hostile-1.0.dist-info/RECORD", "")
    return data.getvalue()


class _Files(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = wheel(list(ATTACKS.values())[int(self.path.split("/")[1])])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def index(engine: Engine) -> Iterator[str]:
    """An HTTP server that sandboxes reach: on this machine's side of their bridge."""
    settings = engine.client.networks.get(NETWORK).attrs["IPAM"]["Config"][0]
    server = ThreadingHTTPServer((settings["Gateway"], 0), _Files)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://{settings['Gateway']}:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_a_package_does_to_its_sandbox_is_not_the_sandboxs_fault(
    start_server: StartServer, index: str, attack: str
) -> None:
    address = f"{index}/{list(ATTACKS).index(attack)}/hostile-1.0-py3-none-any.whl"
    async with start_server("--pool-size", "1", "--install-timeout", "20") as server:
        result = await server.execute("print('the script ran')", dependencies=[f"hostile @ {address}"])
        text = text_of(result)
        assert "sandbox lost" not in text, text
        assert "a fresh one was taken" not in text, text
        assert result.is_error, text
        assert "after it" in text_of(await server.execute("print('after it')"))
