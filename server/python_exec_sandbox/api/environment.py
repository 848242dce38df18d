"""The state of the server and of what it stands on, gathered anew each time."""

from dataclasses import dataclass, field

import anyio

from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.model.facts import DriverFacts
from python_exec_sandbox.pool.stats import PoolStats
from python_exec_sandbox.run.measuring import Measured, measure
from python_exec_sandbox.run.records import RunListener

FACTS_SECONDS = 4.0
"""An engine that is well answers in a tenth of a second. With the second that an ended call may take more, a
hung one is told of in about five."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What was found. ``failure`` is why no script can run, ``unmeasured`` why there is no measurement although
    scripts might run; one of the three, at least, is there."""

    pythons: tuple[str, ...] = ()
    facts: DriverFacts = field(default_factory=DriverFacts)
    stats: PoolStats | None = None
    measured: Measured | None = None
    remembered: bool = False
    """The measurement was made earlier, in a sandbox of the same image."""
    failure: SandboxError | None = None
    unmeasured: str = ""
    engine_failure: SandboxError | None = None
    """Why the engine could not be asked, although scripts can run without it."""

    @property
    def can_run(self) -> bool:
        return self.failure is None


class EngineSilentError(SandboxError):
    """The engine took too long to tell about itself."""


@dataclass(slots=True)
class Surveyor:
    """Gathers an :class:`Environment`; remembers one measurement, as long as sandboxes are made from the same."""

    longest: float
    """The longest run time that the settings allow."""
    _known: tuple[str, Measured] | None = None

    async def survey(
        self, backend: Backend, listener: RunListener, *, patience: float | None = None
    ) -> Environment:
        """What there is now. A missing engine is told within seconds; what must be built or pulled before the
        first sandbox is waited for at most ``patience`` seconds.

        Never raises for what is wrong; a cancelled survey gives up its sandbox."""
        pythons = backend.pythons
        facts, engine_failure = DriverFacts(), None
        try:
            facts = await _facts(backend)
        except SandboxError as error:
            if not backend.has_fallback:
                return Environment(pythons, stats=backend.stats(), failure=error)
            engine_failure = error
        if self._known is not None and facts.made_from == self._known[0]:
            return Environment(pythons, facts, backend.stats(), self._known[1], remembered=True)
        measured, failure, unmeasured = await self._measured(backend, listener, facts, patience)
        if measured is not None and facts.pending:  # it is there by now
            facts = await _facts_again(backend, facts)
        if measured is not None and not measured.unsandboxed and facts.made_from is not None:
            self._known = (facts.made_from, measured)
        return Environment(
            pythons,
            facts,
            backend.stats(),
            measured,
            failure=failure,
            unmeasured=unmeasured,
            engine_failure=engine_failure,
        )

    async def _measured(
        self, backend: Backend, listener: RunListener, facts: DriverFacts, patience: float | None
    ) -> tuple[Measured | None, SandboxError | None, str]:
        """A measurement, or why none could be made, or why it isn't there yet."""
        with anyio.move_on_after(patience):
            try:
                return await measure(backend.executor, listener, longest=self.longest), None, ""
            except SandboxError as error:
                return None, error, ""
        return None, None, _why_unmeasured(backend, facts)


async def _facts(backend: Backend) -> DriverFacts:
    with anyio.move_on_after(FACTS_SECONDS):
        return await backend.facts()
    raise EngineSilentError(
        f"The container engine did not answer within {FACTS_SECONDS:g} s: it hangs, or is still starting. "
        "Restart it if it stays like this, or name another with --docker-host."
    )


async def _facts_again(backend: Backend, before: DriverFacts) -> DriverFacts:
    try:
        return await _facts(backend)
    except SandboxError:
        return before


def _why_unmeasured(backend: Backend, facts: DriverFacts) -> str:
    doing = backend.activity() or (f"making {facts.pending}" if facts.pending else "waiting for a sandbox")
    return f"not yet: {doing}; ask again in a while"
