"""How many warm sandboxes of which Python version are wanted. Pure."""

from python_exec_sandbox.pool.config import PoolConfig


class WarmPlan:
    """The default version, and one each of the versions that calls asked for lately.

    At most ``max_other_pythons`` versions are remembered, whatever calls ask for.
    """

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self._asked_at: dict[str, float] = {}

    def asked(self, python: str, now: float) -> None:
        """A call wants this version."""
        if python != self._config.default_python:
            self._asked_at.pop(python, None)
            self._asked_at[python] = now
            if len(self._asked_at) > self._config.max_other_pythons:
                del self._asked_at[next(iter(self._asked_at))]

    def targets(self, now: float) -> dict[str, int]:
        """Version -> number, most important first; together never more than ``max_total``."""
        targets = {self._config.default_python: self._config.idle_target}
        room = self._config.max_total - self._config.idle_target
        for python in reversed(self._asked_at):
            if room > 0 and self._config.idle_target > 0 and now < self._forget_at(python):
                targets[python] = 1
                room -= 1
        return targets

    def moments(self) -> list[float]:
        """The instants at which a version is wanted no more."""
        return [self._forget_at(python) for python in self._asked_at]

    def _forget_at(self, python: str) -> float:
        return self._asked_at[python] + self._config.recent_time
