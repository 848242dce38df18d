"""When the next attempt to make a sandbox may begin. Pure: the clock and chance are passed in."""

from collections.abc import Callable

from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.stats import PoolPhase

_MAX_DOUBLINGS = 20
"""2**20 x the first delay is beyond any sensible bound; more would overflow a float some day."""


class Circuit:
    """Counts failures in a row and spaces the attempts.

    ``RUNNING`` -> ``FAILING`` at a failure, -> ``OPEN`` at the third in a row, or at once when the cause
    lasts; a success leads back to ``RUNNING`` from anywhere. Attempts that began before the last failure
    belong to an older ``round``: they fail for the same reason and count once.
    """

    def __init__(self, config: PoolConfig, jitter: Callable[[], float]) -> None:
        self._config = config
        self._jitter = jitter
        self._failures = 0
        self._sound_since = float("-inf")
        self.phase = PoolPhase.RUNNING
        self.round = 0
        self.cause = ""
        self.retry_at = float("-inf")
        """When an attempt may begin that a call waits for."""
        self.probe_at = float("-inf")
        """When an attempt may begin that only fills the pool."""

    @property
    def max_creating(self) -> int:
        return self._config.max_creating if self.phase is PoolPhase.RUNNING else 1

    def allows(self, now: float, *, needed: bool) -> bool:
        """Whether an attempt may begin now; ``needed``: a call waits for it."""
        return self.phase is PoolPhase.RUNNING or now >= (self.retry_at if needed else self.probe_at)

    def succeeded(self, now: float) -> None:
        """A sandbox became ready. Failures are forgotten only once this has held for a while, or when a
        run went through (:meth:`proved`): a sandbox may come up and die at once."""
        if self.phase is not PoolPhase.RUNNING:
            self.phase = PoolPhase.RUNNING
            self._sound_since = now
            self.retry_at = self.probe_at = float("-inf")

    def proved(self) -> None:
        """A sandbox was used to its end. Says nothing while creations fail: it may have been made before."""
        if self.phase is PoolPhase.RUNNING:
            self._failures = 0

    def failed(self, now: float, began_in_round: int, cause: str, *, lasting: bool) -> bool:
        """An attempt failed; ``lasting``: the next one will too until a person does something.

        Returns whether that is news: for an attempt of an older round the cause is known already, and may
        say more than that of one that was only cut off.
        """
        if began_in_round < self.round:
            if not (lasting and self.phase is PoolPhase.FAILING):
                return False
            self.cause = cause
            self.phase = PoolPhase.OPEN
            return True
        self.cause = cause
        if self.phase is PoolPhase.RUNNING and now - self._sound_since >= self._config.young_time:
            self._failures = 0
        self._failures += 1
        self.round += 1
        delay = self._delay()
        self.probe_at = now + delay
        self.retry_at = now + min(delay, self._config.max_call_delay)
        opens = lasting or self._failures >= self._config.failures_to_open
        self.phase = PoolPhase.OPEN if opens else PoolPhase.FAILING
        return True

    def _delay(self) -> float:
        doubled = self._config.first_delay * 2.0 ** min(self._failures - 1, _MAX_DOUBLINGS)
        return min(doubled, self._config.max_delay) * (1.0 - self._config.delay_jitter * self._jitter())
