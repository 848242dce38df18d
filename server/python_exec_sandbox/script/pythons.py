"""Chooses the Python a script runs with."""

import re
from collections.abc import Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from python_exec_sandbox.errors import RequestError

_LATE_PATCH = 999
"""A sandbox's Pythons are recent patches whose exact numbers aren't known here: a minor version counts as
fit when a late patch of it is. So >=3.13.2 finds 3.13, while ==3.13.2 finds nothing rather than a lie."""

_VERSION = re.compile(r"(?:python)?\s*(\d+)(?:\.(\d+))?(\.\w+)?", re.IGNORECASE)


def choose_python(
    ready: Sequence[str],
    *,
    default: str,
    wanted: str | None = None,
    requires: str | None = None,
    fetched: Sequence[str] = (),
) -> str:
    """The member of ``ready`` (minor versions, oldest first) to run with; only where none of these fits, the newest
    that does of ``fetched``, which take a download.

    ``wanted`` is the caller's word ("3.14", ">=3.14"), ``requires`` the script's own requires-python;
    both must agree. Among those that fit: the default, else the nearest newer one (more packages have
    wheels for it than for the newest), else the nearest older one.

    Raises:
        RequestError: nothing fits, or a version isn't understood; names what is available.
    """
    available = sorted({*ready, *fetched}, key=Version)
    fitting = list(available)
    asked = ""
    if wanted is not None and wanted.strip():
        fitting = _wanted(wanted.strip(), available)
        asked = f" by python_version {_shown(wanted.strip())}"
    if requires is not None:
        specifier = SpecifierSet(requires)
        before, fitting = fitting, [one for one in fitting if _fits(one, specifier)]
        if not fitting:
            looked_at = f"asked for{asked} ({_listed(before)})" if before != list(available) else "here"
            raise RequestError(
                f"The script's requires-python {_shown(requires)} admits none of the Pythons {looked_at}. "
                f"Available are {_listed(available)}.{_hint(specifier, available)}"
            )
    return _nearest([one for one in fitting if one in ready] or fitting, default)


def _wanted(wanted: str, available: Sequence[str]) -> list[str]:
    """The available versions that ``wanted`` admits, at least one."""
    if version := _VERSION.fullmatch(wanted):
        major, minor, patch = version.groups()
        if patch:
            raise RequestError(
                f"python_version {_shown(wanted)} names a patch version; only minor versions can be chosen: "
                f"{_listed(available)}."
            )
        name = f"{major}.{minor}" if minor else f"{major}."
        found = [one for one in available if one == name or (not minor and one.startswith(name))]
        specifier = SpecifierSet()
    else:
        try:
            specifier = SpecifierSet(wanted)
        except InvalidSpecifier as error:
            raise RequestError(
                f"python_version {_shown(wanted)} is not a version; write one of {_listed(available)}, or a "
                'range such as ">=3.14".'
            ) from error
        found = [one for one in available if _fits(one, specifier)]
    if not found:
        raise RequestError(
            f"Python {wanted[:80]} is not available in the sandbox. Available are {_listed(available)}."
            f"{_hint(specifier, available)}"
        )
    return found


def _fits(minor_version: str, specifier: SpecifierSet) -> bool:
    return specifier.contains(f"{minor_version}.{_LATE_PATCH}", prereleases=True)


def _nearest(fitting: Sequence[str], default: str) -> str:
    if default in fitting:
        return default
    newer = [one for one in fitting if Version(one) > Version(default)]
    return newer[0] if newer else fitting[-1]


def _hint(specifier: SpecifierSet, available: Sequence[str]) -> str:
    """A sentence for those who wrote 3.13 and meant every 3.13.x."""
    if any(specifier.contains(f"{one}.0", prereleases=True) for one in available) and str(specifier):
        return " (A version such as ==3.13 or <=3.13 means 3.13.0 exactly; write ==3.13.* or <3.14.)"
    return ""


def _listed(versions: Sequence[str]) -> str:
    return ", ".join(versions)


def _shown(asked: str) -> str:
    return repr(asked if len(asked) <= 80 else f"{asked[:79]}…")
