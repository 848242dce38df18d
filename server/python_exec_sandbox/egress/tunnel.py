"""One run's way out: each connection of its script is read as a request to a proxy, and carried there and back.

Spoken are HTTP (CONNECT, and plain requests with the whole address) and SOCKS 5, told apart by their first byte.
"""

from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.egress import socks
from python_exec_sandbox.egress.dial import Refused
from python_exec_sandbox.egress.ledger import Count, Ledger
from python_exec_sandbox.egress.policy import Refusal
from python_exec_sandbox.egress.reading import Broken, Incoming
from python_exec_sandbox.model.traffic import Traffic

MOST_BYTES = 4 * 1024**3
"""That one run may move, both ways together."""

MOST_SOCKETS = 512
"""That all runs of a server hold at once; who wants one more waits. Half of what a process may usually open."""

BURST = 100
CONNECTIONS_PER_SECOND = 50.0
"""Beyond a burst new connections are made no faster: a script that knocks at many doors is slowed."""

READ_BYTES = 64 * 1024


Dial = Callable[[str, int], Awaitable[anyio.abc.ByteStream]]


class Tunnel:
    """Serves the connections of one run, and counts. ``sockets`` are the places that all runs share."""

    def __init__(
        self, dial: Dial, most_bytes: int = MOST_BYTES, sockets: anyio.Semaphore | None = None
    ) -> None:
        self._dial = dial
        self._sockets = sockets or anyio.Semaphore(MOST_SOCKETS)
        self._most_bytes = most_bytes
        self._ledger = Ledger()
        self._earliest = 0.0

    def traffic(self) -> Traffic:
        """What became of it, as of now."""
        return self._ledger.traffic()

    async def serve(self, connection: Connection) -> None:
        """Carry one connection until it is over.

        Raises:
            OSError: the script gave it up.
        """
        incoming = Incoming(connection)
        try:
            if await incoming.peek() == b"\x05":
                await socks.serve(connection, incoming, self)
            else:
                from python_exec_sandbox.egress import http  # noqa: PLC0415 - most runs reach for nothing

                await http.serve(connection, incoming, self)
        except Broken:
            connection.abort()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            connection.abort()

    async def reach(self, host: str, port: int) -> "Remote":
        """A counted connection to ``host``.

        Raises:
            Refused: it is not allowed.
            DialFailed: it can't be had.
        """
        try:
            self._check_room()
            await self._keep_pace()
            await self._sockets.acquire()
            try:
                stream = await self._dial(host, port)
            except BaseException:
                self._sockets.release()
                raise
        except Refused as refused:
            self._ledger.refused(host, port, refused.refusal)
            raise
        return Remote(stream, self._ledger.reached(host, port), self._count, self._sockets.release)

    def _check_room(self) -> None:
        if self._ledger.total_bytes >= self._most_bytes:
            raise Refused(
                Refusal("bytes", f"this run has moved {self._most_bytes // 1024**2} MiB, which is all it may")
            )

    def _count(self, size: int) -> bool:
        """Whether the run may go on moving bytes."""
        self._ledger.total_bytes += size
        return self._ledger.total_bytes < self._most_bytes

    async def _keep_pace(self) -> None:
        now = anyio.current_time()
        self._earliest = max(self._earliest, now - BURST / CONNECTIONS_PER_SECOND)
        self._earliest += 1 / CONNECTIONS_PER_SECOND
        if self._earliest > now:
            await anyio.sleep(self._earliest - now)


class Remote:
    """The far end of a connection."""

    def __init__(
        self,
        stream: anyio.abc.ByteStream,
        count: Count,
        moved: Callable[[int], bool],
        on_close: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._on_close = on_close
        self._counted = count
        self._moved = moved

    async def send(self, data: bytes) -> None:
        self._check(len(data))
        await self._stream.send(data)
        self._counted.sent += len(data)

    async def receive(self) -> bytes:
        """What it sends next; ``b""`` at the end."""
        try:
            data = await self._stream.receive(READ_BYTES)
        except anyio.EndOfStream:
            return b""
        self._check(len(data))
        self._counted.received += len(data)
        return data

    async def send_end(self) -> None:
        await self._stream.send_eof()

    async def close(self) -> None:
        """At once, whatever is under way. To be called once."""
        self._on_close()
        await anyio.aclose_forcefully(self._stream)

    def _check(self, size: int) -> None:
        if not self._moved(size):
            raise anyio.BrokenResourceError


async def relay(connection: Connection, incoming: Incoming, remote: Remote) -> None:
    """Bytes both ways until both sides have ended, or one broke."""

    async def outward() -> None:
        while data := await incoming.some():
            await remote.send(data)
        await remote.send_end()

    async def inward() -> None:
        while data := await remote.receive():
            await connection.send(data)
        await connection.send_end()

    await together(outward, inward)


async def together(*parts: Callable[[], Awaitable[None]]) -> None:
    """All at once, to the end of each or the first failure, which is raised alone."""
    failures: list[Exception] = []

    async def guarded(part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - raised below, out of its group
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for part in parts:
            tasks.start_soon(guarded, part)
    if failures:
        raise failures[0]
