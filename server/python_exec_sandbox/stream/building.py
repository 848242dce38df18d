"""Messages to and from a builder (``sandbox_image/builder``): one JSON object a line.

=======  ========  ================================================================================
from     type      other keys
=======  ========  ================================================================================
server   (none)    task: "build" | "resolve" | "warm" | "trim", python: str, requirements: [str],
                   resolution_seconds: float, store_bytes: int, used: {id: seconds ago}, installer: {config:
                   str, variables: {str: str}, certificates: str}, from_source: bool, python_mirror: str; the one request. With
                   from_source, the line of a build sandbox (``sandbox_image/builder/built.py``) follows,
                   which the server passes on as it is
builder  progress  words: str
builder  built     id: 32 hexadecimal digits, reused: bool, packages: [[name, version]],
                   fresh_seconds: float|null; the last message
builder  resolved  packages: [[name, version]]; the last message
builder  warmed    package: str, left: int; the last message
builder  trimmed   freed: int; the last message
builder  failed    cause: "installer" | "needs_source" | "python" | "memory" | "no_room" | "fault", text: str; the last
                   message
=======  ========  ================================================================================
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.model.environment import (
    BuildFailed,
    BuildFault,
    BuildOutcome,
    BuildRequest,
    BuiltEnvironment,
    Package,
    Resolved,
    Trimmed,
    Warmed,
)

STORE = "/store"
"""Where sandboxes and builders see the store."""

MAX_WORDS = 200
MAX_TEXT = 64 * 1024
MAX_PACKAGES = 5000

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Progress:
    """What a builder is at, in words."""

    words: str


def request_line(request: BuildRequest) -> bytes:
    """The line that asks for ``request``."""
    message = {
        "task": request.task,
        "python": request.python,
        "requirements": request.requirements,
        "resolution_seconds": request.resolution_seconds,
        "store_bytes": request.store_bytes,
        "python_mirror": request.python_mirror,
        "used": {path.rpartition("/")[2]: ago for path, ago in request.used},
        "installer": {
            "config": request.installer.config,
            "variables": dict(request.installer.variables),
            "certificates": request.installer.certificates,
        },
        "from_source": request.source is not None,
    }
    return json.dumps(message).encode() + b"\n"


def parse_message(message: Mapping[str, object]) -> Progress | BuildOutcome:
    """What a builder said.

    Raises:
        ProtocolViolation: nothing a builder says.
    """
    match message:
        case {"type": "progress", "words": str(words)}:
            return Progress(_encodable(words[:MAX_WORDS]))
        case {"type": "failed", "cause": str(cause), "text": str(text)} if cause in _CAUSES:
            return BuildFailed(BuildFault(cause), _encodable(text[-MAX_TEXT:]))
        case {
            "type": "built",
            "id": str(name),
            "reused": bool(reused),
            "packages": list(packages),
            "fresh_seconds": int() | float() | None as fresh,
        } if _ID.fullmatch(name) and len(packages) <= MAX_PACKAGES:
            return BuiltEnvironment(
                path=f"{STORE}/envs/{name}",
                packages=tuple(map(_package, packages)),
                reused=reused,
                fresh_seconds=None if fresh is None else float(fresh),
            )
        case {"type": "resolved", "packages": list(packages)} if len(packages) <= MAX_PACKAGES:
            return Resolved(tuple(map(_package, packages)))
        case {"type": "warmed", "package": str(name), "left": int(left)}:
            return Warmed(_encodable(name[:MAX_WORDS]), left)
        case {"type": "trimmed", "freed": int(freed)}:
            return Trimmed(freed)
    raise ProtocolViolation("the builder said something that no builder says")


_CAUSES = frozenset(BuildFault) - {BuildFault.TIME}


def _package(found: object) -> Package:
    match found:
        case [str(name), str(version)] if len(name) <= 256 and len(version) <= 256:
            return Package(_encodable(name), _encodable(version))
    raise ProtocolViolation("the builder named something that is no package")


def _encodable(text: str) -> str:
    """JSON can carry lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")
