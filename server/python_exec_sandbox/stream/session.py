"""The server's half of a conversation with a runner: bytes in, events out, no I/O.

::

    GREETING --hello--> STARTING --ready--> IDLE --start(job)--> BUSY --exit--> ENDED

The session checks the order of everything the runner sends, and its credit: it never has to hold more
output than it granted.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.result import OutputStream, Phase
from python_exec_sandbox.stream import protocol
from python_exec_sandbox.stream.connections import FIRST_CONNECTION, ConnectionEvent, Connections
from python_exec_sandbox.stream.frames import (
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameDecoder,
    Kind,
    encode,
    encode_credit,
)
from python_exec_sandbox.stream.protocol import (
    SCRIPT,
    STDERR,
    STDIN,
    STDOUT,
    WINDOW_BYTES,
    Abort,
    Exited,
    Fault,
    Hello,
    Open,
    PhaseEntered,
    Pong,
    Ready,
)


class State(Enum):
    GREETING = auto()
    STARTING = auto()
    IDLE = auto()
    BUSY = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes the script wrote. Grant as many again once they were consumed."""

    stream: OutputStream
    data: bytes


Event = Hello | Ready | Pong | PhaseEntered | Output | Exited | Fault | ConnectionEvent

_OUTPUTS = {STDOUT: OutputStream.STDOUT, STDERR: OutputStream.STDERR}
_STREAM_IDS = {name: stream for stream, name in _OUTPUTS.items()}
_PHASES = {Phase.WAITING: 0, Phase.INSTALLING: 1, Phase.RUNNING: 2}
GRANT_BYTES = WINDOW_BYTES // 4
"""Credit is given back in portions: one for each line that a script prints would cost more than the line."""

_MAX_CREDIT = 2**31
"""More credit than anyone has data for: a runner that grants it is counting wrong."""


@dataclass(slots=True)
class _Incoming:
    """A stream from the runner: how much it may still send, what was consumed since, whether it ended."""

    credit: int = WINDOW_BYTES
    owed: int = 0
    ended: bool = False


@dataclass(slots=True)
class _Outgoing:
    """A stream to the runner: what is left to send and how much of it may go now."""

    left: memoryview
    credit: int = WINDOW_BYTES
    ended: bool = False


class RunnerSession:
    """One sandbox's conversation, from greeting to the end of its one run."""

    def __init__(self) -> None:
        self.state = State.GREETING
        self._decoder = FrameDecoder()
        self._incoming = {stream: _Incoming() for stream in _OUTPUTS}
        self._outgoing: dict[int, _Outgoing] = {}
        self._phase = Phase.WAITING
        self._pings_open = 0
        self._connections = Connections()
        self._to_send = bytearray()

    def receive(self, data: bytes) -> list[Event]:
        """Events that ``data`` completes. Bytes after the end of the run are ignored.

        Raises:
            ProtocolViolation: the runner broke the protocol; the session must not be used further.
        """
        if self.has_ended():
            return []
        events: list[Event] = []
        for frame in self._decoder.feed(data):
            event = self._on_frame(frame)
            if event is not None:
                events.append(event)
            if self.has_ended():
                break
        return events

    def has_ended(self) -> bool:
        """Whether the runner has said its last word."""
        return self.state is State.ENDED

    def take(self) -> bytes:
        """Bytes to send now; each is given once."""
        self._fill()
        data = bytes(self._to_send)
        self._to_send.clear()
        return data

    def ping(self, n: int) -> None:
        self._pings_open += 1
        self._control(protocol.ping(n))

    def start(self, job: Job) -> None:
        """Queue the job, its script and its stdin."""
        if self.state is not State.IDLE:
            raise RuntimeError(f"a job in state {self.state.name}")
        self.state = State.BUSY
        self._control(protocol.job(job))
        self._outgoing[SCRIPT] = _Outgoing(memoryview(job.script))
        self._outgoing[STDIN] = _Outgoing(memoryview(job.stdin))

    def stop(self) -> None:
        """Ask the runner to end the run now; without effect when there is none."""
        if self.state is State.BUSY:
            self._control(protocol.stop())

    def grant(self, stream: OutputStream, count: int) -> None:
        """Let the script write ``count`` more bytes to ``stream``, as soon as enough has come together."""
        incoming = self._incoming[_STREAM_IDS[stream]]
        incoming.owed += count
        if incoming.owed < GRANT_BYTES:
            return
        incoming.credit += incoming.owed
        if not incoming.ended and self.state is State.BUSY:
            self._to_send += encode_credit(_STREAM_IDS[stream], incoming.owed)
        incoming.owed = 0

    def connection_room(self, stream: int) -> int | None:
        """Bytes that :meth:`send_on` takes now; ``None`` when the connection is not open any more."""
        return self._connections.room(stream) if self._connections.is_open(stream) else None

    def send_on(self, stream: int, data: bytes) -> None:
        """Bytes for the script, at most :meth:`connection_room`."""
        self._to_send += self._connections.send(stream, data)

    def end_connection(self, stream: int) -> None:
        """The script is sent no more on it."""
        self._to_send += self._connections.end(stream)

    def abort_connection(self, stream: int) -> None:
        """Give it up, both ways; without effect when it is over."""
        if self._connections.give_up(stream):
            self._control(protocol.abort(stream))

    def grant_on(self, stream: int, count: int) -> None:
        """``count`` bytes of the script's were passed on: it may send as many more."""
        self._to_send += self._connections.consumed(stream, count)

    def _control(self, payload: bytes) -> None:
        self._to_send += encode(Kind.CONTROL, 0, payload)

    def _fill(self) -> None:
        for stream, out in self._outgoing.items():
            while out.left and out.credit:
                piece = out.left[: min(MAX_PAYLOAD_BYTES, out.credit)]
                out.left = out.left[len(piece) :]
                out.credit -= len(piece)
                self._to_send += encode(Kind.DATA, stream, bytes(piece))
            if not out.left and not out.ended:
                out.ended = True
                self._to_send += encode(Kind.END, stream)

    def _on_frame(self, frame: Frame) -> Event | None:
        if frame.stream >= FIRST_CONNECTION:
            return self._connections.receive(frame)
        match frame.kind:
            case Kind.CONTROL:
                return self._on_message(protocol.parse(frame.payload))
            case Kind.DATA:
                return self._on_data(frame)
            case Kind.END:
                self._open_incoming(frame.stream).ended = True
                return None
            case Kind.CREDIT:
                self._on_credit(frame)
                return None

    def _open_incoming(self, stream: int) -> _Incoming:
        incoming = self._incoming.get(stream)
        if incoming is None or incoming.ended or self._phase is not Phase.RUNNING:
            raise ProtocolViolation(f"output on stream {stream}, which is not open")
        return incoming

    def _on_data(self, frame: Frame) -> Output:
        incoming = self._open_incoming(frame.stream)
        if len(frame.payload) > incoming.credit:
            raise ProtocolViolation(
                f"{len(frame.payload)} bytes on stream {frame.stream}, {incoming.credit} were granted"
            )
        incoming.credit -= len(frame.payload)
        return Output(_OUTPUTS[frame.stream], frame.payload)

    def _on_credit(self, frame: Frame) -> None:
        try:
            out = self._outgoing[frame.stream]
            out.credit += frame.credit()
        except (KeyError, struct.error) as error:
            raise ProtocolViolation(f"credit for stream {frame.stream}, which is not open") from error
        if out.credit > _MAX_CREDIT:
            raise ProtocolViolation(f"credit of {out.credit} bytes on stream {frame.stream}")

    def _on_message(self, message: protocol.Message) -> Event | None:
        if isinstance(message, Open | Abort):
            return self._on_connection(message)
        match message:
            case Hello():
                self._move(State.GREETING, State.STARTING, "hello")
            case Ready():
                self._move(State.STARTING, State.IDLE, "ready")
            case Pong():
                if not self._pings_open:
                    raise self._out_of_order("pong")
                self._pings_open -= 1
            case PhaseEntered(phase):
                forward = _PHASES[phase] > _PHASES[self._phase]
                if self.state is not State.BUSY or not forward:
                    raise self._out_of_order(f"phase {phase}")
                self._phase = phase
            case Exited():
                self._move(State.BUSY, State.ENDED, "exit", self._outputs_ended)
            case Fault():
                self.state = State.ENDED
        return message

    def _on_connection(self, message: Open | Abort) -> Event | None:
        if isinstance(message, Abort):
            return self._connections.abort_received(message.stream)
        if self.state is not State.BUSY or self._phase is not Phase.RUNNING:
            raise self._out_of_order("open")
        return self._connections.open(message.stream)

    def _outputs_ended(self) -> bool:
        """Once the script ran both outputs must have ended; before that there can't be any."""
        return self._phase is not Phase.RUNNING or all(i.ended for i in self._incoming.values())

    def _move(self, old: State, new: State, word: str, also: Callable[[], bool] = lambda: True) -> None:
        if self.state is not old or not also():
            raise self._out_of_order(word)
        self.state = new

    def _out_of_order(self, word: str) -> ProtocolViolation:
        return ProtocolViolation(f"{word!r} out of order (state {self.state.name}, phase {self._phase})")
