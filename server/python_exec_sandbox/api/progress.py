"""Progress notifications of one call: which phase it is in, at a pace that clients can bear.

Clients end a call after about a minute of silence and reset that clock with each notification; so one is
sent at each change of phase, at most one a second, and at least one each 15 s. A call that is answered
within the first second sends none.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from python_exec_sandbox.model.result import OutputStream, Phase

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
LONGEST_SILENCE_SECONDS = 15.0

Send = Callable[[float, str], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Progress:
    """What is known of a call's progress, and what its client was told of it.

    ``activity`` says what keeps sandboxes from being made (an image being built), or ``None``. A
    :class:`Reporter` does the telling.
    """

    send: Send
    activity: Callable[[], str | None]
    tick: float = TICK_SECONDS
    silence: float = LONGEST_SILENCE_SECONDS
    _phase: Phase = field(default=Phase.WAITING, init=False)
    _words: str = field(default="waiting for a sandbox", init=False)
    _began: float = field(default_factory=anyio.current_time, init=False)
    _looked: float = field(init=False)
    _told: str = field(default="", init=False)
    _told_at: float = field(init=False)
    _last_value: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._looked = self._told_at = self._began

    @property
    def due(self) -> float:
        """When there may next be something to tell: the pace is at most one notification a tick."""
        return self._looked + self.tick

    def phase(self, phase: Phase, detail: str) -> None:
        """Take note of a phase, as a run's listener."""
        self._phase = phase
        self._words = detail

    async def output(self, stream: OutputStream, data: bytes) -> None:
        """Output is no progress: a script may print for ever."""

    async def tell(self) -> None:
        """Send a notification if there is news or silence has lasted; values rise strictly."""
        words = self._now()
        self._looked = now = anyio.current_time()
        if words != self._told or now - self._told_at >= self.silence:
            elapsed = now - self._began
            self._told, self._told_at = words, now
            await self.send(self._rising(elapsed), f"{words}, {elapsed:.0f} s so far")

    def _now(self) -> str:
        return (self.activity() if self._phase is Phase.WAITING else None) or self._words

    def _rising(self, elapsed: float) -> float:
        """Elapsed seconds, rounded, but always above what was sent before."""
        self._last_value = max(round(elapsed, 1), math.nextafter(self._last_value, math.inf))
        return self._last_value


@dataclass(slots=True, eq=False)
class Reporter:
    """Tells the client of all its calls under way, in one task: a call that is answered within a tick, as nearly
    all are, needs none of its own."""

    _calls: list[Progress] = field(default_factory=list)
    _begun: anyio.Event = field(default_factory=anyio.Event)

    @contextmanager
    def telling_of(self, progress: Progress) -> Iterator[None]:
        """The time in which the client is told of this call; nothing is begun to be told after it."""
        self._calls.append(progress)
        self._begun.set()
        try:
            yield
        finally:
            self._calls.remove(progress)

    async def run(self) -> None:
        """Send notifications until cancelled."""
        while True:
            while not self._calls:
                self._begun = anyio.Event()
                await self._begun.wait()
            # A call that begins meanwhile is due later than those before it.
            await anyio.sleep_until(min(progress.due for progress in self._calls))
            for progress in tuple(self._calls):
                if progress in self._calls and progress.due <= anyio.current_time():
                    await self._tell(progress)

    async def _tell(self, progress: Progress) -> None:
        try:
            await progress.tell()
        except Exception:  # whatever keeps one from being told, calls go on
            logger.warning("a client could not be told of progress", exc_info=True)
