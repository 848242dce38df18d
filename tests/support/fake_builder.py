"""A builder in memory for tests of the environment store: slow, failing or dying on demand."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from python_exec_sandbox.model.environment import BuildOutcome, BuildRequest, BuiltEnvironment, Package


def built(number: int = 1, *, reused: bool = False, fresh_seconds: float | None = None) -> BuiltEnvironment:
    """A whole environment, told from others by ``number``."""
    return BuiltEnvironment(f"/store/envs/{number:032x}", (Package("six", "1.0"),), reused, fresh_seconds)


@dataclass
class Build:
    """How one build goes: says ``words``, waits for ``gate`` if there is one, then ends."""

    outcome: BuildOutcome | Exception = field(default_factory=built)
    gate: anyio.Event | None = None
    words: tuple[str, ...] = ()
    began: anyio.Event = field(default_factory=anyio.Event)
    cancelled: bool = False
    cleaned: anyio.Event = field(default_factory=anyio.Event)
    """Set once a cancelled build has ended whatever it had started."""


class FakeBuilder:
    """Fulfils :class:`~python_exec_sandbox.drivers.building.Builder`, one ``Build`` after the other."""

    def __init__(self, *builds: Build) -> None:
        self._builds = list(builds)
        self.requests: list[BuildRequest] = []
        self.running = 0
        self.most_running = 0

    async def build(self, request: BuildRequest, progress: Callable[[str], None]) -> BuildOutcome:
        self.requests.append(request)
        build = self._builds.pop(0) if self._builds else Build(built(len(self.requests)))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._play(build, progress)
        except anyio.get_cancelled_exc_class():
            build.cancelled = True
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            build.cleaned.set()
            raise
        finally:
            self.running -= 1

    async def _play(self, build: Build, progress: Callable[[str], None]) -> BuildOutcome:
        build.began.set()
        for words in build.words:
            progress(words)
        await (build.gate.wait() if build.gate is not None else anyio.lowlevel.checkpoint())
        if isinstance(build.outcome, Exception):
            raise build.outcome
        return build.outcome
