"""Where a job's packages come from: an environment of the store, or the sandbox itself."""

from dataclasses import dataclass, replace
from typing import Protocol

from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.model.environment import BuildFailed, BuildFault
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.result import Phase
from python_exec_sandbox.run.records import RunListener


class ProvidesEnvironments(Protocol):
    """The part of the environment store that a run needs."""

    async def obtain(
        self,
        python: str,
        requirements: tuple[str, ...],
        install_seconds: float,
        say: "Say",
        exclude_newer: str = "",
    ) -> Environment | BuildFailed:
        """See :class:`~python_exec_sandbox.environments.store.EnvironmentStore`."""

    def forget(self, path: str) -> None:
        """Build it anew next time: the environment at ``path`` has gone."""


class Say(Protocol):
    def __call__(self, words: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Installed:
    """The job as a sandbox gets it; ``environment`` is ``None`` when that has to install by itself, or has
    nothing to install."""

    job: Job
    environment: Environment | None = None


class Packages:
    """Gets jobs their packages. ``in_sandbox``: whether a sandbox could install some by itself;
    ``fetched``: Pythons that only the store has."""

    def __init__(
        self,
        environments: ProvidesEnvironments | None,
        *,
        in_sandbox: bool,
        fetched: tuple[str, ...] = (),
    ) -> None:
        self._environments = environments
        self._in_sandbox = in_sandbox
        self.fetched = fetched

    @property
    def keeps_cutoffs(self) -> bool:
        """Whether a script's own cutoff for packages is kept."""
        return self._environments is not None

    @property
    def can_install(self) -> bool:
        return self._in_sandbox or self._environments is not None

    async def install(self, job: Job, listener: RunListener) -> Installed | BuildFailed:
        """Everything for ``job`` that can be installed before it has a sandbox, or why that failed.

        Raises:
            DriverError: there is no place to install in.
        """
        is_fetched = job.python in self.fetched
        if self._environments is None or not (job.requirements or is_fetched):
            return Installed(job)
        wanted = few(job.requirements) or f"Python {job.python}"

        def say(words: str) -> None:
            listener.phase(Phase.INSTALLING, f"installing {wanted}: {words}")

        listener.phase(Phase.INSTALLING, f"installing {wanted}")
        found = await self._environments.obtain(
            job.python, job.requirements, job.limits.install_seconds, say, job.exclude_newer
        )
        if isinstance(found, Environment):
            return Installed(replace(job, requirements=(), environment=found.path), found)
        if found.fault is BuildFault.NEEDS_SOURCE and self._in_sandbox and not job.exclude_newer:
            return Installed(job)  # the driver has no place for builds
        return found

    def forget(self, installed: Installed) -> None:
        """What was installed has gone."""
        if self._environments is not None and installed.environment is not None:
            self._environments.forget(installed.environment.path)


def few(requirements: tuple[str, ...]) -> str:
    """Some of ``requirements``, for a line."""
    shown = ", ".join(requirements[:3])
    more = len(requirements) - 3
    return f"{shown[:120]} and {more} more" if more > 0 else shown[:120]
