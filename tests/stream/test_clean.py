import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.stream.clean import clean, clean_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\n", "plain\n"),
        ("tab\tünïcödé 👩‍👩‍👧 \u200b\n".encode(), "tab\tünïcödé 👩‍👩‍👧 \u200b\n"),
        (b"bad \xff\xfe \xc3", "bad \ufffd\ufffd \ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx\x1b[K", "red x"),
        (b"\x1b]0;title\x07a\x1b]8;;https://x.org\x1b\\link\x1b]8;;\x1b\\", "alink"),
        (b"\x1bPq#0;1\x1b\\sixel \x1b_apc\x1b\\!", "sixel !"),
        (b"\x1b(B\x1b7\x1b=x\x1bM", "x"),
        ("\x9b31mred \x9d0;t\x9cx".encode(), "red x"),
        (b"\x1b]0;never closed\nnext", "\\x1b]0;never closed\nnext"),
        (b"\x1b", "\\x1b"),
        (b"\x1b\x1b[0m[31m", "\\x1b[31m"),
        (b"nul \x00 ff \x0c vt \x0b del \x7f", "nul \\x00 ff \\x0c vt \\x0b del \\x7f"),
        (b"ding\x07 spin|\x08/", "ding spin|/"),
        ("a\u202eb\u2066c\u200f\u2028".encode(), "a\\u202eb\\u2066c\\u200f\\u2028"),
        ("\U000e0041".encode(), "\\U000e0041"),
        (b"a\r\nb\r\r\nc", "a\nb\nc"),
        (b" 10%\r 50%\r100%\ndone\n", "100%\ndone\n"),
        (b"working\r", "working"),
        (b"\x1b[32m 10%\x1b[0m\r\x1b[K 20%\x1b[0m\r\nx", " 20%\nx"),
        (b"\r\r\r", ""),
    ],
)
def test_output_becomes_readable_text(data: bytes, text: str) -> None:
    assert clean(data) == text


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_character_that_a_cut_went_through_is_left_out(cut: int) -> None:
    face = "😀".encode()
    assert clean(b"a" + face[:cut], ends_inside=True) == "a"
    assert clean(face[cut:] + b"b", starts_inside=True) == "b"


def test_whole_characters_at_a_cut_stay() -> None:
    assert clean("é😀".encode(), starts_inside=True, ends_inside=True) == "é😀"
    assert clean(b"\x80\x80\x80\x80a", starts_inside=True) == "\ufffda"
    assert clean(b"", starts_inside=True, ends_inside=True) == ""


@pytest.mark.parametrize("sequence", ["\x1b", "\x1b[", "\x1b[1;3", "\x1b]0;tit", "\x1b("])
def test_a_sequence_that_a_cut_went_through_is_left_out(sequence: str) -> None:
    assert clean(b"a" + sequence.encode(), ends_inside=True) == "a"


def test_text_with_lone_surrogates_becomes_encodable() -> None:
    assert clean_text("x\udcff\ud800.txt\x1b[2J") == "x\ufffd\ufffd.txt"


HOSTILE = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.text(max_size=6).map(str.encode),
        st.sampled_from(
            [
                b"\x1b",
                b"\x1b[",
                b"\x1b]",
                b"\x1bP",
                b"\x9b",
                b"\xc2\x9b",
                b"\xc2\x9d",
                b"\x07",
                b"\x1b\\",
                b"\r",
                b"\n",
                b"\r\n",
                b"0;",
                b"m",
                b"\xed\xa0\x80",
                "\u202e".encode(),
                b"\x08",
            ]
        ),
    ),
    max_size=20,
).map(b"".join)


@given(HOSTILE, st.booleans(), st.booleans())
def test_whatever_comes_the_text_can_be_encoded_and_has_no_controls(
    data: bytes, start: bool, end: bool
) -> None:
    text = clean(data, starts_inside=start, ends_inside=end)
    assert json.loads(json.dumps(text).encode()) == text
    assert text.encode().decode() == text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


@given(HOSTILE)
def test_cleaning_again_changes_nothing(data: bytes) -> None:
    once = clean(data)
    assert clean(once.encode()) == once
    assert clean_text(once) == once


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]) | st.sampled_from("\n\t")))
def test_ordinary_text_is_not_touched(text: str) -> None:
    assert clean(text.encode()) == text


@given(st.lists(st.text("abc %", max_size=5), min_size=1, max_size=6))
def test_an_overprinted_line_keeps_its_last_state(states: list[str]) -> None:
    assert clean(("\r".join([*states, "end"]) + "\n").encode()) == "end\n"


@pytest.mark.parametrize(
    "piece",
    [
        "\x1b",
        "\x1b[",
        "\x1b[0",
        "0",
        "\x1b]",
        "\x1b]x",
        "\x9d",
        "\x9dx",
        "\x1bP",
        "\x9b1",
        "\x1b(",
        "\r",
        "x\r",
        "\x00",
        "\x1b[ ",
    ],
)
def test_hostile_output_takes_time_proportional_to_its_length(piece: str) -> None:
    data = ("\x1b]" + piece * (1_000_000 // len(piece)) + "\r").encode()
    began = time.perf_counter()
    clean(data, starts_inside=True, ends_inside=True)
    assert time.perf_counter() - began < 10  # square time would take an hour
