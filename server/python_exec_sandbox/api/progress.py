"""Progress notifications of one call: which phase it is in, at a pace that clients can bear.

Clients end a call after about a minute of silence and reset that clock with each notification; so one is
sent at each change of phase, at most one a second, and at least one each 15 s. A call that is answered
within the first second sends none.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from python_exec_sandbox.model.result import OutputStream, Phase

TICK_SECONDS = 1.0
LONGEST_SILENCE_SECONDS = 15.0

Send = Callable[[float, str], Awaitable[None]]


@dataclass(slots=True)
class Progress:
    """What is known of a call's progress, and the task that tells the client.

    ``activity`` says what keeps sandboxes from being made (an image being built), or ``None``.
    """

    send: Send
    activity: Callable[[], str | None]
    tick: float = TICK_SECONDS
    silence: float = LONGEST_SILENCE_SECONDS
    _phase: Phase = field(default=Phase.WAITING, init=False)
    _words: str = field(default="waiting for a sandbox", init=False)
    _last_value: float = field(default=0.0, init=False)

    def phase(self, phase: Phase, detail: str) -> None:
        """Take note of a phase, as a run's listener."""
        self._phase = phase
        self._words = detail

    async def output(self, stream: OutputStream, data: bytes) -> None:
        """Output is no progress: a script may print for ever."""

    async def report(self) -> None:
        """Send notifications until cancelled; values rise strictly."""
        started = anyio.current_time()
        told = ""
        told_at = started
        while True:
            await anyio.sleep(self.tick)  # the pace is the point: at most one notification a tick
            words = self._now()
            now = anyio.current_time()
            if words != told or now - told_at >= self.silence:
                elapsed = now - started
                told, told_at = words, now
                await self.send(self._rising(elapsed), f"{words}, {elapsed:.0f} s so far")

    def _now(self) -> str:
        return (self.activity() if self._phase is Phase.WAITING else None) or self._words

    def _rising(self, elapsed: float) -> float:
        """Elapsed seconds, rounded, but always above what was sent before."""
        self._last_value = max(round(elapsed, 1), math.nextafter(self._last_value, math.inf))
        return self._last_value
