"""What drivers name that is ours and in nobody's use."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Of an engine, and of this machine itself."""

    CONTAINER = "container"
    IMAGE = "image"
    NETWORK = "network"
    STORE = "volume"
    GROUPS = "control groups"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Leftover:
    """``name`` is for a person, ``handles`` are what is to be removed, one after the other;
    ``size`` is in bytes, of images alone, and includes what they share with others."""

    kind: Kind
    name: str
    why: str
    handles: tuple[str, ...]
    size: int = 0
