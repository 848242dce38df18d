"""Times a server's first answers, byte by byte, without a client library's own start-up in the figure."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

ANSWER_SECONDS = 30.0

BARE_SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")

@server.tool()
async def execute_python(script: str, timeout_seconds: float = 30) -> str:
    "Runs a script."
    return script

server.run("stdio")
"""
"""The least that the SDK can be started with: what promise ALIVE compares with."""

BARE = (sys.executable, "-c", BARE_SERVER)
OURS = (sys.executable, "-m", "python_exec_sandbox")

_CLIENT = {"name": "stopwatch", "version": "1"}
_REQUESTS = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": _CLIENT},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


def seconds_to_tools(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """From the start of the process until ``tools/list`` is answered; stdout must carry nothing else."""
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath, **environment},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(json.dumps(request).encode() + b"\n" for request in _REQUESTS))
        process.stdin.flush()
        for line, expected in zip(_lines(process.stdout.fileno(), 2), (1, 2), strict=True):
            message = json.loads(line)
            assert message["id"] == expected, message
            assert "result" in message, message
        taken = time.perf_counter() - start
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=10)
    return taken


def _lines(fd: int, count: int) -> Iterator[bytes]:
    """The first ``count`` lines, each as soon as it is there."""
    data = b""
    for _ in range(count):
        while b"\n" not in data:
            ready, _, _ = select.select([fd], [], [], ANSWER_SECONDS)
            assert ready, f"no answer within {ANSWER_SECONDS:g} s"
            data += os.read(fd, 65536)
        line, _, data = data.partition(b"\n")
        yield line
