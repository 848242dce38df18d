"""Who wants to hear what the pool does."""

from typing import Protocol

from python_exec_sandbox.pool.actions import RetireReason
from python_exec_sandbox.pool.stats import PoolPhase


class PoolObserver(Protocol):
    """Told of every event, on the event loop, after it happened. Must return at once and never raise."""

    def created(self, sandbox_id: str, python: str, seconds: float) -> None:
        """A sandbox became ready; making it took ``seconds``."""

    def create_failed(self, python: str, error: Exception) -> None: ...

    def granted(self, sandbox_id: str, waited_seconds: float) -> None:
        """A call got a sandbox."""

    def found_dead(self, sandbox_id: str) -> None:
        """An unused sandbox ended by itself."""

    def retired(self, sandbox_id: str, reason: RetireReason) -> None: ...

    def destroyed(self, sandbox_id: str, seconds: float) -> None: ...

    def destroy_failed(self, sandbox_id: str, error: Exception) -> None:
        """The end could not be confirmed; it is tried again later."""

    def phase_changed(self, before: PoolPhase, after: PoolPhase) -> None: ...

    def orphans_reaped(self, count: int) -> None:
        """Sandboxes that dead servers had left were removed."""


class SilentObserver:
    """Hears everything and does nothing."""

    def created(self, sandbox_id: str, python: str, seconds: float) -> None: ...

    def create_failed(self, python: str, error: Exception) -> None: ...

    def granted(self, sandbox_id: str, waited_seconds: float) -> None: ...

    def found_dead(self, sandbox_id: str) -> None: ...

    def retired(self, sandbox_id: str, reason: RetireReason) -> None: ...

    def destroyed(self, sandbox_id: str, seconds: float) -> None: ...

    def destroy_failed(self, sandbox_id: str, error: Exception) -> None: ...

    def phase_changed(self, before: PoolPhase, after: PoolPhase) -> None: ...

    def orphans_reaped(self, count: int) -> None: ...


NO_OBSERVER: PoolObserver = SilentObserver()
