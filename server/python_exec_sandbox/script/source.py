"""A script's text, and the bytes of the file that CPython reads as that same text.

Line ends become line feeds and a byte order mark goes: neither moves a line, and CPython does the same
when it reads a file. The declared encoding (PEP 263) is honoured, because CPython will honour it.
"""

import codecs
import io
import re
import tokenize
from dataclasses import dataclass

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.problems import Problems

MAX_SCRIPT_BYTES = 10 * 1024 * 1024
"""Larger texts are data; nobody writes ten megabytes of code by hand or by model."""

BOM = "\ufeff"

_FENCE = "```"
"""No Python can begin with it; to strip it silently would move every line."""

_LINE_END = re.compile(r"\r\n?")
_LINE_END_BYTES = re.compile(rb"\r\n?")
_TWO_LINES = re.compile(rb"[^\r\n]*+(?:\r\n?|\n)?[^\r\n]*+(?:\r\n?|\n)?")
_COOKIE = re.compile(rb"^[ \t\f]*+#[^\r\n]*?coding[:=][ \t]*+[-\w.]+[^\r\n]*+", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")

_NOT_ASCII = bytes(range(128)) + b"?" * 128

_SLOW_ENCODINGS = frozenset({"idna", "punycode"})
"""Meant for names of hosts: their time grows with the square of a text's length, to minutes for 32 KiB."""


@dataclass(frozen=True, slots=True)
class Source:
    """``text`` with line feeds only; ``data`` is the same text in ``encoding``."""

    text: str
    data: bytes
    encoding: str


def from_text(text: str) -> Source:
    """The file for a script that arrived as text.

    Raises:
        RequestError: it is empty, too large, has NUL bytes or lone surrogates, or can't be written in
            the encoding it declares.
    """
    _check_size(len(text))
    text = _normalised(text)
    problems = Problems()
    if not text.strip():
        problems.add("The script is empty. Send the Python code that is to run.")
    elif text.lstrip().startswith(_FENCE):
        problems.add(
            f"The script begins with a Markdown fence ({_FENCE}). Send the code alone, without the lines of {_FENCE} "
            "around it."
        )
    if (at := text.find("\0")) >= 0:
        problems.add(
            f"Line {_line(text, at)} of the script has a NUL byte, which Python refuses in source code. "
            "Write it as \\0 inside a string literal."
        )
    if found := _SURROGATE.search(text):
        problems.add(
            f"Line {_line(text, found.start())} of the script has a lone surrogate "
            f"(U+{ord(found.group()):04X}), which no file can hold. Send the whole character, or write it "
            f"as \\u{ord(found.group()):04x} inside a string literal."
        )
    problems.raise_any()
    encoding = _declared(text.encode())
    data = _encode(text, encoding)
    _check_size(len(data))
    return Source(text=text, data=data, encoding=encoding)


def from_bytes(data: bytes) -> Source:
    """The file for a script that was read from a file, decoded the way CPython decodes it.

    Raises:
        RequestError: as :func:`from_text`, or the bytes aren't text in the encoding they declare.
    """
    _check_size(len(data))
    if wrong := why_not_utf8(data):
        raise RequestError(f"The script {wrong}")
    encoding = _declared(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise RequestError(
            f"Line {_line_of_byte(data, error.start)} of the script is not valid {encoding} (byte 0x{data[error.start]:02x}). "
            "Save the file as UTF-8, or declare its encoding in the first line: # -*- coding: NAME -*-"
        ) from error
    except (LookupError, ValueError) as error:
        raise _unusable(encoding) from error
    return from_text(text)


def readable(script: str | bytes) -> str:
    """The lines of what is no script, as far as they can be read: to find what else is wrong with it."""
    if len(script) > MAX_SCRIPT_BYTES:
        return ""
    text = script.decode(errors="replace") if isinstance(script, bytes) else script
    return _IMPOSSIBLE.sub("\ufffd", _normalised(text))


def why_not_utf8(data: bytes) -> str:
    """What is wrong with ``data`` and what to do, as the rest of a sentence, when it declares no encoding
    and so must be UTF-8, but isn't; else empty."""
    if _COOKIE.search(_first_two_lines(data)):
        return ""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return (
            f"is not UTF-8 (byte 0x{data[error.start]:02x} in line {_line_of_byte(data, error.start)}). Save it as UTF-8, "
            "or declare its encoding in the first line: # -*- coding: NAME -*-"
        )
    return ""


def _normalised(text: str) -> str:
    return _LINE_END.sub("\n", text.removeprefix(BOM))


def _check_size(size: int) -> None:
    if size > MAX_SCRIPT_BYTES:
        raise RequestError(
            f"The script has {size:,} bytes; at most {MAX_SCRIPT_BYTES:,} (10 MiB) are accepted. "
            "Let the script read or generate its data instead of carrying it."
        )


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _line_of_byte(data: bytes, at: int) -> int:
    return _LINE_END_BYTES.sub(b"\n", data[:at]).count(b"\n") + 1


def _first_two_lines(data: bytes) -> bytes:
    """With line feeds only."""
    lines = _TWO_LINES.match(data)
    return _LINE_END_BYTES.sub(b"\n", lines[0] if lines else b"")


def _declared(data: bytes) -> str:
    """The encoding named by a byte order mark or a coding comment in the first two lines, or UTF-8."""
    # CPython reads a coding comment as bytes; the function asked here insists that its line is UTF-8.
    head = _COOKIE.sub(lambda line: line[0].translate(_NOT_ASCII), _first_two_lines(data))
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(head).readline)[0]
    except (SyntaxError, LookupError) as error:  # LookupError: a codec that isn't of text, from 3.14 on
        raise RequestError(
            f"The encoding declared in the first two lines of the script can't be used ({error}). "
            "Remove the coding comment: the script is sent as UTF-8."
        ) from error
    if codecs.lookup(encoding).name in _SLOW_ENCODINGS:
        raise _unusable(encoding)
    return encoding


def _encode(text: str, encoding: str) -> bytes:
    """``text`` in ``encoding``, if a reader of the result finds that encoding and the same text in it."""
    try:
        data = text.encode(encoding)
        faithful = _declared(data) == encoding and data.decode(encoding) == text
    except UnicodeEncodeError as error:
        raise RequestError(
            f"Line {_line(text, error.start)} of the script has a character that the encoding {encoding}, "
            f"declared in its first two lines, doesn't know (U+{ord(text[error.start]):04X}). "
            "Remove the coding comment: the script is sent as UTF-8."
        ) from error
    except (LookupError, ValueError, RequestError) as error:
        raise _unusable(encoding) from error
    if not faithful:
        raise _unusable(encoding)
    return data


def _unusable(encoding: str) -> RequestError:
    return RequestError(
        f"The encoding {encoding}, declared in the first two lines of the script, can't be used for Python "
        "source. Remove the coding comment: the script is sent as UTF-8."
    )
