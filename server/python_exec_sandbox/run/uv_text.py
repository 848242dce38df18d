"""Shortens what uv says about a failed installation to its reason."""

import re
from collections.abc import Sequence

from python_exec_sandbox.script.module_names import package_of
from python_exec_sandbox.stream.clean import clean_text

MAX_REASON_CHARACTERS = 700
"""A long resolver proof says no more than its beginning and its end."""

LOOKED_AT_CHARACTERS = 64 * 1024

_NOISE = re.compile(
    r"(?:using (?:python|cpython)|resolved \d|prepared \d|installed \d|uninstalled \d|audited \d|downloading |"
    r"downloaded |building |built |creating virtual|updating |updated |warning:|bytecode compiled|"
    r" *[+~-] [\w.-]+==|\s*$)",
    re.IGNORECASE,
)
_DECORATION = re.compile(r"^[\s│├└╰─▶\u00d7>|]+|^(?:error|cause):\s*", re.IGNORECASE)
_CAUSE = re.compile(r"\s*(?:cause:|╰─▶)", re.IGNORECASE)
_NOT_FOUND = re.compile(r"because (\S+) was not found in the package registry", re.IGNORECASE)
_NO_VERSION = re.compile(
    r"because there (?:is no version of|are no versions of) (\S+?)(?: and|,)", re.IGNORECASE
)
_NO_WHEEL = re.compile(r"hint: wheels are required for `([^`]+)`", re.IGNORECASE)
_OTHER_PYTHON = re.compile(
    r"because (?:all versions of )?(\S+?) (?:has|have) no wheels with a matching", re.IGNORECASE
)
_HASH = re.compile(r"hash mismatch", re.IGNORECASE)
_NO_ROOM = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_UNTRUSTED = re.compile(
    r"unknownissuer|invalid peer certificate|certificate verify failed|self-signed certificate", re.IGNORECASE
)
# Up to an empty line, or a line that begins something else. The flags that uv names are not a caller's to set.
_HINT = re.compile(
    r"^[ \t]*+hint:[^\n]*+(?:\n(?![ \t]*+(?:hint:|cause:|error:|\n|$))[^\n]*+)*+",
    re.IGNORECASE | re.MULTILINE,
)
_FLAG = re.compile(r"(?<![\w-])--[a-z]|\bUV_[A-Z]")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_UNREACHABLE = re.compile(
    r"failed to fetch|error sending request|dns error|connection refused", re.IGNORECASE
)


def shorten(text: str) -> str:
    """The reason in ``text`` on one line without progress noise, at most 700 characters; may be empty."""
    reason = ""
    seen = set()
    cleaned = clean_text(text[-LOOKED_AT_CHARACTERS:])
    for line in _HINT.sub(_without_flags, cleaned).splitlines():
        bare = _DECORATION.sub("", _DECORATION.sub("", line)).strip()
        if not bare or bare in seen or _NOISE.match(line):
            continue
        seen.add(bare)
        joint = ": " if _CAUSE.match(line) and not reason.endswith(":") else " "
        reason += f"{joint if reason else ''}{bare}"
    if len(reason) <= MAX_REASON_CHARACTERS:
        return reason
    half = MAX_REASON_CHARACTERS // 2 - 2
    return f"{reason[:half]} … {reason[-half:]}"


def names_no_room(text: str) -> bool:
    """Whether ``text`` says that packages found no room."""
    return bool(_NO_ROOM.search(text[-LOOKED_AT_CHARACTERS:]))


def advice(text: str, requirements: Sequence[str] = ()) -> str:
    """What a caller can do about the failure that ``text`` describes, in one sentence; ``requirements`` are
    those that were asked for."""
    text = text[-LOOKED_AT_CHARACTERS:]
    if _UNTRUSTED.search(text):
        return "The index's certificate isn't trusted in the sandbox: start the server with --ca-bundle FILE."
    if mistaken := _module_named(text, requirements):
        return mistaken
    if match := _NOT_FOUND.search(text):
        return f"There is no package {match[1][:80]} in the index; check the name (it may differ from the import's)."
    if match := _NO_VERSION.search(text):
        return f"No such version exists ({match[1][:80]}); ask for another, or leave the version open."
    if match := _NO_WHEEL.search(text):
        return f"{match[1][:80]} has no ready-built package for this Python; try another version or another Python."
    if match := _OTHER_PYTHON.search(text):
        return f"{match[1][:80]} has no build for this Python; try another version or another Python."
    if _HASH.search(text):
        return (
            "A file of the index is not the one that its listing names; run it again, and if that doesn't help, ask"
            " for another version."
        )
    if _UNREACHABLE.search(text):
        return "The package index could not be reached from the sandbox; look at the network settings."
    return "Mend the dependencies and run it again."


def _without_flags(hint: re.Match[str]) -> str:
    return "" if _FLAG.search(hint[0]) else hint[0]


def _module_named(text: str, requirements: Sequence[str]) -> str:
    """A sentence when a requirement that ``text`` speaks of is a module's name, not its package's."""
    for requirement in requirements:
        name = _NAME.match(requirement)
        package = package_of(name[0]) if name else None
        if name and package and re.search(rf"(?<![\w-]){re.escape(name[0])}(?![\w-])", text, re.IGNORECASE):
            return f"{name[0]} is the name of a module; its package is {package}: name that."
    return ""
