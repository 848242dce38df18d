"""What CPython reads through the FIFO is the text of the file, whatever encoding the file declares."""

import tokenize
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.source import wire_form

COOKIES = [
    "# -*- coding: {} -*-",
    "#!/usr/bin/python\n# vim: set fileencoding={} :",
    "# coding={}",
    "\n#coding: {}",
]


@pytest.mark.parametrize("cookie", COOKIES)
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf8", "UTF_8", "koi8-r", "utf-8"])
def test_the_wire_carries_the_same_text_in_utf_8(cookie: str, encoding: str) -> None:
    sample = "я" if encoding == "koi8-r" else "é"
    text = cookie.format(encoding) + f"\nprint('{sample}')\n"
    wire = wire_form(text.encode(encoding)).decode()
    assert wire.splitlines()[-1] == f"print('{sample}')"
    assert [len(line) for line in wire.splitlines()] == [len(line) for line in text.splitlines()]


@pytest.mark.parametrize("encoding", ["latin-1", "utf8", "cp1252"])
def test_the_declaration_is_gone_from_the_wire_so_that_nothing_seeks(encoding: str) -> None:
    wire = wire_form(f"# coding: {encoding}\n1\n".encode())
    assert tokenize.detect_encoding(BytesIO(wire).readline)[0] == "utf-8"
    assert b"coding" not in wire


@pytest.mark.parametrize(
    "text",
    [
        "print(1)\n# coding: latin-1\n",
        "'''\n# coding: latin-1\n'''\n",
        "x = 1 # coding: latin-1\n",
        "\n\n# coding: latin-1\n",
        "# -*- coding: utf-8 -*-\nprint('é')\n",
        "",
    ],
)
def test_a_text_without_a_declaration_that_counts_is_sent_as_it_is(text: str) -> None:
    assert wire_form(text.encode()) == text.encode()


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=200))
def test_any_utf_8_text_without_a_declaration_is_untouched(text: str) -> None:
    source = ("pass\n" + text).encode()
    assert wire_form(source) == source
