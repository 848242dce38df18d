"""How a run ended: what the sandbox reported, and what it means."""

from dataclasses import dataclass, field
from enum import StrEnum


class OutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class Phase(StrEnum):
    """Where a run is; each has its own clock and its own words in progress messages."""

    WAITING = "waiting"
    INSTALLING = "installing"
    RUNNING = "running"


class StopReason(StrEnum):
    """Why the runner says a run is over. Only the runner and the server set it, never the script."""

    EXITED = "exited"
    """The script's own process ended; ``exit_code`` or ``signal`` says how."""
    RUN_TIME = "run_time"
    INSTALL_TIME = "install_time"
    INSTALL_FAILED = "install_failed"
    """The script never started; ``notes`` holds what the installer said."""
    ENVIRONMENT_GONE = "environment_gone"
    """The script never started; its environment is not in the store any more."""
    OUTPUT_LIMIT = "output_limit"
    STOPPED = "stopped"
    """The server asked for it (cancel, shutdown)."""
    LOST = "lost"
    """The sandbox went away or misbehaved; ``loss`` says how."""


class Loss(StrEnum):
    """How a sandbox was lost in the middle of a run."""

    MEMORY = "memory"
    """The kernel's memory killer took the sandbox itself."""
    KILLED = "killed"
    """Ended from outside, for example by ``docker kill`` or an engine restart."""
    SILENT = "silent"
    """It stopped answering, for example because it was paused."""
    PROTOCOL = "protocol"
    """It sent bytes that the runner protocol doesn't allow."""
    FAULT = "fault"
    """The runner itself failed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run used. Seconds are monotonic, memory is the sandbox's peak.

    ``memory_kills`` and ``process_refusals`` are the growth of the kernel's counters for this sandbox;
    ``None`` where the kernel doesn't tell. ``full_paths`` are writable paths with no room left at the end.
    """

    run_seconds: float = 0.0
    install_seconds: float = 0.0
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    memory_kills: int | None = None
    process_refusals: int | None = None
    full_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a sandbox tells of a run, before it is judged.

    ``exit_code`` and ``signal`` are the script's own and exclude each other; both are ``None`` when it
    did not end by itself. ``notes`` is the installer's text, or the detail of a loss.
    """

    reason: StopReason
    exit_code: int | None = None
    signal: int | None = None
    loss: Loss | None = None
    notes: str = ""
    warm: bool = False
    usage: Usage = field(default_factory=Usage)


class Verdict(StrEnum):
    """Who or what ended a run; the words clients see."""

    OK = "ok"
    FAILED = "failed"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    PROCESS_LIMIT = "process_limit"
    DISK_FULL = "disk_full"
    OUTPUT_LIMIT = "output_limit"
    REQUIREMENTS_FAILED = "requirements_failed"
    CANCELLED = "cancelled"
    SANDBOX_LOST = "sandbox_lost"
