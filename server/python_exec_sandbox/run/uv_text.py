"""Shortens what uv says about a failed installation to its reason."""

import re

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
_UNREACHABLE = re.compile(
    r"failed to fetch|error sending request|dns error|connection refused", re.IGNORECASE
)


def shorten(text: str) -> str:
    """The reason in ``text`` on one line without progress noise, at most 700 characters; may be empty."""
    reason = ""
    seen = set()
    for line in clean_text(text[-LOOKED_AT_CHARACTERS:]).splitlines():
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


def advice(text: str) -> str:
    """What a caller can do about the failure that ``text`` describes, in one sentence."""
    if match := _NOT_FOUND.search(text):
        return f"There is no package {match[1][:80]} in the index; check the name (it may differ from the import's)."
    if match := _NO_VERSION.search(text):
        return f"No such version exists ({match[1][:80]}); ask for another, or leave the version open."
    if match := _NO_WHEEL.search(text):
        return f"{match[1][:80]} has no ready-built package for this Python; try another version or another Python."
    if _UNREACHABLE.search(text):
        return "The package index could not be reached from the sandbox; look at the network settings."
    return "Mend the dependencies and run it again."
