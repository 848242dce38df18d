"""What a build sandbox says it made, taken apart with suspicion: code of packages had its hands in it.

::

    {"pins": [["six", "1.17.0", ["sha256:..."]]], "wheels": [["docopt-0.6.2-py3-none-any.whl", "<base64>"]]}
    {"failed": "installer" | "memory" | "no_room", "text": "..."}

Whatever it is, it only decides what is in the one environment of the request that led to it: pins are names
with hashes, which the index must have, and wheels are files for one installation with a cache of its own.
"""

import base64
import hashlib
import json
import os
import re
from dataclasses import dataclass

MAX_BUILT_BYTES = 96 * 1024 * 1024
"""Of the whole line. Wheels that were built without a compiler have some hundred kilobytes."""

MAX_PACKAGES = 1000
MAX_HASHES = 1000
"""Of one package; one with wheels for every platform has a hundred."""

_CAUSES = frozenset({"installer", "memory", "no_room"})
_PART = r"[A-Za-z0-9_.+!]{1,128}"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+){0,32}")
_VERSION = re.compile(r"[A-Za-z0-9_.+!-]{1,128}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_WHEEL = re.compile(rf"(?P<name>{_PART})-(?P<version>{_PART})(-\d{_PART})?-{_PART}-{_PART}-{_PART}\.whl")


@dataclass(frozen=True)
class BuildRefused(Exception):
    """There is nothing to install; ``cause`` is one of the protocol's."""

    cause: str
    text: str


@dataclass(frozen=True)
class Built:
    """``pins`` are lines of a lock, ``wheels`` files by their names."""

    pins: tuple[str, ...]
    wheels: dict[str, bytes]

    @classmethod
    def parse(cls, line: bytes) -> "Built":
        """Raises ``BuildRefused``: it is none, or tells of a failure."""
        try:
            return cls._of(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise BuildRefused("fault", "the sandbox for building from source gave no answer") from error

    @classmethod
    def _of(cls, found: object) -> "Built":
        match found:
            case {"failed": str(cause), "text": str(text)} if cause in _CAUSES:
                raise BuildRefused(cause, text)
            case {"pins": [*pins], "wheels": [*wheels]} if len(pins) + len(wheels) <= MAX_PACKAGES:
                files = dict(map(_wheel, wheels))
                if len(files) == len(wheels):
                    return cls(tuple(map(_pin, pins)), files)
        raise ValueError("not an answer of a build sandbox")

    @property
    def lock(self) -> str:
        """Everything there is, by names, versions and hashes."""
        return "".join(line + "\n" for line in sorted([*self.pins, *map(_line, self.wheels.items())]))

    def write(self, folder: str) -> None:
        """Put the wheels into ``folder``, which is empty."""
        for name, data in self.wheels.items():
            with open(os.path.join(folder, name), "xb") as file:
                file.write(data)


def _pin(found: object) -> str:
    match found:
        case [str(name), str(version), [*hashes]] if (
            _NAME.fullmatch(name)
            and _VERSION.fullmatch(version)
            and 0 < len(hashes) <= MAX_HASHES
            and all(isinstance(one, str) and _HASH.fullmatch(one) for one in hashes)
        ):
            return f"{name}=={version} " + " ".join(f"--hash={one}" for one in hashes)
    raise ValueError("not a pin")


def _wheel(found: object) -> tuple[str, bytes]:
    match found:
        case [str(name), str(data)] if _WHEEL.fullmatch(name):
            return name, base64.b64decode(data, validate=True)
    raise ValueError("not a wheel")


def _line(wheel: tuple[str, bytes]) -> str:
    parts = _WHEEL.fullmatch(wheel[0])
    assert parts is not None
    name = re.sub(r"[-_.]+", "-", parts["name"]).lower()
    return f"{name}=={parts['version']} --hash=sha256:{hashlib.sha256(wheel[1]).hexdigest()}"
