"""The forms in which a setting's value may be written, and the bounds it must keep."""

import math
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import AfterValidator

from python_exec_sandbox.run import units
from python_exec_sandbox.script import cutoffs

SECONDS_FORMS = "accepted: 45, 45s, 00:01:30"


class Backend(StrEnum):
    """The kinds of sandboxes a person can ask for."""

    DOCKER = "docker"
    NATIVE = "native"
    NONE = "none"


class Network(StrEnum):
    """What a script can reach."""

    NONE = "none"
    FILTERED = "filtered"
    """Public addresses, through the server."""
    FULL = "full"


class PullPolicy(StrEnum):
    """When the image named by ``--image`` is pulled."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


class SourceBuilds(StrEnum):
    """Whether packages without a wheel are built from their source."""

    ALLOW = "allow"
    REFUSE = "refuse"


class LogLevel(StrEnum):
    """How much is told on stderr."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def parse_seconds(value: object) -> float:
    """Seconds from ``45``, ``"45"``, ``"45s"`` or ``"00:01:30"``.

    Raises:
        ValueError: it is none of these, or not finite.
    """
    clock = re.fullmatch(r"(\d+):([0-5]?\d):([0-5]?\d(?:\.\d+)?)", str(value).strip(), flags=re.ASCII)
    if clock:
        hours, minutes, seconds = clock.groups()
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    match value:
        case bool():
            number = None
        case int() | float():
            number = float(min(value, sys.float_info.max))  # an int may be beyond every float
        case str():
            number = _number(value.strip().removesuffix("s"))
        case _:
            number = None
    if number is None:
        raise ValueError(f"is not a number of seconds ({SECONDS_FORMS})")
    if not math.isfinite(number):
        raise ValueError(f"is not a finite number of seconds ({SECONDS_FORMS})")
    return number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def lower_case(value: object) -> object:
    """Text in lower case, so that ``INFO`` and ``info`` are the same; anything else as it is."""
    return value.lower() if isinstance(value, str) else value


def empty_is_none(value: object) -> object:
    """``None`` for empty text: a template that filled nothing in means "not given"."""
    return None if value == "" else value


def between(low: float, high: float, show: Callable[[float], str] = "{:.12g}".format) -> AfterValidator:
    """A validator that refuses numbers outside ``low .. high`` (and NaN) and names both."""

    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"must be between {show(low)} and {show(high)}")
        return value

    return AfterValidator(check)


def public_addresses(value: str | None) -> str | None:
    """Addresses of indexes, separated by blanks, none with credentials: flags can be read by everyone on the
    machine, and settings are shown."""
    for address in (value or "").split():
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname or not address.isprintable():
            raise ValueError("is not an address such as https://packages.example/simple/")
        if "@" in parts.netloc:
            raise ValueError(
                "has credentials, which a flag would show to everyone; give them in UV_DEFAULT_INDEX or UV_INDEX,"
                " in uv.toml, or in a netrc file"
            )
    return value


def open_domains(value: str | None) -> str | None:
    """Domains that scripts may reach."""
    return _list_of_policy(value, "domains")


def open_addresses(value: str | None) -> str | None:
    """Ranges of addresses that scripts may reach although they are not public."""
    return _list_of_policy(value, "addresses")


def open_ports(value: str | int | None) -> str | None:
    """Ports that scripts may reach beside the usual ones."""
    return _list_of_policy(None if value is None else str(value), "ports")


def _list_of_policy(value: str | None, which: str) -> str | None:
    if value is not None:
        from python_exec_sandbox.egress.policy import read_policy  # noqa: PLC0415 - few servers are given one

        read_policy(**{"domains": None, "addresses": None, "ports": None, which: value})
    return value


def cutoff(value: str | None) -> str | None:
    """A date, a time of day with its zone, or how long ago; as uv reads ``exclude-newer``."""
    if value is not None and cutoffs.moment(value, datetime.now(UTC)) is None:
        raise ValueError(f"is not a date or a time (accepted: {cutoffs.ACCEPTED})")
    return value


def show_seconds(value: float) -> str:
    """Such as ``0.1 s``."""
    return f"{value:.12g} s"


def show_bytes(value: float) -> str:
    """Such as ``512 MiB``, the way results show it."""
    return units.show_bytes(round(value))


def flag_bytes(value: float) -> str:
    """Such as ``512MiB``: one word, as it is written on a command line."""
    return show_bytes(value).replace(" ", "")
