"""Frames: any cut of the bytes gives the same frames, and nothing malformed passes."""

import importlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.stream import frames
from python_exec_sandbox.stream.frames import Frame, FrameDecoder, Kind, encode, encode_credit

payloads = st.binary(min_size=1, max_size=300)
any_frame = st.one_of(
    st.builds(lambda p: Frame(Kind.CONTROL, 0, p), payloads),
    st.builds(lambda s, p: Frame(Kind.DATA, s, p), st.integers(1, 65535), payloads),
    st.builds(lambda s: Frame(Kind.END, s), st.integers(1, 65535)),
    st.builds(
        lambda s, n: Frame(Kind.CREDIT, s, n.to_bytes(4, "big")),
        st.integers(1, 65535),
        st.integers(0, 2**32 - 1),
    ),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


@given(st.lists(any_frame), st.lists(st.integers(0, 10_000)))
def test_any_split_of_the_bytes_gives_the_same_frames(sent: list[Frame], places: list[int]) -> None:
    data = b"".join(encode(f.kind, f.stream, f.payload) for f in sent)
    decoder = FrameDecoder()
    assert [frame for piece in cut(data, places) for frame in decoder.feed(piece)] == sent


@given(st.binary(max_size=4000), st.lists(st.integers(0, 10_000)))
def test_hostile_bytes_give_frames_or_a_violation_at_the_same_place_however_they_are_split(
    data: bytes, places: list[int]
) -> None:
    def decode(pieces: list[bytes]) -> tuple[list[Frame], bool]:
        decoder, got = FrameDecoder(), []
        for byte in b"".join(pieces):
            try:
                got += decoder.feed(bytes([byte]))
            except ProtocolViolation:
                return got, True
        return got, False

    by_byte = decode([data])
    decoder, got, violated = FrameDecoder(), [], False
    for piece in cut(data, places):
        try:
            got += decoder.feed(piece)
        except ProtocolViolation:
            violated = True
            break
    assert violated == by_byte[1]
    assert got == by_byte[0][: len(got)]
    assert violated or got == by_byte[0]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"\x00\x00\x00\x00\x00\x00\x00\x01", "unknown frame"),
        (b"\x09\x00\x00\x01\x00\x00\x00\x01", "unknown frame"),
        (b"\x02\x01\x00\x01\x00\x00\x00\x01", "unknown frame"),
        (b"\x02\x00\x00\x01\x00\x01\x00\x01", "at most 65536"),
        (b"\x02\x00\x00\x01\xff\xff\xff\xff", "at most 65536"),
        (b"\x01\x00\x00\x01\x00\x00\x00\x01", "on stream 1"),
        (b"\x02\x00\x00\x00\x00\x00\x00\x01", "on stream 0"),
        (b"\x01\x00\x00\x00\x00\x00\x00\x00", "CONTROL frame with 0"),
        (b"\x02\x00\x00\x01\x00\x00\x00\x00", "DATA frame with 0"),
        (b"\x03\x00\x00\x01\x00\x00\x00\x01", "END frame with 1"),
        (b"\x04\x00\x00\x01\x00\x00\x00\x03", "CREDIT frame with 3"),
    ],
)
def test_a_bad_header_is_refused_before_its_payload_arrives(header: bytes, why: str) -> None:
    with pytest.raises(ProtocolViolation, match=why):
        FrameDecoder().feed(header)


def test_a_payload_over_the_limit_is_never_encoded() -> None:
    with pytest.raises(ValueError, match="at most"):
        encode(Kind.DATA, 1, b"x" * (frames.MAX_PAYLOAD_BYTES + 1))


def test_a_credit_frame_carries_its_number() -> None:
    [frame] = FrameDecoder().feed(encode_credit(2, 70_000))
    assert frame.credit() == 70_000


@given(st.lists(any_frame, max_size=5), st.lists(st.integers(0, 10_000)))
def test_the_runner_decodes_what_the_server_encodes(sent: list[Frame], places: list[int]) -> None:
    wire = importlib.import_module("runner.wire")
    decoder = wire.Decoder()
    data = b"".join(encode(f.kind, f.stream, f.payload) for f in sent)
    got = [frame for piece in cut(data, places) for frame in decoder.feed(piece)]
    assert got == [(f.kind, f.stream, f.payload) for f in sent]


def test_runner_and_server_agree_on_every_number() -> None:
    wire = importlib.import_module("runner.wire")
    protocol = importlib.import_module("python_exec_sandbox.stream.protocol")
    assert wire.PROTOCOL_VERSION == protocol.PROTOCOL_VERSION
    assert wire.WINDOW_BYTES == protocol.WINDOW_BYTES
    assert wire.MAX_PAYLOAD_BYTES == frames.MAX_PAYLOAD_BYTES
    assert tuple(Kind) == (wire.CONTROL, wire.DATA, wire.END, wire.CREDIT)
    assert (wire.STDIN, wire.STDOUT, wire.STDERR, wire.SCRIPT) == (
        protocol.STDIN,
        protocol.STDOUT,
        protocol.STDERR,
        protocol.SCRIPT,
    )
