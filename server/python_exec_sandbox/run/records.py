"""What a caller asks of a run, what it hears meanwhile and what it gets back."""

from dataclasses import dataclass, field
from typing import Protocol

from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.model.limits import MIB, SandboxLimits
from python_exec_sandbox.model.result import OutputStream, Phase, Usage, Verdict
from python_exec_sandbox.model.traffic import Traffic
from python_exec_sandbox.stream.capture import Captured

SUPPORTED_PYTHONS = ("3.13", "3.14", "3.15")

FETCHED_PYTHONS = ("3.9", "3.10", "3.11", "3.12")
"""What uv can get beside them; older ones can't compile modules for another place."""
"""What the sandbox image carries; known before any sandbox is."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One script and how to run it. ``timeout_seconds`` is the script's own time, without waiting and
    installing; ``None`` means the default. ``python_version`` is a minor version or a range."""

    script: str | bytes
    dependencies: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    python_version: str | None = None
    args: tuple[str, ...] = ()
    stdin: str | bytes = b""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended and what it left.

    ``headline`` is the status at a glance, ``sentence`` the reason (may be empty), ``notes`` sentences about
    what was ignored or happened on the way. ``wait_seconds`` were spent waiting for a sandbox,
    ``total_seconds`` on all of it. ``stdin_given`` tells whether the script had any input.
    """

    run_id: str
    verdict: Verdict
    headline: str
    python: str
    driver: str
    sentence: str = ""
    exit_code: int | None = None
    signal: int | None = None
    stdout: Captured = field(default_factory=Captured)
    stderr: Captured = field(default_factory=Captured)
    usage: Usage = field(default_factory=Usage)
    requirements: tuple[str, ...] = ()
    timeout_seconds: float = 0.0
    wait_seconds: float = 0.0
    total_seconds: float = 0.0
    warm: bool = False
    stdin_given: bool = False
    notes: tuple[str, ...] = ()
    unsandboxed: str = ""
    """Why it ran on the machine itself instead of in a sandbox; empty when it ran in one."""
    environment: Environment | None = None
    """Where its packages were, if they were not installed in the sandbox itself."""
    traffic: Traffic = field(default_factory=Traffic)
    """What it reached through the server, and what was refused; nothing where it has another network."""


class RunListener(Protocol):
    """Whoever wants to hear of a run while it goes on."""

    def phase(self, phase: Phase, detail: str) -> None:
        """The run entered ``phase``; ``detail`` says so in words. Must return at once."""

    async def output(self, stream: OutputStream, data: bytes) -> None:
        """The script wrote ``data``, which is kept as well. Until this returns the script gets no more
        room. An exception ends the run and reaches its caller."""


class SilentListener:
    """Hears everything and does nothing."""

    def phase(self, phase: Phase, detail: str) -> None:
        """Ignore it."""

    async def output(self, stream: OutputStream, data: bytes) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """The settings that runs depend on. ``fetched_pythons`` are those that sandboxes lack and the store can get. ``keep_bytes`` is how much of each stream is kept,
    ``output_kill_bytes`` how much of both together ends a run; ``driver`` is its name in results."""

    driver: str
    pythons: tuple[str, ...] = SUPPORTED_PYTHONS
    default_python: str = SUPPORTED_PYTHONS[0]
    fetched_pythons: tuple[str, ...] = ()
    sandbox: SandboxLimits = field(default_factory=SandboxLimits)
    default_run_seconds: float = 30.0
    max_run_seconds: float = 300.0
    install_seconds: float = 120.0
    queue_seconds: float = 120.0
    keep_bytes: int = 100 * 1024
    output_kill_bytes: int = 1024 * MIB
    guard_seconds: float = 10.0
    """How much longer than its limits a sandbox may take to report, before it counts as lost."""
    only_index: bool = False
    """Whether packages may come from indexes alone, and from no address that a caller names."""
    can_install: bool = True
    """Whether sandboxes have a network over which they could install packages themselves."""
