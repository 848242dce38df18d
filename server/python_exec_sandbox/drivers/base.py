"""The contract between the pool and whatever makes sandboxes.

A driver is a pure builder of specifications plus a thin caller. The pool alone calls :meth:`Driver.create`
and :meth:`Sandbox.destroy`, from tasks of its own, so that a cancelled request can leak nothing.
"""

from types import TracebackType
from typing import Protocol, Self

from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.result import OutputStream, Phase, RunReport


class Connection(Protocol):
    """One that a script has opened to the outside. One task at a time receives, one sends."""

    async def receive(self) -> bytes:
        """What the script sends, as soon as there is something; ``b""`` once it sends no more.

        Raises:
            OSError: the script gave the connection up.
        """

    async def send(self, data: bytes) -> None:
        """Return when ``data`` is under way; a script that doesn't read is waited for.

        Raises:
            OSError: the script gave the connection up.
        """

    async def send_end(self) -> None:
        """The script finds the end of what it was sent."""

    def abort(self) -> None:
        """Give the connection up: the script finds it reset."""


class RunWatcher(Protocol):
    """Whoever listens to a run while it goes on."""

    def phase(self, phase: Phase) -> None:
        """The run entered ``phase``. Must return at once."""

    async def output(self, stream: OutputStream, data: bytes) -> None:
        """The script wrote ``data`` (at most 512 KiB). Until this returns the script gets no more room:
        a slow watcher slows the script and fills no memory."""

    async def serve(self, connection: Connection) -> None:
        """The script has opened ``connection``: carry it to wherever the script asks for, until it is over. Called
        in a task of its own, which is cancelled at the run's end; whatever is left open is aborted."""


class Sandbox(Protocol):
    """One throwaway place where one script runs once."""

    @property
    def id(self) -> str:
        """Unique among all sandboxes ever made on this machine."""

    @property
    def python(self) -> str:
        """The version whose interpreter waits inside, such as ``"3.13"``."""

    @property
    def pythons(self) -> tuple[str, ...]:
        """All versions at hand inside, newest last."""

    @property
    def alive(self) -> bool:
        """Whether it can still be given to a run; costs nothing, does no I/O."""

    @property
    def watched(self) -> bool:
        """Whether :attr:`alive` would have turned false by now if somebody had stopped, paused or removed it
        from outside; costs nothing. If not, only :meth:`check` tells."""

    async def check(self) -> bool:
        """Ask the runner for a sign of life; ``False`` within 2 s when there is none."""

    async def wait_ended(self) -> None:
        """Return when the sandbox has died, for whatever reason; at once if it is dead already."""

    async def run(self, job: Job, watcher: RunWatcher) -> RunReport:
        """Run ``job``; the one run of this sandbox.

        Never raises for what a script, or the sandbox, does: a loss is a report too. When the call is
        cancelled the script's processes are told to end and the sandbox can't be used again.

        Raises:
            RuntimeError: it was used before (an error of the caller).
        """

    async def destroy(self) -> None:
        """End it and everything in it; returns when that is confirmed. May be called at any time,
        and again after a failure.

        Raises:
            DriverError: the end could not be confirmed; the caller tries again later.
        """


class Driver(Protocol):
    """Makes sandboxes of one kind. Entering the context costs nothing and needs no engine."""

    @property
    def name(self) -> str:
        """The word for this kind in results, such as ``"docker"``."""

    @property
    def activity(self) -> str | None:
        """What keeps :meth:`create` busy before a sandbox can be made ("building the sandbox image:
        step 3/9"), or ``None``; shown in progress messages."""

    async def create(self, python: str) -> Sandbox:
        """Make a sandbox in which an interpreter of ``python`` waits; returns when it is ready.

        Does first whatever the first sandbox needs (find the engine, build or pull the image). When
        cancelled, or when it fails, nothing of the sandbox is left.

        Raises:
            DriverError: with the cause and what to do.
        """

    async def sweep(self) -> int:
        """Remove what dead servers of this machine left behind, never anything of a living one;
        returns how many sandboxes were removed.

        Raises:
            DriverError: the engine could not be asked.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
