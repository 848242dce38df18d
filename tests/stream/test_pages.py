import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.stream.excerpt import Cleaned
from python_exec_sandbox.stream.pages import page


@given(st.text(max_size=60), st.text(max_size=60), st.integers(0, 9), st.integers(1, 25))
def test_pages_one_after_the_other_are_the_whole_text_and_show_the_gap_once(
    head: str, tail: str, dropped: int, limit: int
) -> None:
    kept = Cleaned(head, tail, dropped_bytes=dropped)
    text, gaps, offset = "", [], 0
    while True:
        part = page(kept, offset, limit)
        assert (part.start, part.total) == (offset, len(head + tail))
        text += part.text
        gaps += [part.gap] if part.gap is not None else []
        offset = part.end
        if part.is_last:
            break
    assert text == head + tail
    assert gaps == ([len(head)] if dropped else [])


def test_a_negative_offset_counts_from_the_end() -> None:
    assert page(Cleaned("abcdef"), -2, 100).text == "ef"
    assert page(Cleaned("abcdef"), -6, 2).text == "ab"


@pytest.mark.parametrize("offset", [6, 7, 10**12, -7])
def test_an_offset_outside_of_the_text_is_refused(offset: int) -> None:
    with pytest.raises(ValueError):
        page(Cleaned("abcdef"), offset, 10)


def test_of_nothing_the_beginning_can_be_read() -> None:
    part = page(Cleaned(""), 0, 10)
    assert (part.text, part.is_last) == ("", True)
