"""The books of connections: credit is kept both ways, and no order of frames from the runner breaks them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.stream.connections import (
    CONNECTION_WINDOW_BYTES,
    FIRST_CONNECTION,
    MAX_CONNECTIONS,
    MAX_OPEN_CONNECTIONS,
    ConnectionAborted,
    ConnectionData,
    ConnectionOpened,
    ConnectionRoom,
    Connections,
)
from python_exec_sandbox.stream.frames import MAX_PAYLOAD_BYTES, Frame, FrameDecoder, Kind, encode_credit

A = FIRST_CONNECTION
FULL = b"x" * MAX_PAYLOAD_BYTES


def one() -> Connections:
    books = Connections()
    assert books.open(A) == ConnectionOpened(A)
    return books


def data(payload: bytes, stream: int = A) -> Frame:
    return Frame(Kind.DATA, stream, payload)


def credit(count: int, stream: int = A) -> Frame:
    return Frame(Kind.CREDIT, stream, count.to_bytes(4, "big"))


END = Frame(Kind.END, A)


def test_bytes_and_the_end_arrive() -> None:
    books = one()
    assert books.receive(data(b"abc")) == ConnectionData(A, b"abc")
    assert books.receive(END) == ConnectionData(A, b"")
    assert books.room(A) == MAX_PAYLOAD_BYTES
    assert books.end(A)
    assert not books.is_open(A)


@pytest.mark.parametrize("stream", [0, 4, FIRST_CONNECTION - 1, FIRST_CONNECTION + 1, FIRST_CONNECTION + 100])
def test_connections_are_opened_in_their_order(stream: int) -> None:
    with pytest.raises(ProtocolViolation):
        Connections().open(stream)


def test_one_id_is_not_used_twice() -> None:
    books = one()
    books.give_up(A)
    with pytest.raises(ProtocolViolation):
        books.open(A)


def test_only_so_many_are_open_at_once_and_in_all() -> None:
    books = Connections()
    for stream in range(A, A + MAX_OPEN_CONNECTIONS):
        books.open(stream)
    with pytest.raises(ProtocolViolation, match="at once"):
        books.open(A + MAX_OPEN_CONNECTIONS)
    for stream in range(A, A + MAX_OPEN_CONNECTIONS):
        books.give_up(stream)
    for stream in range(A + MAX_OPEN_CONNECTIONS, A + MAX_CONNECTIONS):
        books.open(stream)
        books.give_up(stream)
    with pytest.raises(ProtocolViolation):
        books.open(A + MAX_CONNECTIONS)


def test_more_than_was_granted_is_a_violation_and_credit_comes_in_portions() -> None:
    books = one()
    for _ in range(CONNECTION_WINDOW_BYTES // MAX_PAYLOAD_BYTES):
        books.receive(data(FULL))
    assert books.consumed(A, 10) == b""
    assert books.consumed(A, MAX_PAYLOAD_BYTES) == encode_credit(A, MAX_PAYLOAD_BYTES + 10)
    books.receive(data(FULL))
    books.receive(data(b"x" * 10))
    with pytest.raises(ProtocolViolation):
        books.receive(data(b"x"))


def test_nothing_is_sent_beyond_the_runners_credit() -> None:
    books = one()
    for _ in range(CONNECTION_WINDOW_BYTES // MAX_PAYLOAD_BYTES):
        books.send(A, FULL)
    assert books.room(A) == 0
    with pytest.raises(ValueError, match="room"):
        books.send(A, b"x")
    assert books.receive(credit(5)) == ConnectionRoom(A)
    assert books.room(A) == 5


@pytest.mark.parametrize(
    "frame",
    [data(b"x"), END, data(b"x", A + 1), credit(1, A + 1), Frame(Kind.CREDIT, A, b"xx")],
    ids=["data after the end", "a second end", "unknown", "credit for unknown", "no number"],
)
def test_what_breaks_the_books_is_a_violation(frame: Frame) -> None:
    books = one()
    books.receive(END)
    with pytest.raises(ProtocolViolation):
        books.receive(frame)


def test_credit_beyond_all_reason_is_a_violation() -> None:
    books = one()
    with pytest.raises(ProtocolViolation):
        books.receive(credit(2**32 - 1))


def test_frames_that_cross_our_abort_are_no_news() -> None:
    books = one()
    assert books.give_up(A)
    assert not books.give_up(A)
    assert books.receive(data(b"late")) is None
    assert books.receive(END) is None
    assert books.abort_received(A) is None
    assert books.room(A) == 0
    assert books.end(A) == b""


def test_an_abort_of_the_runners_is_news_once() -> None:
    books = one()
    assert books.abort_received(A) == ConnectionAborted(A)
    assert books.abort_received(A) is None
    with pytest.raises(ProtocolViolation):
        books.receive(data(b"after its own abort"))
    with pytest.raises(ProtocolViolation):
        books.abort_received(A + 1)


class Playing:
    """The books and, beside them, plain sums of what went each way."""

    def __init__(self) -> None:
        self.books = Connections()
        self.sent = Counter[int]()
        self.received = Counter[int]()
        self.may_send = Counter[int]()
        self.may_receive = Counter[int]()

    def opens(self, stream: int, size: int) -> None:
        self.books.open(stream)

    def aborts(self, stream: int, size: int) -> None:
        self.books.abort_received(stream)

    def sends(self, stream: int, size: int) -> None:
        if self.books.receive(data(b"d" * size, stream)) is not None:
            self.received[stream] += size

    def ends(self, stream: int, size: int) -> None:
        self.books.receive(Frame(Kind.END, stream))

    def grants(self, stream: int, size: int) -> None:
        if self.books.receive(credit(size, stream)) is not None:
            self.may_send[stream] += size

    def we_give_up(self, stream: int, size: int) -> None:
        self.books.give_up(stream)

    def we_consume(self, stream: int, size: int) -> None:
        for frame in FrameDecoder().feed(self.books.consumed(stream, size)):
            self.may_receive[stream] += frame.credit()

    def we_send(self, stream: int, size: int) -> None:
        count = min(size, self.books.room(stream))
        if count:
            self.books.send(stream, b"s" * count)
            self.sent[stream] += count

    def we_end(self, stream: int, size: int) -> None:
        self.books.end(stream)


STEPS = st.sampled_from([name for name in vars(Playing) if not name.startswith("_")])


@given(st.lists(st.tuples(STEPS, st.integers(A - 1, A + 3), st.integers(1, MAX_PAYLOAD_BYTES)), max_size=60))
def test_whatever_the_runner_does_the_windows_hold(steps: list[tuple[str, int, int]]) -> None:
    playing = Playing()
    for step, stream, size in steps:
        try:
            getattr(playing, step)(stream, size)
        except ProtocolViolation:
            break
        for one_stream, count in playing.sent.items():
            assert count <= CONNECTION_WINDOW_BYTES + playing.may_send[one_stream]
        for one_stream, count in playing.received.items():
            assert count <= CONNECTION_WINDOW_BYTES + playing.may_receive[one_stream]
