"""One list of requirements from several wishes, each checked before any installer sees it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.problems import Problems

MAX_REQUIREMENTS_BYTES = 32 * 1024
"""Room for more than a thousand pinned packages; more is a lock file in the wrong place."""

MAX_CONDITIONS = 64
"""Version conditions for one package, as in ``>=2,<3``. Whether conditions can hold together takes a time
that grows with the square of their number."""

URL_SCHEMES = frozenset({"https", "http"})
"""What an installer fetches over the network; everything else is a place on some machine, or needs git."""

_GIT = "git+"

_OPTION = re.compile(r"(^|\s)-")
_LOOKS_LIKE_PATH = re.compile(r"[./~\\]|[A-Za-z]:[\\/]|[^@\s]*/[^@\s]*$")


@dataclass(frozen=True, slots=True)
class Wish:
    """A requirement as somebody wrote it; ``origin`` says where, such as ``"line 2 of the script"``."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class _Parsed:
    requirement: Requirement
    wish: Wish


def merge(wishes: Iterable[Wish]) -> tuple[str, ...]:
    """Canonical PEP 508 lines that ask for all of ``wishes``, in the order of their first mention.

    Wishes for the same package under the same marker become one line with all extras and versions;
    markers and addresses are kept; blank wishes count for nothing.

    Raises:
        RequestError: with each wish that is no requirement, is refused, or contradicts another.
    """
    asked = [wish for wish in wishes if wish.text.strip()]
    size = sum(len(wish.text.encode(errors="replace")) + 1 for wish in asked)
    if size > MAX_REQUIREMENTS_BYTES:
        raise RequestError(
            f"The dependencies have {size:,} bytes in all; at most {MAX_REQUIREMENTS_BYTES:,} are accepted. "
            "Name only the packages the script imports; what these need is found by itself."
        )
    problems = Problems()
    groups: dict[tuple[str, str], list[_Parsed]] = {}
    for wish in asked:
        with problems.collecting():
            parsed = _Parsed(_parse(wish), wish)
            groups.setdefault(_key(parsed.requirement), []).append(parsed)
    lines: dict[str, None] = {}
    for group in groups.values():
        with problems.collecting():
            lines |= dict.fromkeys(_merge_group(group))
    problems.raise_any()
    return tuple(lines)


def located(wishes: Iterable[Wish], sources: Mapping[str, str]) -> list[Wish]:
    """``wishes`` and, for each whose package has an address in ``sources`` (by canonical names), one for that."""
    found = []
    for wish in wishes:
        found.append(wish)
        try:
            requirement = Requirement(wish.text.strip())
        except InvalidRequirement:
            continue  # that is told when it is merged
        url = sources.get(canonicalize_name(requirement.name))
        if url is not None and requirement.url is None:
            marker = f" ; {requirement.marker}" if requirement.marker else ""
            extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
            found.append(
                Wish(f"{requirement.name}{extras} @ {url}{marker}", f"its source, for {wish.origin}")
            )
    return found


def _key(requirement: Requirement) -> tuple[str, str]:
    return canonicalize_name(requirement.name), str(requirement.marker or "")


def _parse(wish: Wish) -> Requirement:
    text = wish.text.strip()
    _refuse_non_requirements(text, wish)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise RequestError(
            f"{_named(wish)} is not a requirement: {reason}. Write it like requests, requests>=2 or rich[jupyter]."
        ) from error
    if requirement.url is not None:
        _check_url(requirement.url, wish)
    return requirement


def _refuse_non_requirements(text: str, wish: Wish) -> None:
    if not text.isprintable():
        raise RequestError(
            f"{_named(wish)} has line ends or invisible characters; give one requirement each."
        )
    name, marker_separator, _ = text.partition(";")
    before_url = name.partition("@")[0] if marker_separator or "@" in name else name
    if _OPTION.search(before_url):
        raise RequestError(
            f"{_named(wish)} has an installer's option; options are not accepted here. Indexes and the like "
            "are settings of the server; name only packages."
        )
    if before_url.lower().startswith(_GIT):
        raise _no_git(wish)
    if "://" in before_url:
        raise RequestError(f"{_named(wish)} is an address without a name; write: NAME @ {text[:80]}")
    if _LOOKS_LIKE_PATH.match(before_url):
        raise RequestError(
            f"{_named(wish)} is a path; a sandbox has no files of this machine. "
            "Name a package of the index, or NAME @ https://..."
        )


def _check_url(url: str, wish: Wish) -> None:
    try:
        scheme, host = urlsplit(url).scheme.lower(), urlsplit(url).netloc
    except ValueError:
        scheme, host = "", ""
    if scheme in {"git+https", "git+http", "git+ssh"}:
        raise _no_git(wish)
    if scheme not in URL_SCHEMES or not host:
        raise RequestError(
            f"{_named(wish)} names an address that is not accepted; a sandbox has no files of this machine. "
            f"Accepted are {', '.join(sorted(URL_SCHEMES))}."
        )
    if "$" in url:
        raise RequestError(
            f"{_named(wish)} has a '$' in its address, which an installer replaces by a variable; write %24."
        )


def _no_git(wish: Wish) -> RequestError:
    return RequestError(
        f"{_named(wish)} needs git, which is not in the sandbox; name an archive instead: NAME @ https://...zip"
    )


def _merge_group(group: list[_Parsed]) -> list[str]:
    """The lines for wishes that share name and marker: one with an address, one with versions."""
    located = [one for one in group if one.requirement.url is not None]
    for other in located[1:]:
        if other.requirement.url != located[0].requirement.url:
            raise _contradiction(located[0].wish, other.wish)
    versioned = [one for one in group if one.requirement.url is None]
    _check_number(versioned)
    specifier = _join_specifiers(versioned)
    extras = {extra for one in group for extra in one.requirement.extras}
    lines = []
    for chosen in (located[:1], versioned[:1]):
        for one in chosen:
            merged = Requirement(str(one.requirement))
            merged.extras = extras
            merged.specifier = specifier if merged.url is None else SpecifierSet()
            lines.append(str(merged))
    return lines if specifier or not located else lines[:1]


def _join_specifiers(group: list[_Parsed]) -> SpecifierSet:
    joined = SpecifierSet()
    for one in group:
        joined &= one.requirement.specifier
    if joined.is_unsatisfiable():
        raise _find_contradiction(group)
    return joined


def _check_number(group: list[_Parsed]) -> None:
    conditions = {str(one) for wish in group for one in wish.requirement.specifier}
    if len(conditions) > MAX_CONDITIONS:
        raise RequestError(
            f"{_named(group[0].wish)} and the others for this package name {len(conditions):,} version "
            f"conditions; at most {MAX_CONDITIONS} are accepted. A lower and an upper bound nearly always do."
        )


def _find_contradiction(group: list[_Parsed]) -> RequestError:
    """The error for a group that no version satisfies: one wish, two, or all of them."""
    different = list({str(one.requirement.specifier): one for one in reversed(group)}.values())[::-1]
    for one in different:
        if one.requirement.specifier.is_unsatisfiable():
            return RequestError(
                f"{_named(one.wish)} asks for versions that can't exist; mend its version numbers."
            )
    for one, other in combinations(different, 2):
        if (one.requirement.specifier & other.requirement.specifier).is_unsatisfiable():
            return _contradiction(one.wish, other.wish)
    return RequestError(
        "These requirements exclude each other: "
        + ", ".join(_named(one.wish) for one in group[-8:])
        + ". Keep those that can hold together."
    )


def _contradiction(one: Wish, other: Wish) -> RequestError:
    return RequestError(f"{_named(one)} and {_named(other)} exclude each other. Keep one of them.")


def _named(wish: Wish) -> str:
    text = wish.text.strip()
    shown = text if len(text) <= 80 else text[:79] + "…"
    return f"{shown!r} ({wish.origin})"
