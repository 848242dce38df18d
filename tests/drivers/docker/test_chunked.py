import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.drivers.docker.chunked import ChunkDecoder
from python_exec_sandbox.stream.json_lines import JsonLines
from tests.support.splits import splits


def coded(chunks: list[bytes]) -> bytes:
    return b"".join(b"%X\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks if chunk) + b"0\r\n\r\n"


@given(st.data(), st.lists(st.binary(max_size=40), max_size=8))
def test_any_split_gives_the_same_content(data: st.DataObject, chunks: list[bytes]) -> None:
    decoder = ChunkDecoder()
    parts = data.draw(splits(coded(chunks)))
    assert b"".join(decoder.feed(part) for part in parts) == b"".join(chunks)
    assert decoder.ended


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_hostile_bytes_are_refused_or_decoded_but_keep_nothing_large(parts: list[bytes]) -> None:
    decoder = ChunkDecoder()
    try:
        for part in parts:
            decoder.feed(part)
            assert len(decoder._line) <= 128
    except OSError:
        pass


@pytest.mark.parametrize("text", [b"xyz\r\n", b"\r\n", b"123456789\r\n", b"-1\r\n", b"5" * 200])
def test_what_is_no_size_is_an_error(text: bytes) -> None:
    with pytest.raises(OSError, match="chunked coding"):
        ChunkDecoder().feed(text)


def test_extensions_of_a_chunk_are_passed_over() -> None:
    assert ChunkDecoder().feed(b"3;name=value\r\nabc\r\n") == b"abc"


def test_lines_become_objects_and_other_lines_are_passed_over() -> None:
    lines = JsonLines()
    assert list(lines.feed(b'{"a": 1}\n[2]\nnot json\n{"b"')) == [{"a": 1}]
    assert list(lines.feed(b": 3}\n")) == [{"b": 3}]


def test_a_line_without_end_is_an_error() -> None:
    with pytest.raises(OSError, match="more than 1048576 bytes"):
        list(JsonLines().feed(b"x" * (1024 * 1024 + 1)))
