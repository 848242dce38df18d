"""Who or what is to blame when uv could not install something: one sentence with its name. Pure.

What uv says is read line by line and never shown where one of the kinds here fits; everything else is left to
:mod:`.uv_text`, which shortens it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from python_exec_sandbox.run import uv_text
from python_exec_sandbox.stream.clean import clean_text

LOOKED_AT_CHARACTERS = 16 * 1024
"""Some of it may be a hostile package's; this takes a hundredth of a second at worst."""

# No second try inside a word: the time would grow with the word's length.
_WORD = r"(?<![\w.\[\],-])[\w.\[\],-]{1,100}"
_VERSION = r"[<>=!~]=?=?[\w.*+!-]{0,60}[\w*]"
_RANGE = rf"(?:{_VERSION}(?:,{_VERSION})*)"
_WHAT = rf"{_WORD}?{_RANGE}?"

_CREDENTIALS = re.compile(
    r"An index URL \((\S{1,500}?)\) could not be queried due to a lack of valid authentication credentials \((\d+)"
)
_STATUS = re.compile(r"HTTP status (?:server|client) error \((\d+[^)]{0,60})\) for url \((\S{1,500}?)\)")
_FETCH = re.compile(r"Failed to (?:fetch|download)[: ]+`?(https?://[^\s`]{1,500})")
_FAILED_PACKAGE = re.compile(r"Failed to (?:download|fetch)(?: and build)?[: ]+`([^`\s]{1,120})[^`]{0,500}`")
_NO_ANSWER = re.compile(
    r"error sending request|dns error|connection refused|operation timed out|connection reset|error decoding response",
    re.IGNORECASE,
)
_CAUSES = (
    (re.compile(r"dns error|failed to lookup", re.IGNORECASE), "its name can't be resolved"),
    (re.compile(r"connection refused", re.IGNORECASE), "connection refused"),
    (re.compile(r"timed out|timeout", re.IGNORECASE), "no answer in time"),
    (re.compile(r"network is unreachable|no route to host", re.IGNORECASE), "no route to it"),
    (re.compile(r"InvalidContentType|corrupt message", re.IGNORECASE), "it doesn't speak TLS"),
)
_CUTOFF = re.compile(
    rf"`({_WORD})` was filtered by `exclude-newer`[^`]{{0,200}}? uploaded before (\S{{1,40}}?)\.(?:\s|$)"
)
_HASH = re.compile(r"Hash mismatch for `([^`]{1,200})`", re.IGNORECASE)
_NOT_FOUND = re.compile(
    rf"({_WORD}) was not found in the package registry and (?:(?:all versions of )?({_WHAT}) depends? on)?",
    re.IGNORECASE,
)
_NO_VERSION = re.compile(rf"there (?:is no version|are no versions) of ({_WHAT})(?=[\s,])", re.IGNORECASE)
_ONLY = re.compile(
    rf"only ({_WHAT}) (?:is|are) available and (you require|{_WHAT} depends? on) ({_WHAT})(?=[\s,])"
)
_NO_TAG = re.compile(
    rf"({_WHAT}) (?:has|have) no wheels with a matching (Python implementation|Python ABI|Python version|platform|ABI)"
)
_INVALID = re.compile(rf"({_WHAT}) (?:has|have) an invalid package format")
_DEPENDS = re.compile(rf"(?:all versions of )?({_WHAT}) depends? on ({_WHAT})(?=[\s,.])")
_YOU = re.compile(rf"(?<!conclude that )you require ({_WORD}?{_RANGE})(?=[\s,.])")
"""What somebody asked for, not what uv concludes from others."""

_NAME = re.compile(r"[\w.-]+?(?=[<>=!~\[]|$)")


def sentence(text: str, requirements: Sequence[str] = ()) -> str:
    """Who or what is to blame, by name, and what to do; empty when it is none of the kinds known here.

    ``requirements`` are those that were asked for.
    """
    said = " ".join(clean_text(text[-LOOKED_AT_CHARACTERS:]).split())
    if special := _special(said, requirements):
        return special
    return next(filter(None, (kind(said) for kind in _KINDS)), "")


def _special(said: str, requirements: Sequence[str]) -> str:
    """What :mod:`.uv_text` has words for that need nothing of uv's."""
    advice = uv_text.advice(said, requirements)
    return advice if "--ca-bundle" in advice or "is the name of a module" in advice else ""


def _credentials(said: str) -> str:
    if not (match := _CREDENTIALS.search(said)):
        return ""
    missing = _NOT_FOUND.search(said)
    what = f", so that {missing[1]} was not found" if missing else ""
    return (
        f"The index {_host(match[1])} wants other credentials ({match[2]}){what}; they are a setting of the server, and"
        " what is built from source has none."
    )


def _status(said: str) -> str:
    if not (match := _STATUS.search(said)):
        return ""
    path = urlsplit(match[2]).path.rstrip("/").rpartition("/")[2]
    what = f" when asked for {path}" if path else ""
    again = "it may help to run it again later" if match[1].startswith("5") else "check the address"
    return f"{_host(match[2])} answered {match[1]}{what}; {again}."


def _unreachable(said: str) -> str:
    if not _NO_ANSWER.search(said):
        return ""
    match = _FETCH.search(said) or re.search(r"for url \((https?://\S{1,500}?)\)", said)
    why = next((f" ({words})" for pattern, words in _CAUSES if pattern.search(said)), "")
    where = f" at {_host(match[1])}" if match else ""
    package = _FAILED_PACKAGE.search(said)
    what = f", which {package[1]} comes from," if package else ""
    return (
        f"The package index{where}{what} could not be reached{why}; look at the network, proxy and index settings of"
        " the server."
    )


def _cutoff(said: str) -> str:
    if not (match := _CUTOFF.search(said)):
        return ""
    return f"No version of {match[1]} that fits is older than {match[2]}, and newer ones are excluded (exclude-newer)."


def _hash(said: str) -> str:
    if not (match := _HASH.search(said)):
        return ""
    return (
        f"The file of {match[1]} is not the one that the index's listing names (hash mismatch); run it again, and if"
        " that doesn't help, ask for another version."
    )


def _not_found(said: str) -> str:
    if not (match := _NOT_FOUND.search(said)):
        return ""
    by = f", which {match[2]} depends on" if match[2] else ""
    return (
        f"There is no package {match[1]} in the index{by}; check the name (it may differ from the import's)."
    )


def _no_version(said: str) -> str:
    if (match := _ONLY.search(said)) and match[3] != match[1]:
        by = "you ask for" if match[2] == "you require" else match[2]
        return f"No such version exists: {by} {match[3]}, and only {match[1]} is available; ask for another version."
    if match := _NO_VERSION.search(said):
        return f"No such version exists ({match[1]}); ask for another, or leave the version open."
    return ""


def _no_wheel(said: str) -> str:
    if match := _NO_TAG.search(said):
        place = "platform" if match[2] == "platform" else "Python"
        return f"{match[1]} has no build for this {place}; try another version{'' if place == 'platform' else ' or another Python'}."
    if match := _INVALID.search(said):
        return f"{match[1]} in the index is no valid package; ask for another version."
    return ""


def _conflict(said: str) -> str:
    """Two that want different versions of one package."""
    wants: dict[str, list[tuple[str, str]]] = {}
    for owner, wanted in _wishes(said):
        name = _NAME.match(wanted)
        if name is None or wanted == name[0]:
            continue
        others = wants.setdefault(name[0].lower(), [])
        for other, other_wanted in others:
            if other_wanted != wanted and other != owner:
                return f"{other} {other_wanted}, but {owner} {wanted}: these exclude each other; change one of the two."
        others.append((owner, wanted))
    return ""


def _wishes(said: str) -> Iterator[tuple[str, str]]:
    for owner, wanted in _DEPENDS.findall(said):
        yield f"{owner} depends on", wanted
    for wanted in _YOU.findall(said):
        yield "you ask for", wanted


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2] or "the index"


_KINDS: tuple[Callable[[str], str], ...] = (
    *(_credentials, _status, _unreachable, _cutoff, _hash, _not_found),
    *(_no_wheel, _no_version, _conflict),
)
"""In this order: what hides other causes comes before what only follows from it."""
