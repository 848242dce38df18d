"""Turns a result into what a model reads, and into data for programs. Knows nothing of MCP."""

from dataclasses import asdict, dataclass
from typing import Any

from python_exec_sandbox.api.hints import hints
from python_exec_sandbox.environments.records import Environment
from python_exec_sandbox.model.result import OutputStream, Verdict
from python_exec_sandbox.model.traffic import Traffic
from python_exec_sandbox.run.records import RunResult
from python_exec_sandbox.run.units import show_bytes, show_seconds
from python_exec_sandbox.stream.capture import Captured
from python_exec_sandbox.stream.clean import clean_text
from python_exec_sandbox.stream.excerpt import Cleaned, clean_captured, fit, share

SHOW_CHARACTERS = 8000
"""Clients cut between 10,000 and 50,000 characters; the rest is for our own lines."""

NOTICED_SECONDS = 0.1
"""Shorter waits are not worth a word."""

NOTICED_MEMORY_BYTES = 32 * 1024 * 1024
"""The runner and a bare interpreter alone peak at some 21 MiB."""


SHOWN_HOSTS = 5
SHOWN_REFUSALS = 3

NOT_SANDBOXED = "not sandboxed"
"""Said in the first line, in a note and in the facts of each answer that this is true of."""


@dataclass(frozen=True, slots=True)
class Presented:
    """``is_error`` is true for whatever the caller can act on. All strings can be encoded as UTF-8."""

    text: str
    is_error: bool


def present(
    result: RunResult,
    *,
    show_chars: int = SHOW_CHARACTERS,
    reader: str = "read_output",
    can_install: bool = True,
) -> Presented:
    """The text of ``result``: status, reason, what it printed, advice, one line of facts.

    At most ``show_chars`` characters of output are shown, head and tail; ``reader`` is the tool that
    reads the rest of what was kept, or empty when there is none; ``can_install`` whether packages can be had.
    """
    stdout, stderr = clean_captured(result.stdout), clean_captured(result.stderr)
    room = share(stdout.characters, stderr.characters, show_chars)
    parts = [clean_text(result.headline) + (f" ({NOT_SANDBOXED})" if result.unsandboxed else "")]
    if result.sentence:
        parts.append(clean_text(result.sentence))
    parts += _section(OutputStream.STDOUT, fit(stdout, room[0]), result, reader)
    parts += _section(OutputStream.STDERR, fit(stderr, room[1]), result, reader)
    parts += hints(result, stderr.tail or stderr.head, can_install=can_install)
    parts += [f"Note: {clean_text(note)}" for note in (*result.notes, *_refusals(result.traffic))]
    if result.unsandboxed:
        parts.append(f"Note: {NOT_SANDBOXED}: {clean_text(result.unsandboxed)}")
    parts.append(_facts(result))
    return Presented(text="\n".join(parts), is_error=result.verdict is not Verdict.OK)


def meta(result: RunResult) -> dict[str, Any]:
    """``result`` as JSON-safe data, without what it printed."""
    usage = asdict(result.usage)
    usage["full_paths"] = [clean_text(path) for path in result.usage.full_paths]
    return {
        "run_id": result.run_id,
        "verdict": str(result.verdict),
        "headline": clean_text(result.headline),
        "sentence": clean_text(result.sentence),
        "exit_code": result.exit_code,
        "signal": result.signal,
        "python": result.python,
        "driver": result.driver,
        "sandboxed": not result.unsandboxed,
        "unsandboxed": clean_text(result.unsandboxed),
        "warm": result.warm,
        "requirements": [clean_text(one) for one in result.requirements],
        "environment": _environment_data(result.environment),
        "timeout_seconds": result.timeout_seconds,
        "wait_seconds": round(result.wait_seconds, 6),
        "total_seconds": round(result.total_seconds, 6),
        "usage": usage,
        "stdout": _amounts(result.stdout),
        "stderr": _amounts(result.stderr),
        "notes": [clean_text(note) for note in result.notes],
        "network": _network_data(result.traffic),
    }


def _amounts(captured: Captured) -> dict[str, int]:
    return {
        "total_bytes": captured.total_bytes,
        "dropped_bytes": captured.dropped_bytes,
        "dropped_lines": captured.dropped_lines,
    }


def _section(stream: OutputStream, shown: Cleaned, result: RunResult, reader: str) -> list[str]:
    """A heading and the text under it; nothing for an empty stream."""
    if not (shown.head or shown.tail or shown.dropped_bytes):
        return []
    lines = [f"--- {stream} ---"]
    if shown.head:
        lines.append(shown.head.removesuffix("\n"))
    if shown.dropped_bytes:
        lines.append(_marker(stream, shown, result, reader))
    if shown.tail:
        lines.append(shown.tail.removesuffix("\n"))
    return lines


def _marker(stream: OutputStream, shown: Cleaned, result: RunResult, reader: str) -> str:
    captured = result.stdout if stream is OutputStream.STDOUT else result.stderr
    lines = "1 line" if shown.dropped_lines == 1 else f"{shown.dropped_lines:,} lines"
    text = f"[... {shown.dropped_bytes:,} bytes ({lines}) left out"
    if captured.dropped_bytes:
        text += f", {captured.dropped_bytes:,} bytes of them not kept"
    if reader and shown.dropped_bytes > captured.dropped_bytes:
        # The head is the beginning of the kept text, in whose characters offsets count.
        text += f'; {reader}(run_id="{result.run_id}", stream="{stream}", offset={len(shown.head)}) goes on from here'
    return text + " ...]"


def _facts(result: RunResult) -> str:
    """One line for whoever wants to know how it was run."""
    usage = result.usage
    sandbox = f"sandbox {result.driver}" + (f" ({NOT_SANDBOXED})" if result.unsandboxed else "")
    facts = [f"python {result.python}", sandbox]
    if result.environment is not None:
        facts.append(f"environment: {_environment(result.environment)}")
    elif result.requirements:
        facts.append(f"{_requirements(result)} in {show_seconds(usage.install_seconds)}")
    if result.wait_seconds >= NOTICED_SECONDS:
        facts.append(f"waited {show_seconds(result.wait_seconds)} for a sandbox")
    if usage.cpu_seconds is not None and usage.cpu_seconds >= NOTICED_SECONDS:
        facts.append(f"cpu {show_seconds(usage.cpu_seconds)}")
    if usage.peak_memory_bytes is not None and usage.peak_memory_bytes >= NOTICED_MEMORY_BYTES:
        facts.append(f"peak memory {show_bytes(usage.peak_memory_bytes)}")
    if result.stdout.dropped_bytes or result.stderr.dropped_bytes:
        printed = result.stdout.total_bytes + result.stderr.total_bytes
        facts.append(f"output cut: {show_bytes(printed)} printed")
    if result.traffic.hosts:
        facts.append(f"network: {_contacted(result.traffic)}")
    facts.append(f"run {result.run_id}")
    return clean_text(f"[{'; '.join(facts)}]")


def _refusals(traffic: Traffic) -> list[str]:
    """What the network did not let through, in a few lines: whether a script shows its own errors is its business."""
    lines = [
        f"The network refused {one.host}:{one.port}: {one.text}." for one in traffic.refused[:SHOWN_REFUSALS]
    ]
    if more := len(traffic.refused) - len(lines) + traffic.other_refusals:
        lines.append(f"The network refused {more} more.")
    return lines


def _contacted(traffic: Traffic) -> str:
    shown = [
        f"{one.host}:{one.port} {show_bytes(one.received_bytes)} in, {show_bytes(one.sent_bytes)} out"
        for one in traffic.hosts[:SHOWN_HOSTS]
    ]
    if rest := traffic.hosts[SHOWN_HOSTS:]:
        received = sum(one.received_bytes for one in rest) + traffic.other_received_bytes
        sent = sum(one.sent_bytes for one in rest) + traffic.other_sent_bytes
        many = f"more than {len(rest)}" if traffic.other_connections else f"{len(rest)}"
        shown.append(f"{many} others {show_bytes(received)} in, {show_bytes(sent)} out")
    return ", ".join(shown)


def _network_data(traffic: Traffic) -> dict[str, Any]:
    hosts, refused = [asdict(one) for one in traffic.hosts], [asdict(one) for one in traffic.refused]
    for one in (*hosts, *refused):
        one.update({key: clean_text(value) for key, value in one.items() if isinstance(value, str)})
    sums = {name: value for name, value in asdict(traffic).items() if name.startswith("other_")}
    return {"hosts": hosts, "refused": refused, **sums}


def _environment(environment: Environment) -> str:
    return "reused" if environment.reused else f"built in {show_seconds(environment.seconds)}"


def _environment_data(environment: Environment | None) -> dict[str, Any] | None:
    if environment is None:
        return None
    return {
        "reused": environment.reused,
        "seconds": round(environment.seconds, 6),
        "packages": {clean_text(one.name): clean_text(one.version) for one in environment.packages},
    }


def _requirements(result: RunResult) -> str:
    count = "1 requirement" if len(result.requirements) == 1 else f"{len(result.requirements)} requirements"
    if result.verdict is Verdict.REQUIREMENTS_FAILED:
        return f"{count} tried"
    return f"{count} installed"
