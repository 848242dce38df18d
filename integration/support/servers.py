"""Starts the real server as a client does: a child process that is spoken to over its stdin and stdout."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent

SERVER = (sys.executable, "-m", "python_exec_sandbox")

CERTIFICATES = {name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ}
"""What a person behind a TLS-inspecting proxy would give the server; without it no package is found there."""

STORE = {"PYTHON_EXEC_SANDBOX_STORE": "python-exec-sandbox-test", "PYTHON_EXEC_SANDBOX_NO_WARM_CACHE": "true"}
"""What tests install, hostile packages among it, doesn't go where a person's own servers keep theirs; and nothing
is installed that no test asked for."""

DOCKER = {"PYTHON_EXEC_SANDBOX_SANDBOX_BACKEND": "docker"}
"""What a test is about where it doesn't say; a flag beats it."""

READ_SECONDS = 120.0
"""No answer takes longer: the longest is a first sandbox on a busy machine."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server with its connected client."""

    client: Client
    pid: int
    log: Path

    async def execute(self, script: str, **arguments: object) -> CallToolResult:
        """The result of ``execute_python``."""
        return await self.client.call_tool("execute_python", {"script": script, **arguments})


StartServer = Callable[..., AbstractAsyncContextManager[RunningServer]]
"""What the fixtures hand to tests; the arguments are those of ``running_server`` without the folder."""


@asynccontextmanager
async def running_server(
    folder: Path,
    *flags: str,
    mode: str = "auto",
    command: Sequence[str] = SERVER,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningServer]:
    """A server started with ``command`` and ``flags``; its pid and its log are kept in ``folder``.

    ``environment`` is added to the few variables that the SDK passes on. ``mode`` is the client's:
    ``"legacy"`` for the handshake era, ``"auto"`` for the newest that both know.
    """
    pid_file, log = folder / "pid", folder / "server.log"
    # The shell becomes the server, so that its process id is known to the test.
    parameters = StdioServerParameters(
        command="/bin/sh",
        args=["-c", f'echo $$ >"{pid_file}"; exec "$@"', "sh", *command, *flags],
        env={**CERTIFICATES, **DOCKER, **STORE, **(environment or {})},
        cwd=folder,
    )
    with log.open("w", encoding="utf-8") as errlog:
        transport = stdio_client(parameters, errlog=errlog)
        async with Client(transport, mode=mode, read_timeout_seconds=READ_SECONDS) as client:
            yield RunningServer(client, int(pid_file.read_text()), log)


def text_of(result: CallToolResult) -> str:
    """All text blocks of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))
