"""Messages of the runner protocol, version 3.

Control frames carry one JSON object with a ``type``. The runner greets first; each side then sends:

==========  ======  ==============================================================================
from        type    other keys
==========  ======  ==============================================================================
runner      hello   protocol: int, pythons: [str]
runner      ready   warm: bool; it waits for a job now
runner      pong    n: int, as in the ping
runner      phase   name: "installing" | "running"; only forward
runner      exit    reason, code: int|null, signal: int|null, notes: str, warm: bool, usage: {...};
                    after the END of stdout and stderr, and the last frame of all
runner      fault   text: str; the runner itself failed
runner      open    stream: int; the script has opened a connection to the outside
either      abort   stream: int; that connection is given up, both ways
server      ping    n: int
server      job     python, args, requirements, environment: str|null, script_bytes, run_seconds,
                    install_seconds, output_bytes; then streams SCRIPT and STDIN
server      stop    (none); end the run now
==========  ======  ==============================================================================

Streams: 1 stdin and 4 script travel to the runner, 2 stdout and 3 stderr to the server. Each starts with
a credit of :data:`WINDOW_BYTES`; the receiver grants more as it consumes. From 16 on streams are connections
of the script (:mod:`.connections`), only while it runs. Whatever breaks these rules, the sandbox's side is
over: :class:`~python_exec_sandbox.errors.ProtocolViolation`.
"""

import json
from dataclasses import dataclass
from typing import cast

from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.result import Phase, RunReport, StopReason, Usage

PROTOCOL_VERSION = 3

WINDOW_BYTES = 512 * 1024
"""Bytes a stream may be ahead of its reader: keeps a pipe busy over a slow link, bounds memory per stream."""

STDIN, STDOUT, STDERR, SCRIPT = 1, 2, 3, 4

_MAX_NOTES = 32 * 1024
_MAX_PYTHONS = 64
_SIGNALS = range(1, 65)
_REASONS = frozenset(StopReason) - {StopReason.LOST}


@dataclass(frozen=True, slots=True)
class Hello:
    pythons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    warm: bool


@dataclass(frozen=True, slots=True)
class Pong:
    n: int


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    phase: Phase


@dataclass(frozen=True, slots=True)
class Exited:
    report: RunReport


@dataclass(frozen=True, slots=True)
class Fault:
    text: str


@dataclass(frozen=True, slots=True)
class Open:
    stream: int


@dataclass(frozen=True, slots=True)
class Abort:
    stream: int


Message = Hello | Ready | Pong | PhaseEntered | Exited | Fault | Open | Abort


def ping(n: int) -> bytes:
    return _json({"type": "ping", "n": n})


def stop() -> bytes:
    return _json({"type": "stop"})


def abort(stream: int) -> bytes:
    return _json({"type": "abort", "stream": stream})


def job(work: Job) -> bytes:
    """The job's control message; script and stdin follow on their streams."""
    return _json(
        {
            "type": "job",
            "python": work.python,
            "args": work.args,
            "requirements": work.requirements,
            "environment": work.environment,
            "script_bytes": len(work.script),
            "run_seconds": work.limits.run_seconds,
            "install_seconds": work.limits.install_seconds,
            "output_bytes": work.limits.output_bytes,
        }
    )


_encode = json.JSONEncoder(
    separators=(",", ":")
).encode  # `json.dumps` would make an encoder for each message


def _json(message: dict[str, object]) -> bytes:
    return _encode(message).encode()


def parse(payload: bytes) -> Message:
    """A runner's control message.

    Raises:
        ProtocolViolation: not JSON, not an object, or a key missing, unknown in type or out of range.
    """
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation("a control frame is not JSON") from error
    if not isinstance(message, dict):
        raise ProtocolViolation("a control frame is not a JSON object")
    fields = _Fields(message)
    match message.get("type"):
        case "hello":
            return _hello(fields)
        case "ready":
            return Ready(fields.boolean("warm"))
        case "pong":
            return Pong(fields.count("n"))
        case "phase":
            return PhaseEntered(_phase(fields))
        case "exit":
            return Exited(_report(fields))
        case "fault":
            return Fault(fields.text("text", _MAX_NOTES))
        case "open" | "abort" as kind:
            return (Open if kind == "open" else Abort)(fields.count("stream"))
        case _:
            raise ProtocolViolation("a control frame of an unknown type")


def _hello(fields: "_Fields") -> Hello:
    version = fields.count("protocol")
    if version != PROTOCOL_VERSION:
        raise ProtocolViolation(
            f"the sandbox image speaks runner protocol {version}, this server {PROTOCOL_VERSION}: "
            "use the image that belongs to this version (leave --image unset to have it built)"
        )
    return Hello(fields.texts("pythons", _MAX_PYTHONS))


def _phase(fields: "_Fields") -> Phase:
    name = fields.text("name", 32)
    if name not in (Phase.INSTALLING, Phase.RUNNING):
        raise ProtocolViolation("an unknown phase")
    return Phase(name)


def _report(fields: "_Fields") -> RunReport:
    reason = fields.text("reason", 32)
    if reason not in _REASONS:
        raise ProtocolViolation("an unknown reason of exit")
    code, signal = fields.optional_count("code"), fields.optional_count("signal")
    ended = code is not None or signal is not None
    if (code is not None and signal is not None) or (reason == StopReason.EXITED and not ended):
        raise ProtocolViolation("an exit must name either a code or a signal")
    if (code is not None and code > 255) or (signal is not None and signal not in _SIGNALS):
        raise ProtocolViolation("an exit code or signal out of range")
    return RunReport(
        reason=StopReason(reason),
        exit_code=code,
        signal=signal,
        notes=fields.text("notes", _MAX_NOTES),
        warm=fields.boolean("warm"),
        usage=_usage(fields.object("usage")),
    )


def _usage(fields: "_Fields") -> Usage:
    return Usage(
        run_seconds=fields.seconds("run_seconds"),
        install_seconds=fields.seconds("install_seconds"),
        cpu_seconds=fields.seconds("cpu_seconds"),
        peak_memory_bytes=fields.optional_count("peak_memory_bytes"),
        memory_kills=fields.optional_count("memory_kills"),
        process_refusals=fields.optional_count("process_refusals"),
        full_paths=fields.texts("full_paths", 16),
    )


class _Fields:
    """Typed reading of a JSON object that nobody vouches for."""

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values

    def _wrong(self, name: str) -> ProtocolViolation:
        return ProtocolViolation(f"a control frame with a missing or wrong {name!r}")

    def boolean(self, name: str) -> bool:
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name)
        return value

    def optional_count(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise self._wrong(name)
        return value

    def count(self, name: str) -> int:
        value = self.optional_count(name)
        if value is None:
            raise self._wrong(name)
        return value

    def seconds(self, name: str) -> float:
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise self._wrong(name)
        return float(value)

    def text(self, name: str, limit: int) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or len(value) > limit:
            raise self._wrong(name)
        return value.encode("utf-8", "replace").decode("utf-8")  # JSON can carry lone surrogates

    def texts(self, name: str, limit: int) -> tuple[str, ...]:
        value = self._values.get(name)
        if not isinstance(value, list) or len(value) > limit:
            raise self._wrong(name)
        if not all(isinstance(item, str) and len(item) <= 256 and item.isprintable() for item in value):
            raise self._wrong(name)
        return tuple(cast("list[str]", value))

    def object(self, name: str) -> "_Fields":
        value = self._values.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name)
        return _Fields(value)
