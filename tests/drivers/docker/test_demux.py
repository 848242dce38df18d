import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.drivers.docker.demux import Demultiplexer, MalformedStream, Source
from tests.support.fake_engine import frame
from tests.support.splits import splits

frames = st.lists(st.tuples(st.sampled_from(Source), st.binary(max_size=40)), max_size=12)


def per_source(pieces: list[tuple[Source, bytes]]) -> dict[Source, bytes]:
    return {source: b"".join(data for of, data in pieces if of is source) for source in Source}


@given(st.data(), frames)
def test_any_split_gives_the_same_bytes_per_stream(
    data: st.DataObject, sent: list[tuple[Source, bytes]]
) -> None:
    stream = b"".join(frame(source, payload) for source, payload in sent)
    demux = Demultiplexer()
    pieces = [piece for part in data.draw(splits(stream)) for piece in demux.feed(part)]
    assert per_source(pieces) == per_source(sent)
    assert all(payload for _, payload in pieces)
    assert demux.between_frames


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_hostile_bytes_are_refused_or_passed_on_but_never_kept(parts: list[bytes]) -> None:
    demux = Demultiplexer()
    passed = 0
    try:
        for part in parts:
            passed += sum(len(piece) for _, piece in demux.feed(part))
            assert len(demux._header) < 8
    except MalformedStream:
        pass
    assert passed <= sum(map(len, parts))


@pytest.mark.parametrize("header", [b"\4\0\0\0\0\0\0\1", b"\1\1\0\0\0\0\0\1", b"HTTP/1.1"])
def test_a_header_that_no_engine_sends_is_an_error(header: bytes) -> None:
    with pytest.raises(MalformedStream, match=header.hex()):
        list(Demultiplexer().feed(header))


def test_a_frame_that_announces_four_gigabytes_claims_no_memory() -> None:
    demux = Demultiplexer()
    assert list(demux.feed(b"\1\0\0\0\xff\xff\xff\xff" + b"abc")) == [(Source.STDOUT, b"abc")]
    assert not demux.between_frames
