import ast
import io
import subprocess
import sys
import time
import tokenize
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.source import MAX_SCRIPT_BYTES, from_bytes, from_text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\ufeffprint(1)\n", b"print(1)\n"),
        ("a = 1\r\nb = 2\r\n", b"a = 1\nb = 2\n"),
        ("a = 1\rb = 2\r", b"a = 1\nb = 2\n"),
        ("a = 1\r\r\nb = 2", b"a = 1\n\nb = 2"),
        ("print('\u2028\x0c\x1c')", "print('\u2028\x0c\x1c')".encode()),
    ],
)
def test_marks_and_line_ends_are_normalised_and_nothing_else(text: str, kept: bytes) -> None:
    assert from_text(text).data == kept


def test_text_is_written_in_the_encoding_that_it_declares() -> None:
    source = from_text("# -*- coding: latin-1 -*-\nprint('é')\n")
    assert source.encoding == "iso-8859-1"
    assert source.data == b"# -*- coding: latin-1 -*-\nprint('\xe9')\n"


def test_a_cookie_in_the_second_line_counts_after_a_comment_only() -> None:
    assert from_text("#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n'€'").encoding == "cp1252"
    assert from_text("x = 1\n# coding: cp1252\n'€'").encoding == "utf-8"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_cookie_after_the_second_line_declares_nothing_whatever_the_line_ends(end: str) -> None:
    data = end.join(["a = 1", "b = 2", "# coding: latin-1", "'é'"]).encode()
    assert from_bytes(data).encoding == "utf-8"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        (" \n\t\r\n", ["empty"]),
        ("\ufeff", ["empty"]),
        ("a = 1\nb = '\0'", ["Line 2", "NUL"]),
        ("a = 1\n\nb = '\ud800'", ["Line 3", "U+D800"]),
        ("# coding: no-such-thing\n1", ["encoding", "no-such-thing"]),
        ("# coding: ascii\nx = 1\ny = 'é'", ["Line 3", "ascii", "U+00E9"]),
        ("# coding: rot13\nx = 1", ["rot13"]),
        ("# coding: base64\nx = 1", ["base64"]),
        ("# coding: utf-16\nx = 1", ["utf-16"]),
        ("#" + "x" * MAX_SCRIPT_BYTES, [f"{MAX_SCRIPT_BYTES + 1:,}", f"{MAX_SCRIPT_BYTES:,}"]),
        ("#" + "é" * (MAX_SCRIPT_BYTES // 2), [f"{MAX_SCRIPT_BYTES + 1:,}"]),
    ],
)
def test_what_can_not_be_a_script_is_refused_with_its_place(text: str, words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        from_text(text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("encoding", ["punycode", "IDNA"])
def test_an_encoding_that_would_take_minutes_is_refused_at_once(encoding: str) -> None:
    text = f"# coding: {encoding}\n" + "".join(chr(0x4E00 + n % 9000) for n in range(30_000))
    start = time.process_time()
    with pytest.raises(RequestError, match="can't be used"):
        from_text(text)
    with pytest.raises(RequestError, match="can't be used"):
        from_bytes(text.encode())
    assert time.process_time() - start < 1


def test_other_letters_beside_a_coding_comment_are_read_in_its_encoding() -> None:
    text = "# café coding: latin-1\n'é'"
    assert from_text(text).data == text.encode("latin-1")
    assert from_bytes(text.encode("latin-1")).text == text


def test_all_problems_of_a_text_are_told_at_once() -> None:
    with pytest.raises(RequestError, match=r"(?s)2 problems.*NUL.*U\+DFFF"):
        from_text("a\0\n\udfff")


def test_a_script_of_the_largest_size_is_accepted() -> None:
    assert len(from_text("#" * MAX_SCRIPT_BYTES).data) == MAX_SCRIPT_BYTES


def test_bytes_are_decoded_by_mark_and_cookie() -> None:
    assert from_bytes(b"\xef\xbb\xbfprint(1)\r\n").data == b"print(1)\n"
    assert from_bytes(b"# coding: cp1252\nprint('\x80')").text == "# coding: cp1252\nprint('€')"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a = 1\rb = 2\r\nc = '\xff'", ["not UTF-8", "byte 0xff in line 3"]),
        (b"# caf\xe9\n", ["not UTF-8 (byte 0xe9 in line 1)", "coding: NAME"]),
        (b"# coding: utf-8\n\n'\xe9'", ["Line 3", "0xe9"]),
        (b"```python\nprint(1)\n```\n", ["Markdown fence"]),
        (b"\xef\xbb\xbf# coding: latin-1\n1", ["encoding"]),
        (b"\xff\xfea\0", ["byte 0xff in line 1"]),
        (b"# coding: base64\n1", ["base64"]),
    ],
)
def test_bytes_that_are_not_text_are_refused(data: bytes, words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        from_bytes(data)
    for word in words:
        assert word in str(caught.value)


ENCODINGS = ["utf-8", "latin-1", "cp1252", "koi8-r", "shift_jis", "gb18030", "utf-8-sig", "utf-7", "euc-jp"]


@given(
    encoding=st.sampled_from(ENCODINGS),
    mark=st.booleans(),
    lines=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=20), max_size=5
    ),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_a_reader_of_the_file_finds_the_text_that_was_sent(
    encoding: str, mark: bool, lines: list[str], end: str
) -> None:
    sent = [f"# coding: {encoding}", *lines]
    try:
        source = from_text(("\ufeff" if mark else "") + end.join(sent))
    except RequestError:
        assert encoding not in {"utf-8", "utf-8-sig", "gb18030"}
        return
    found, _ = tokenize.detect_encoding(io.BytesIO(source.data).readline)
    assert source.data.decode(found) == source.text == "\n".join(sent)
    assert from_bytes(source.data) == source


@given(st.text(alphabet="ab\r\n\x0c\x85\u2028", min_size=1).filter(str.strip))
def test_line_numbers_stay_as_python_counts_them(text: str) -> None:
    literal = f"'''{text}'''"
    assert from_text(literal).text.count("\n") == io.StringIO(literal, newline=None).read().count("\n")
    assert ast.literal_eval(from_text(literal).text) == text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("comment", ["# coding: cp1252", "# café, coding: cp1252, €"])
def test_cpython_runs_the_text_in_its_declared_encoding(comment: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_bytes(from_text(f"\ufeff{comment}\r\nprint(ascii('€é'))\r\n").data)
    assert subprocess.check_output([sys.executable, file], timeout=30) == b"'\\u20ac\\xe9'\n"
