r"""Makes what a script printed fit for a model and for JSON.

Invalid UTF-8 becomes U+FFFD; terminal sequences go; a line that was overprinted with carriage returns
(progress bars) keeps its last state; whatever else is invisible or changes the order of text is shown as
an escape such as ``\x00`` or ``\u202e``. Each step is linear: a repeat stops at whatever could start
the same pattern again, and doesn't give back what it took.
"""

import re

_TERMINAL = re.compile(
    r"""
      (?:\x1b\[|\x9b) [0-?]*+ [ -/]*+ [@-~]            # CSI: colours, cursor moves (ECMA-48, 5.4)
    | (?:\x1b\]|\x9d) [^\x00-\x1f\x7f-\x9f]*+ (?:\x07|\x1b\\|\x9c)  # OSC: titles, links
    | (?:\x1b[PX^_]|[\x90\x98\x9e\x9f]) [^\x00-\x1f\x7f-\x9f]*+ (?:\x1b\\|\x9c)  # DCS, SOS, PM, APC
    | \x1b [ -/]*+ [0-OQ-WYZ\\`-~]                     # two-character escapes, character sets
    """,
    re.VERBOSE,
)
_CUT_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+|[\]PX^_][^\x07\x1b\n]*+|[ -/]*+)\Z")
_SILENT = re.compile(r"[\x07\x08]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction controls
    "\u2028\u2029"  # line and paragraph separators, line ends to some readers only
    "\U000e0000-\U000e007f]"  # tags: letters that nobody sees
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST_CHARACTER = 4


def clean(data: bytes, *, starts_inside: bool = False, ends_inside: bool = False) -> str:
    """The text of ``data``; always encodable, and cleaning it again changes nothing.

    ``starts_inside`` and ``ends_inside`` tell that ``data`` was cut out of a longer stream there: then
    pieces of a cut character or terminal sequence are left out.
    """
    if starts_inside:
        data = _without_continuation(data)
    if ends_inside:
        data = _without_unfinished(data)
    text = data.decode("utf-8", "replace")
    if ends_inside:
        text = _drop_cut_sequence(text)
    return _clean_controls(text)


def clean_text(text: str) -> str:
    """The same for what is text already, such as file names and messages, lone surrogates included."""
    return _clean_controls(_SURROGATE.sub("\ufffd", text))


def _clean_controls(text: str) -> str:
    if text.isprintable():
        return text
    text = _TERMINAL.sub("", text)
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return _INVISIBLE.sub(_show, _SILENT.sub("", text))


def _last_state(line: str) -> str:
    """What stands in an overprinted line at its end; trailing returns belong to the line's own end."""
    return line.rstrip("\r").rpartition("\r")[2]


def _show(invisible: re.Match[str]) -> str:
    code = ord(invisible[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _without_continuation(data: bytes) -> bytes:
    """``data`` from the first byte on that can start a character."""
    for n, byte in enumerate(data[: _LONGEST_CHARACTER - 1]):
        if byte & 0xC0 != 0x80:
            return data[n:]
    return data[_LONGEST_CHARACTER - 1 :]


def _without_unfinished(data: bytes) -> bytes:
    """``data`` without a last character whose end is missing."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if back < needed else data
        if byte < 0x80:
            break
    return data


def _drop_cut_sequence(text: str) -> str:
    start = text.rfind("\x1b")
    if start < 0:
        return text
    return text[:start] if _CUT_TERMINAL.fullmatch(text, start) else text
