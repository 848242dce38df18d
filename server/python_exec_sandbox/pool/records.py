"""What the pool's state machine remembers of each sandbox and call."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sandbox being made."""

    python: str
    generation: int
    round: int
    """The circuit's round in which it began."""
    started_at: float


@dataclass(frozen=True, slots=True)
class Member:
    """A sandbox that is ready, idle or in use."""

    sandbox_id: str
    python: str
    generation: int
    round: int
    ready_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class Census:
    """Who is where at one moment; ids in the order in which they came."""

    creating: dict[int, str]
    """Attempt -> version."""
    idle: dict[str, str]
    """Sandbox id -> version."""
    leased: frozenset[str]
    ending: dict[str, bool]
    """Sandbox id -> whether its destruction is under way."""
    waiting: dict[int, str]
    """Ticket -> version."""

    @property
    def total(self) -> int:
        return len(self.creating) + len(self.idle) + len(self.leased) + len(self.ending)
