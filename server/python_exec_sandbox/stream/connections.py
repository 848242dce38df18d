"""The books of a script's connections to the outside: streams of the runner protocol that the runner opens.

Each is a stream of its own with an id that is never used again, both ways with a credit of
:data:`CONNECTION_WINDOW_BYTES`. It is over when both sides have ended their direction, or when one aborts it.
"""

import struct
from dataclasses import dataclass

from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.stream.frames import MAX_PAYLOAD_BYTES, Frame, Kind, encode, encode_credit

FIRST_CONNECTION = 16
"""Lower ids are the streams that each run has."""

CONNECTION_WINDOW_BYTES = 128 * 1024
MAX_OPEN_CONNECTIONS = 64
"""With the window it bounds what a run's connections hold in memory, on both sides."""

MAX_CONNECTIONS = 10_000
"""In one run; the runner takes no more."""

_MAX_CREDIT = 2**31


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    stream: int


@dataclass(frozen=True, slots=True)
class ConnectionData:
    """Bytes that the script sent; none: it will send no more."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ConnectionRoom:
    """The script has taken some of what was sent."""

    stream: int


@dataclass(frozen=True, slots=True)
class ConnectionAborted:
    stream: int


ConnectionEvent = ConnectionOpened | ConnectionData | ConnectionRoom | ConnectionAborted


@dataclass(slots=True)
class _Connection:
    may_receive: int = CONNECTION_WINDOW_BYTES
    owed: int = 0
    may_send: int = CONNECTION_WINDOW_BYTES
    received_all: bool = False
    sent_all: bool = False

    @property
    def is_over(self) -> bool:
        return self.received_all and self.sent_all


class Connections:
    """All connections of one run. Methods that send return the bytes to send."""

    def __init__(self) -> None:
        self._open: dict[int, _Connection] = {}
        self._given_up: set[int] = set()
        self._next = FIRST_CONNECTION

    def open(self, stream: int) -> ConnectionOpened:
        """The runner has opened ``stream``.

        Raises:
            ProtocolViolation: it isn't the next one, or there are too many.
        """
        if stream != self._next or stream >= FIRST_CONNECTION + MAX_CONNECTIONS:
            raise ProtocolViolation(f"connection {stream} opened out of order")
        if len(self._open) >= MAX_OPEN_CONNECTIONS:
            raise ProtocolViolation(f"more than {MAX_OPEN_CONNECTIONS} connections at once")
        self._next += 1
        self._open[stream] = _Connection()
        return ConnectionOpened(stream)

    def abort_received(self, stream: int) -> ConnectionAborted | None:
        """The runner has given up ``stream``; ``None`` when that is no news.

        Raises:
            ProtocolViolation: it never was.
        """
        self._check_known(stream)
        return ConnectionAborted(stream) if self._open.pop(stream, None) is not None else None

    def receive(self, frame: Frame) -> ConnectionEvent | None:
        """What ``frame`` means.

        Raises:
            ProtocolViolation: the connection isn't open, or its credit was not kept.
        """
        self._check_known(frame.stream)
        connection = self._open.get(frame.stream)
        if connection is None:
            # Frames may cross an abort, and credit comes for the last bytes of what is over.
            if frame.stream in self._given_up or frame.kind is Kind.CREDIT:
                return None
            raise ProtocolViolation(f"a frame for connection {frame.stream}, which is over")
        if frame.kind is Kind.CREDIT:
            return self._on_credit(connection, frame)
        if connection.received_all or len(frame.payload) > connection.may_receive:
            raise ProtocolViolation(f"bytes on connection {frame.stream} that were not granted")
        connection.may_receive -= len(frame.payload)
        connection.received_all = frame.kind is Kind.END
        self._forget_if_over(frame.stream, connection)
        return ConnectionData(frame.stream, frame.payload)

    def room(self, stream: int) -> int:
        """Bytes that may be sent on ``stream`` in one frame now; 0 also when it is not open any more."""
        connection = self._open.get(stream)
        if connection is None or connection.sent_all:
            return 0
        return min(connection.may_send, MAX_PAYLOAD_BYTES)

    def is_open(self, stream: int) -> bool:
        return stream in self._open

    def send(self, stream: int, data: bytes) -> bytes:
        """``data``, at most :meth:`room` bytes of it, as a frame."""
        if len(data) > self.room(stream):
            raise ValueError(f"{len(data)} bytes for connection {stream}, which has less room")
        self._open[stream].may_send -= len(data)
        return encode(Kind.DATA, stream, data)

    def end(self, stream: int) -> bytes:
        """Nothing more is sent on ``stream``."""
        connection = self._open.get(stream)
        if connection is None or connection.sent_all:
            return b""
        connection.sent_all = True
        self._forget_if_over(stream, connection)
        return encode(Kind.END, stream)

    def give_up(self, stream: int) -> bool:
        """Have nothing to do with ``stream`` any more; whether the runner must be told."""
        if self._open.pop(stream, None) is None:
            return False
        self._given_up.add(stream)
        return True

    def consumed(self, stream: int, count: int) -> bytes:
        """Credit for ``count`` bytes that were passed on, as soon as enough has come together."""
        connection = self._open.get(stream)
        if connection is None or connection.received_all:
            return b""
        connection.owed += count
        if connection.owed < CONNECTION_WINDOW_BYTES // 2:
            return b""
        granted, connection.owed = connection.owed, 0
        connection.may_receive += granted
        return encode_credit(stream, granted)

    def _check_known(self, stream: int) -> None:
        if not FIRST_CONNECTION <= stream < self._next:
            raise ProtocolViolation(f"connection {stream} was never opened")

    def _on_credit(self, connection: _Connection, frame: Frame) -> ConnectionRoom:
        try:
            connection.may_send += frame.credit()
        except struct.error as error:
            raise ProtocolViolation("credit that is no number") from error
        if connection.may_send > _MAX_CREDIT:
            raise ProtocolViolation(f"credit of {connection.may_send} bytes on connection {frame.stream}")
        return ConnectionRoom(frame.stream)

    def _forget_if_over(self, stream: int, connection: _Connection) -> None:
        if connection.is_over:
            del self._open[stream]
