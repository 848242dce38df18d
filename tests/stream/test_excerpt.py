from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.stream.capture import Capture
from python_exec_sandbox.stream.excerpt import Cleaned, clean_captured, fit, share


def cleaned(data: bytes, limit: int = 1_000_000) -> Cleaned:
    capture = Capture(limit)
    capture.write(data)
    return clean_captured(capture.captured())


def test_what_fits_is_shown_whole() -> None:
    assert fit(cleaned(b"a\nb\n"), 4) == Cleaned(head="a\nb\n")


def test_a_character_between_head_and_tail_of_a_whole_stream_survives() -> None:
    assert cleaned("aé".encode(), 3).head == "aé"


def test_cuts_fall_on_line_ends_and_are_counted() -> None:
    text = "".join(f"line {n:03}\n" for n in range(100))
    shown = fit(cleaned(text.encode()), 200)
    assert shown.head.startswith("line 000\n")
    assert shown.head.endswith("\n")
    assert shown.tail.startswith("line ")
    assert shown.tail.endswith("line 099\n")
    assert shown.dropped_bytes == 900 - shown.characters
    assert shown.dropped_lines == shown.dropped_bytes // 9


@given(st.text("aé\n", max_size=300), st.integers(0, 120), st.integers(2, 400))
def test_nothing_is_shown_twice_and_the_room_is_kept(text: str, room: int, limit: int) -> None:
    data = text.encode()
    shown = fit(cleaned(data, limit), room)
    assert shown.characters <= max(room, 0)
    assert text.startswith(shown.head)
    assert text.endswith(shown.tail)
    if limit >= len(data):
        assert len((shown.head + shown.tail).encode()) + shown.dropped_bytes == len(data)
        assert (shown.head + shown.tail).count("\n") + shown.dropped_lines == text.count("\n")


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 150))
def test_shares_fill_the_room_and_starve_nobody(first: int, second: int, room: int) -> None:
    one, other = share(first, second, room)
    assert one + other == min(room, first + second)
    assert one >= min(first, room // 2)
    assert other >= min(second, room // 2)
