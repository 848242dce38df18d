"""Which version of the engine's API is spoken."""

import re

from python_exec_sandbox.drivers.docker.discovery import Candidate
from python_exec_sandbox.errors import EngineUnreachable

# The oldest API that has the fields our containers need (engine 20.10), and the newest that was tried.
OLDEST_API = (1, 41)
NEWEST_API = (1, 45)


def negotiate(newest: str, oldest: str, candidate: Candidate) -> str:
    """The API version to speak with an engine that knows ``oldest`` to ``newest``.

    Raises:
        EngineUnreachable: the engine is too old, or what it says is no version.
    """
    known = _version(newest)
    if known is None:
        raise EngineUnreachable(f"What answers at {candidate.address} is not a container engine.")
    if known < OLDEST_API:
        raise EngineUnreachable(
            f"The container engine at {candidate.address} speaks API {newest}, which is too old: "
            f"{text_of(OLDEST_API)} (Docker 20.10) or newer is needed. Update the engine."
        )
    return text_of(min(known, max(NEWEST_API, _version(oldest) or NEWEST_API)))


def _version(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})", text)
    return (int(found[1]), int(found[2])) if found else None


def text_of(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
