"""The two forms of a script: the file it is, and the bytes CPython reads while it opens it.

CPython waits in its own ``open`` of the script, a FIFO. A FIFO can't seek, and for a source encoding that
isn't spelled ``utf-8`` CPython reopens the file. So the FIFO carries the same text in UTF-8 with the
declaration blanked out; the file itself, which tracebacks show, keeps it. Lines and columns are the same.
"""

import re

_COOKIE = re.compile(rb"^[ \t\f]*#.*?(coding[:=][ \t]*([-\w.]+))")  # PEP 263
_BLANK = re.compile(rb"^[ \t\f]*(?:#.*)?$")


def wire_form(source: bytes) -> bytes:
    """What is written into the FIFO for the file ``source``, whose text is valid in its own encoding."""
    start = 0
    for line in source.split(b"\n", 2)[:2]:
        match = _COOKIE.match(line)
        if match:
            return _without(source, start + match.start(1), start + match.end(1), match[2].decode("ascii"))
        if not _BLANK.match(line.rstrip(b"\r")):
            break
        start += len(line) + 1
    return source


def _without(source: bytes, start: int, end: int, encoding: str) -> bytes:
    if encoding.lower().replace("_", "-") == "utf-8":
        return source
    blanked = source[:start] + b" " * (end - start) + source[end:]
    return blanked.decode(encoding).encode()
