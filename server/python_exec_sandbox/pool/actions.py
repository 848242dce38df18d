"""What the pool's state machine tells its shell to do; plain values."""

from dataclasses import dataclass
from enum import StrEnum


class RefusalKind(StrEnum):
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    """No sandbox can be made."""
    PYTHON = "python"
    """None of this version can be made."""
    CLOSED = "closed"


class RetireReason(StrEnum):
    """Why an unused sandbox is given up."""

    AGE = "age"
    GENERATION = "generation"
    """Made from an image that has been replaced."""
    SURPLUS = "surplus"
    """More warm ones of this version than are wanted."""
    ROOM = "room"
    """Its place is needed by a call for another version."""
    QUIET = "quiet"
    """No call for ``idle_timeout``, or the pool drains."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make a sandbox and report ``created``, ``create_failed``,
    ``python_unavailable`` or ``create_abandoned``."""

    attempt: int
    python: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop making this one; still report how it ended."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Destroy:
    """End the sandbox and report ``destroyed`` or ``destroy_failed``."""

    sandbox_id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """Give the sandbox to the call; if nobody takes it, report ``unclaimed``."""

    ticket: int
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the call that it gets no sandbox, in the words of ``text``."""

    ticket: int
    kind: RefusalKind
    text: str


@dataclass(frozen=True, slots=True)
class Retired:
    """For the record: an unused sandbox was given up; a ``Destroy`` comes now or later."""

    sandbox_id: str
    reason: RetireReason


Action = Create | Abandon | Destroy | Grant | Refuse | Retired
