import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.stream.capture import Capture, Captured


def capture(limit: int, *chunks: bytes) -> Captured:
    kept = Capture(limit)
    for chunk in chunks:
        kept.write(chunk)
    return kept.captured()


def test_a_stream_within_the_limit_is_kept_whole() -> None:
    kept = capture(10, b"abc", b"", b"defghij")
    assert kept.head + kept.tail == b"abcdefghij"
    assert (kept.total_bytes, kept.dropped_bytes, kept.dropped_lines) == (10, 0, 0)


def test_head_and_tail_are_kept_of_a_longer_one_and_the_gap_is_counted() -> None:
    kept = capture(6, b"one\ntwo\n", b"three\nfour")
    assert kept == Captured(head=b"one", tail=b"our", total_bytes=18, dropped_bytes=12, dropped_lines=3)


def test_what_was_captured_does_not_change_by_later_writes() -> None:
    kept = Capture(4)
    kept.write(b"abcd")
    before = kept.captured()
    kept.write(b"efgh")
    assert before == Captured(head=b"ab", tail=b"cd", total_bytes=4)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_the_smallest_limits_hold(limit: int) -> None:
    kept = capture(limit, b"a\nb\nc")
    assert len(kept.head + kept.tail) == limit
    assert kept.dropped_bytes == 5 - limit


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        Capture(-1)


@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\x01", b"\n")), max_size=20), st.integers(0, 40)
)
def test_any_split_of_a_stream_gives_what_slicing_gives(chunks: list[bytes], limit: int) -> None:
    whole = b"".join(chunks)
    head = whole[: limit // 2]
    rest = whole[len(head) :]
    room = limit - limit // 2
    tail = rest[max(0, len(rest) - room) :]
    dropped = rest[: len(rest) - len(tail)]
    assert capture(limit, *chunks) == Captured(
        head=head,
        tail=tail,
        total_bytes=len(whole),
        dropped_bytes=len(dropped),
        dropped_lines=dropped.count(b"\n"),
    )


@pytest.mark.parametrize("size", [1, 100, 64 * 1024, 300_000])
def test_memory_stays_within_the_limit_whatever_is_written(size: int) -> None:
    limit = 200_000
    chunk = b"x" * (size - 1) + b"\n"
    kept = Capture(limit)
    tracemalloc.start()
    try:
        for _ in range(3_000_000 // size if size > 1 else 400_000):
            kept.write(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.captured().dropped_bytes > 0
    assert peak < 2 * limit + 2 * size
