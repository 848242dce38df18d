"""One build that any number of runs wait for."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.model.environment import BuildFailed, BuiltEnvironment

Say = Callable[[str], None]


@dataclass(slots=True, eq=False)
class Flight:
    """Ends with an ``outcome`` or an ``error``; is cancelled when the last waiter has left."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: BuiltEnvironment | BuildFailed | None = None
    error: SandboxError | None = None
    listeners: list[Say] = field(default_factory=list)
    _words: str = ""

    def say(self, words: str) -> None:
        """Tell everyone who waits."""
        self._words = words
        for listener in self.listeners:
            listener(words)

    async def wait(self, say: Say) -> BuiltEnvironment | BuildFailed:
        """The outcome, once there is one.

        Raises:
            SandboxError: the build could not be made.
        """
        self.listeners.append(say)
        if self._words:
            say(self._words)
        try:
            await self.done.wait()
        finally:
            self.listeners.remove(say)
            if not self.listeners:
                self.scope.cancel()
        if self.error is not None:
            # A new one for each waiter: a shared one would collect the tracebacks of all.
            raise type(self.error)(str(self.error)) from self.error
        assert self.outcome is not None
        return self.outcome
