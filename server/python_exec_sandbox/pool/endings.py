"""Sandboxes on their way out: each keeps its place until its end is confirmed. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from python_exec_sandbox.pool.config import PoolConfig

_FIRST_DELAY = 0.5
"""Before a failed destruction is repeated; doubles each time up to ``max_destroy_delay``."""
_MAX_DOUBLINGS = 20
"""As far as no sensible bound reaches; more would overflow a float some day."""


@dataclass(slots=True)
class _Ending:
    since: float
    busy: bool = False
    tries: int = 0
    retry_at: float | None = None


class Endings:
    """Waits for a calm moment (``background_at`` says when: wanted since -> may begin), then destroys."""

    def __init__(self, config: PoolConfig, background_at: Callable[[float], float]) -> None:
        self._config = config
        self._background_at = background_at
        self._endings: dict[str, _Ending] = {}

    def __len__(self) -> int:
        return len(self._endings)

    @property
    def soon_free(self) -> int:
        """Places that will be free soon; one whose destruction failed may not."""
        return sum(ending.retry_at is None for ending in self._endings.values())

    def census(self) -> dict[str, bool]:
        """Sandbox id -> whether its destruction is under way."""
        return {sandbox_id: ending.busy for sandbox_id, ending in self._endings.items()}

    def add(self, sandbox_id: str, now: float) -> None:
        self._endings[sandbox_id] = _Ending(since=now)

    def confirmed(self, sandbox_id: str) -> None:
        del self._endings[sandbox_id]

    def failed(self, sandbox_id: str, now: float) -> None:
        """The end could not be confirmed. The sandbox may well be there: it keeps its place, for as long
        as it takes."""
        ending = self._endings[sandbox_id]
        delay = _FIRST_DELAY * 2.0 ** min(ending.tries, _MAX_DOUBLINGS)
        ending.busy = False
        ending.tries += 1
        ending.retry_at = now + min(delay, self._config.max_destroy_delay)

    def begin(self, now: float, urgent: int, *, closing: bool) -> list[str]:
        """Which to destroy now, oldest first; ``urgent``: so many places are needed by calls."""
        urgent -= sum(ending.busy for ending in self._endings.values())
        begun = []
        for sandbox_id, ending in self._endings.items():
            if ending.busy:
                continue
            if ending.retry_at is not None:
                due = now >= ending.retry_at
            else:
                due = urgent > 0 or closing or now >= self._background_at(ending.since)
                urgent -= due
            if due:
                ending.busy = True
                begun.append(sandbox_id)
        return begun

    def moments(self) -> list[float]:
        """The instants at which one of them may begin."""
        return [
            self._background_at(ending.since) if ending.retry_at is None else ending.retry_at
            for ending in self._endings.values()
            if not ending.busy
        ]
