"""A server as a child process, spoken to in bare JSON lines: for what no client library shows."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.startup import INITIALIZE, INITIALIZED

FAKE_SERVER = (sys.executable, "-m", "tests.support.fake_serving")

ANSWER_SECONDS = 20


class WireServer:
    """The process and its lines; stdout is read by a thread, so that every wait has a bound."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def send(self, *messages: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self.process.stdin.flush()

    def answer(self, number: int) -> dict[str, Any]:
        """The answer to the request ``number``; other lines before it are dropped."""
        while True:
            message = json.loads(self.lines.get(timeout=ANSWER_SECONDS))
            if message.get("id") == number:
                assert isinstance(message, dict)
                return message

    def ask(self, number: int, method: str, **params: Any) -> dict[str, Any]:
        self.send(request(number, method, **params))
        return self.answer(number)

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number: int, script: str) -> dict[str, Any]:
    return request(number, "tools/call", name="execute_python", arguments={"script": script})


@contextmanager
def wire_server(
    *arguments: str,
    command: Sequence[str] = FAKE_SERVER,
    environment: Mapping[str, str] | None = None,
    handshake: bool = True,
    **options: Any,
) -> Iterator[WireServer]:
    """A server that has answered ``initialize``; killed at the end if it still runs."""
    with subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        **options,
    ) as process:
        server = WireServer(process)
        try:
            if handshake:
                server.send(INITIALIZE)
                server.answer(1)
                server.send(INITIALIZED)
            yield server
        finally:
            process.kill()
