"""A script's connections to the outside, each served by a task for as long as the run lasts."""

import logging
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.stream.connections import (
    ConnectionAborted,
    ConnectionData,
    ConnectionEvent,
    ConnectionOpened,
    ConnectionRoom,
)
from python_exec_sandbox.stream.session import RunnerSession

logger = logging.getLogger(__name__)

Flush = Callable[[], Awaitable[None]]
Serve = Callable[[Connection], Awaitable[None]]


class ServedConnections:
    """Those of one sandbox; ``flush`` sends what the session has to say."""

    def __init__(self, session: RunnerSession, flush: Flush) -> None:
        self._session = session
        self._flush = flush
        self._open: dict[int, StreamConnection] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._serve: Serve | None = None

    @property
    def serving(self) -> bool:
        """Whether the run is still on."""
        return self._tasks is not None

    def begin(self, tasks: anyio.abc.TaskGroup, serve: Serve) -> None:
        """From now on connections are served, in ``tasks``."""
        self._tasks, self._serve = tasks, serve

    def stop(self) -> None:
        """The run is over: none is served any more."""
        self._tasks = self._serve = None

    def on_event(self, event: ConnectionEvent) -> None:
        """Take in what the session has made of a frame; never waits."""
        if isinstance(event, ConnectionOpened):
            self._on_opened(event.stream)
        elif (connection := self._open.get(event.stream)) is not None:
            connection.on_event(event)

    def _on_opened(self, stream: int) -> None:
        if self._tasks is None or self._serve is None:
            self._session.abort_connection(stream)
            return
        connection = self._open[stream] = StreamConnection(stream, self._session, self._flush)
        self._tasks.start_soon(self._carry, connection, self._serve)

    async def _carry(self, connection: "StreamConnection", serve: Serve) -> None:
        try:
            with connection.scope:
                await serve(connection)
        except OSError as error:
            logger.debug("connection %d: %s", connection.stream, error)
        except Exception:  # one connection's fault must not end the run, nor the others
            logger.exception("connection %d", connection.stream)
        finally:
            del self._open[connection.stream]
            connection.abort()
        await self._flush()  # not when it was cancelled: that is the run's end, and the sandbox's


class StreamConnection:
    """A :class:`~.base.Connection` over a stream of the runner protocol. Its credit bounds what it holds."""

    def __init__(self, stream: int, session: RunnerSession, flush: Flush) -> None:
        self.stream = stream
        self.scope = anyio.CancelScope()
        """Around all that is done for it: what the script gave up holds nothing any longer."""
        self._session = session
        self._flush = flush
        self._arrived = bytearray()
        self._ended = False
        self._broken = False
        self._news = anyio.Event()
        self._room = anyio.Event()

    def on_event(self, event: ConnectionEvent) -> None:
        match event:
            case ConnectionData(data=data):
                self._arrived += data
                self._ended = not data
                self._news.set()
            case ConnectionRoom():
                self._room.set()
            case ConnectionAborted():
                self._broken = True
                self.scope.cancel()
            case ConnectionOpened():
                raise AssertionError("it is open")

    async def receive(self) -> bytes:
        while not self._arrived and not self._ended and not self._broken:
            self._news = anyio.Event()
            await self._news.wait()
        if self._broken:
            raise ConnectionResetError("the script gave the connection up")
        data = bytes(self._arrived)
        self._arrived.clear()
        if data:
            self._session.grant_on(self.stream, len(data))
            await self._flush()
        return data

    async def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            room = self._session.connection_room(self.stream)
            if room is None:
                raise ConnectionResetError("the script gave the connection up")
            if not room:
                self._room = anyio.Event()
                await self._room.wait()
                continue
            self._session.send_on(self.stream, bytes(left[:room]))
            left = left[room:]
            await self._flush()

    async def send_end(self) -> None:
        self._session.end_connection(self.stream)
        await self._flush()

    def abort(self) -> None:
        self._session.abort_connection(self.stream)
