"""Tells which versions a script's requirements lead to, without installing any."""

from dataclasses import dataclass
from typing import Protocol

from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, Package, Resolved
from python_exec_sandbox.model.limits import RunLimits
from python_exec_sandbox.model.result import Phase
from python_exec_sandbox.run.packages import Say, few
from python_exec_sandbox.run.records import RunListener
from python_exec_sandbox.run.verdict import DID_NOT_START, judge_build

NEEDS_SOURCE = (
    "A package of this set has no ready-built wheel, so that its versions can only be told by running code of packages:"
    " a run builds it in a sandbox"
)


class ResolvesVersions(Protocol):
    """The part of the environment store that is needed here."""

    async def resolve(
        self,
        python: str,
        requirements: tuple[str, ...],
        install_seconds: float,
        say: Say,
        exclude_newer: str = "",
    ) -> Resolved | BuildFailed:
        """See :class:`~python_exec_sandbox.environments.store.EnvironmentStore`."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The ``packages`` that would be installed; or ``problem``, what is wrong with the requirements, as a run
    would say it; or ``unknown``, why nobody can tell."""

    packages: tuple[Package, ...] = ()
    problem: str = ""
    unknown: str = ""


class Resolver:
    """Asks the store for versions. ``source_builds``: a run builds what has no wheel."""

    def __init__(
        self, environments: ResolvesVersions, install_seconds: float, *, source_builds: bool
    ) -> None:
        self._environments = environments
        self._install_seconds = install_seconds
        self._source_builds = source_builds

    async def resolve(
        self, python: str, requirements: tuple[str, ...], listener: RunListener, exclude_newer: str = ""
    ) -> Versions:
        """The versions of canonical PEP 508 lines; whatever fails is part of the answer."""
        if not requirements:
            return Versions()

        def say(words: str) -> None:
            listener.phase(Phase.INSTALLING, f"resolving {few(requirements)}: {words}")

        listener.phase(Phase.INSTALLING, f"resolving {few(requirements)}")
        try:
            found = await self._environments.resolve(
                python, requirements, self._install_seconds, say, exclude_newer
            )
        except SandboxError as error:
            return Versions(unknown=str(error))
        if isinstance(found, Resolved):
            return Versions(found.packages)
        if found.fault is BuildFault.NEEDS_SOURCE and self._source_builds:
            return Versions(unknown=NEEDS_SOURCE)
        limits = RunLimits(run_seconds=self._install_seconds, install_seconds=self._install_seconds)
        sentence = judge_build(found, limits, requirements).sentence
        return Versions(problem=sentence.removeprefix(DID_NOT_START).strip())
