"""Tells whether a script could run, without running it."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.model.result import Verdict
from python_exec_sandbox.run.own_programs import CHECK_SYNTAX, OwnProgram, run_own
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult
from python_exec_sandbox.run.signals import signal_name
from python_exec_sandbox.run.units import show_seconds
from python_exec_sandbox.script.module_names import is_removed, package_of

if TYPE_CHECKING:
    from python_exec_sandbox.run.resolving import Resolver, Versions
    from python_exec_sandbox.script.intake import Examined  # imports packaging, which serving starts without

COMPILE_SECONDS = 20.0
"""Ten megabytes of source take some seconds; what takes longer is no script for a sandbox."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_SEPARATORS = re.compile(r"[-_.]+")


class Validates(Protocol):
    """The part of the executor that validation needs."""

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult: ...

    async def examine(self, request: RunRequest) -> "Examined": ...


Text = Annotated[str, StringConstraints(max_length=1000)]


class Complaint(BaseModel):
    """What the compiler said about one place; ``line`` and ``column`` count from 1, where it named them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Text
    message: Text
    line: int | None = None
    column: int | None = None
    text: Text = ""


class Import(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    module: Text
    line: int


class Compiled(BaseModel):
    """What our checker answers from inside a sandbox."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    python: Text
    error: Complaint | None
    warnings: tuple[Complaint, ...]
    imports: tuple[Import, ...]


@dataclass(frozen=True, slots=True)
class Validation:
    """``problems`` are sentences without the compiler's; ``python`` is the version the script would run with,
    ``None`` when none fits, and ``compiled`` what the compiler of ``compiled.python`` says, ``None`` when it
    said nothing: ``unchecked`` tells why then. ``missing`` are modules that nothing named seems to bring."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    requirements: tuple[str, ...]
    python: str | None
    compiled: Compiled | None = None
    unchecked: str = ""
    cause: SandboxError | None = None
    missing: tuple[Import, ...] = ()
    versions: "Versions | None" = None
    """What the requirements lead to; ``None`` when nobody asked, or when they can't be read."""
    unsandboxed: str = ""
    """Why it was compiled on the machine itself; empty when in a sandbox."""

    @property
    def is_valid(self) -> bool:
        return not self.problems and self.compiled is not None and self.compiled.error is None


async def validate(
    executor: Validates,
    request: RunRequest,
    listener: RunListener,
    *,
    longest: float,
    resolver: "Resolver | None" = None,
) -> Validation:
    """What is wrong with ``request``, all at once; nothing of its script is executed.

    The compiler gets ``longest`` seconds at most; a ``resolver`` is asked for versions. What keeps it from being asked is part of the answer.
    """
    examined = await executor.examine(request)
    problems = list(examined.problems)
    compiled: Compiled | None = None
    cause: SandboxError | None = None
    unchecked = "the script could not be read"
    unsandboxed = ""
    if examined.source is not None:
        program = OwnProgram(CHECK_SYNTAX, "compiling the script", min(COMPILE_SECONDS, longest))
        try:
            result, answer = await run_own(
                executor, program, listener, stdin=examined.source.data, python=examined.python
            )
        except SandboxError as error:
            unchecked, cause = str(error), error
        else:
            compiled, unchecked, problem = _understood(result, answer)
            unsandboxed = result.unsandboxed
            problems += [problem] if problem else []
    versions: Versions | None = None
    if resolver is not None and examined.python is not None and not examined.problems:
        versions = await resolver.resolve(
            examined.python, examined.requirements, listener, examined.exclude_newer
        )
        problems += [versions.problem] if versions.problem else []
    brought = [package.name for package in versions.packages] if versions else []
    return Validation(
        problems=tuple(problems),
        notes=examined.notes,
        requirements=examined.requirements,
        python=examined.python,
        compiled=compiled,
        unchecked=unchecked,
        cause=cause,
        # As long as the requirements can't be read, nobody knows what they bring.
        missing=_missing(compiled, (*examined.requirements, *brought))
        if compiled and not examined.problems
        else (),
        versions=versions,
        unsandboxed=unsandboxed,
    )


def _understood(result: RunResult, answer: bytes) -> tuple[Compiled | None, str, str]:
    """What the checker says; or why it says nothing, and what that means for the script, if anything."""
    python = f"the compiler of Python {result.python}"
    match result.verdict:
        case Verdict.OK:
            try:
                return Compiled.model_validate_json(answer), "", ""
            except ValidationError:
                return None, "the checker's answer can't be read", ""
        case Verdict.OUT_OF_MEMORY:
            limit = result.headline.partition("limit ")[2]
            return None, f"{python} ran out of memory", (
                f"Compiling the script takes more memory than a sandbox has ({limit}), so that it can't run either. "
                "Make it smaller: move data out of the source, for example to stdin."
            )  # fmt: skip
        case Verdict.SIGNALLED:
            name = signal_name(result.signal or 0)
            return None, f"{python} crashed", (
                f"The compiler of Python {result.python} crashes on the script ({name}), as it would at a run: expressions nested "
                "too deeply are the likely cause. Nest them less."
            )  # fmt: skip
        case Verdict.TIMED_OUT:
            limit = show_seconds(result.timeout_seconds)
            return None, f"{python} did not finish within {limit}; make the script smaller or simpler", ""
        case _:
            return None, f"{result.headline}. {result.sentence}".strip(), ""


def _missing(compiled: Compiled, requirements: tuple[str, ...]) -> tuple[Import, ...]:
    named = {_canonical(name[0]) for one in requirements if (name := _NAME.match(one))}
    return tuple(
        one
        for one in compiled.imports
        if is_removed(one.module) or not {_canonical(one.module), _canonical(_package(one.module))} & named
    )


def _package(module: str) -> str:
    package = package_of(module) or module
    name = _NAME.match(package)
    return name[0] if name else package


def _canonical(name: str) -> str:
    """A package's name in the form in which equal ones are equal (PEP 503)."""
    return _SEPARATORS.sub("-", name).lower()
