"""The client's messages as lines on stdin and stdout, read and written on the event loop.

The SDK's own files hand every line to a worker thread and every answer to two, and its streams every message to
a task of its own: each handing-over costs a tenth of a millisecond, and on a busy machine as long as the threads
wait for each other. Here whoever asks for a message reads it, and whoever has one writes it. What becomes of
the lines is what the SDK's :func:`mcp.server.stdio.stdio_server` makes of them.
"""

import os
import re
import select
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fcntl import F_DUPFD_CLOEXEC, fcntl
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

# Bytes in JSON's escapes that are no character: half of a surrogate pair. The pair and any other escape come first.
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)

# A client may send its last request and leave: what is answered without waiting still is.
LAST_WORD_SECONDS = 0.05

READ_BYTES = 256 * 1024

# So much goes into a pipe or socket that is ready without blocking; the descriptors themselves must stay as
# they are, as other processes may share them.
WRITE_BYTES = select.PIPE_BUF

_FIRST_FREE = 3


class StdioServer(MCPServer[None]):
    """The SDK's server with stdin and stdout on the event loop."""

    async def run_stdio_async(self) -> None:
        """Serve until stdin ends; stray output and reads of others meanwhile miss the protocol's descriptors.

        Raises:
            OSError: stdout broke (possibly in an exception group).
        """
        async with standard_streams() as (lines, out):
            server = self._lowlevel_server
            await server.run(MessageReader(lines), MessageWriter(out), server.create_initialization_options())


class _Closable:
    """A stream that is used up once it was closed, as the SDK's are."""

    def __init__(self) -> None:
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError

    async def aclose(self) -> None:
        """Use it no more; the descriptor stays open."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class MessageReader(_Closable):
    """The client's messages; a line that is none comes as the exception that says why."""

    def __init__(self, lines: "LineReader") -> None:
        super().__init__()
        self._lines = lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        self._check_open()
        line = await anext(self._lines)
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            anyio.EndOfStream: the client closed its end.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class MessageWriter(_Closable):
    """Messages to the client, each as a line."""

    def __init__(self, out: "LineWriter") -> None:
        super().__init__()
        self._out = out

    async def send(self, item: SessionMessage) -> None:
        """Return when the message is written. What a cancelled call leaves of its line goes before the next.

        Raises:
            OSError: nobody reads any more.
        """
        self._check_open()
        await self._out.write(item.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n")
        await self._out.flush()


@asynccontextmanager
async def standard_streams() -> AsyncIterator[tuple["LineReader", "LineWriter"]]:
    """Stdin and stdout for the protocol alone: whoever else reads 0 finds its end, and what is written to 1
    goes to stderr."""
    wire_in, wire_out = (fcntl(fd, F_DUPFD_CLOEXEC, _FIRST_FREE) for fd in (0, 1))
    _divert()
    try:
        yield LineReader(wire_in), LineWriter(wire_out)
    finally:
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        # Not closed: a thread may still sit in a read of the first, and the process is at its end.


def _divert() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # the client gave us no stderr
        os.dup2(nothing, 1)
    os.close(nothing)


class LineReader:
    """Lines of UTF-8 from a descriptor, each without its line feed; what can't be decoded is replaced."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._ended = False
        self._threads = anyio.CapacityLimiter(1)

    def __aiter__(self) -> "LineReader":
        return self

    async def __anext__(self) -> str:
        while not self._lines:
            if self._ended:
                await anyio.sleep(LAST_WORD_SECONDS)  # the end cancels whatever is still being answered
                raise StopAsyncIteration
            self._take(await self._read())
        return whole_characters(self._lines.popleft().decode("utf-8", "replace"))

    def _take(self, data: bytes) -> None:
        self._ended = not data
        first, *others = data.split(b"\n")
        self._rest += first
        for line in others:
            self._lines.append(bytes(self._rest))
            self._rest = bytearray(line)
        if self._ended and self._rest:
            self._lines.append(bytes(self._rest))

    async def _read(self) -> bytes:
        try:
            await anyio.wait_readable(self._fd)
        except OSError:  # a file, or /dev/null: always ready, for the loop's selector no case for waiting
            return await anyio.to_thread.run_sync(os.read, self._fd, READ_BYTES, limiter=self._threads)
        return os.read(self._fd, READ_BYTES)


def whole_characters(line: str) -> str:
    """JSON without halves of surrogate pairs, as JavaScript sends them: no reader of ours would take the line,
    and its sender would wait for an answer for ever."""
    if "\\ud" not in line and "\\uD" not in line:
        return line
    return _ESCAPES.sub(lambda found: "\\ufffd" if found["half"] else found[0], line)


class LineWriter:
    """Text into a descriptor; the event loop goes on while the other side doesn't read."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._unsent = bytearray()
        self._flushing = anyio.Lock(fast_acquire=True)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    async def write(self, text: str) -> None:
        """Keep ``text`` for the next :meth:`flush`. A character that UTF-8 doesn't have is replaced."""
        self._unsent += text.encode("utf-8", "replace")

    async def flush(self) -> None:
        """Return when all is written. Any number of tasks may call it at the same time.

        Raises:
            OSError: nobody reads any more.
        """
        async with self._flushing:
            while self._unsent:
                if not self._poll.poll(0):
                    await anyio.wait_writable(self._fd)
                del self._unsent[: os.write(self._fd, self._unsent[:WRITE_BYTES])]
