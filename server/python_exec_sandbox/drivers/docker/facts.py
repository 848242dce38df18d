"""What goes to the engine and comes back from it, as plain data; knows nothing of the SDK."""

from collections.abc import Mapping
from dataclasses import dataclass

from python_exec_sandbox.drivers.docker.channel import RawStream


@dataclass(frozen=True, slots=True)
class CreatedContainer:
    id: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EventStream:
    """``chunked`` says whether the bytes are in HTTP's chunked coding."""

    raw: RawStream
    chunked: bool


@dataclass(frozen=True, slots=True)
class Labelled:
    """An image or a container, and what its labels say."""

    id: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FoundImage:
    """``tags`` are all its names; none when a newer image took the last one. ``size`` is in bytes."""

    id: str
    tags: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class AboutEngine:
    """What an engine says of itself; texts are empty and numbers 0 where it says nothing.

    ``api`` is the version that is spoken, ``newest_api`` the newest it knows.
    """

    name: str
    version: str
    api: str
    newest_api: str
    system: str
    kernel: str
    architecture: str
    processors: int
    memory_bytes: int
    control_groups: str
    security: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundNetwork:
    """``created`` is the engine's own text; it sorts by time."""

    id: str
    name: str
    created: str
    driver: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """``context`` is a tar archive with a Dockerfile at its top; ``anonymous`` asks no credential helper."""

    tag: str
    context: bytes
    arguments: Mapping[str, str]
    anonymous: bool
