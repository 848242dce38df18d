"""Judges how a run ended. Pure; believes only what the runner and the kernel's counters say.

A script can print anything and exit with any code: it can reach ``ok``, ``failed`` and ``signalled`` that
way, and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from python_exec_sandbox.model.environment import BuildFailed, BuildFault
from python_exec_sandbox.model.limits import RunLimits, SandboxLimits
from python_exec_sandbox.model.result import Loss, RunReport, StopReason, Verdict
from python_exec_sandbox.run import install_failures, uv_text
from python_exec_sandbox.run.records import SUPPORTED_PYTHONS
from python_exec_sandbox.run.signals import signal_meaning, signal_name
from python_exec_sandbox.run.units import show_bytes, show_seconds
from python_exec_sandbox.stream.clean import clean_text

MAX_DETAIL_CHARACTERS = 300

NO_BUILDS = "It would have to be built from its source, and such builds are off here (--source-builds)."

DID_NOT_START = "The script did not start."

NOT_FETCHED = "The sandbox lacks the Python that the script asks for, and it could not be fetched"

ASK_FOR_ANOTHER = f"Ask for one that is there ({', '.join(SUPPORTED_PYTHONS)}), or run it again later."

NO_STORE_ROOM = "No room to install: the disk that packages are kept on is full. Free some of it."


@dataclass(frozen=True, slots=True)
class Judged:
    """``headline`` is the status at a glance (no full stop); ``sentence`` says why and what to do, and is
    empty where the headline says it all."""

    verdict: Verdict
    headline: str
    sentence: str = ""


def judge(
    report: RunReport, run: RunLimits, sandbox: SandboxLimits, requirements: Sequence[str] = ()
) -> Judged:
    """The verdict on ``report`` under these limits; ``requirements`` are those that were to be installed."""
    match report.reason:
        case StopReason.LOST:
            return _out_of_memory(report, sandbox) if report.loss is Loss.MEMORY else _lost(report)
        case StopReason.INSTALL_FAILED | StopReason.INSTALL_TIME:
            return _requirements_failed(report, run, sandbox, requirements)
        case StopReason.ENVIRONMENT_GONE:
            return _lost(RunReport(StopReason.LOST, loss=Loss.FAULT, notes="its packages had gone twice"))
        case StopReason.STOPPED:
            return Judged(Verdict.CANCELLED, "cancelled", "The run was stopped on request.")
        case StopReason.RUN_TIME | StopReason.OUTPUT_LIMIT | StopReason.EXITED:
            return _judge_started(report, run, sandbox)
    assert_never(report.reason)


def judge_build(failed: BuildFailed, run: RunLimits, requirements: Sequence[str]) -> Judged:
    """The verdict when there is no environment for ``requirements``."""
    headline = "dependencies failed"
    match failed.fault:
        case BuildFault.INSTALLER if uv_text.names_no_room(failed.text):
            reason = NO_STORE_ROOM
        case BuildFault.INSTALLER:
            reason = _installer_said(failed.text, requirements)
        case BuildFault.NEEDS_SOURCE:
            reason = f"{_installer_said(failed.text, requirements)} {NO_BUILDS}"
        case BuildFault.PYTHON:
            headline = "no such Python"
            reason = f"{NOT_FETCHED}: {uv_text.shorten(failed.text).rstrip('.')}. {ASK_FOR_ANOTHER}"
        case BuildFault.TIME:
            headline = f"timed out while installing: limit {show_seconds(run.install_seconds)}"
            reason = _took_longer(run)
        case BuildFault.MEMORY:
            reason = "The installation ran out of memory. Name fewer or smaller packages."
        case BuildFault.NO_ROOM:
            reason = NO_STORE_ROOM
        case BuildFault.FAULT:
            detail = _detail(failed.text)
            reason = f"The installer was ended{f' ({detail})' if detail else ''}. Run it again."
        case _:
            assert_never(failed.fault)
    return Judged(Verdict.REQUIREMENTS_FAILED, headline, f"{DID_NOT_START} {reason}")


def _installer_said(text: str, requirements: Sequence[str]) -> str:
    if blamed := install_failures.sentence(text, requirements):
        return blamed
    said, advice = uv_text.shorten(text), uv_text.advice(text, requirements)
    return f"{said.rstrip('.')}. {advice}" if said else advice


def _took_longer(run: RunLimits) -> str:
    return (
        f"Installing the dependencies took longer than {show_seconds(run.install_seconds)}. "
        "Run it again, or name fewer packages."
    )


def _judge_started(report: RunReport, run: RunLimits, sandbox: SandboxLimits) -> Judged:
    """The verdict on a run whose script was started and whose end the runner saw."""
    if report.usage.memory_kills:
        return _out_of_memory(report, sandbox)
    if report.reason is StopReason.RUN_TIME:
        return _timed_out(report, run, sandbox)
    if report.reason is StopReason.OUTPUT_LIMIT:
        return Judged(
            Verdict.OUTPUT_LIMIT,
            f"output limit: {show_bytes(run.output_bytes)}",
            "The script was stopped because it printed more than that. Print less, or write to a file.",
        )
    return _exited(report, sandbox)


def _out_of_memory(report: RunReport, sandbox: SandboxLimits) -> Judged:
    limit = show_bytes(sandbox.memory_bytes)
    advice = f"All its processes and the files in memory may use {limit} together; work in smaller pieces."
    if report.reason is StopReason.EXITED and report.exit_code == 0:
        what = "A part of the script (a child process) was killed for memory, although the script ended with exit 0."
    elif report.reason is StopReason.EXITED and report.exit_code is not None:
        what = (
            f"A part of the script was killed for memory; the script then ended with exit {report.exit_code}."
        )
    elif report.reason is StopReason.RUN_TIME:
        what = "A part of the script was killed for memory; the rest of it ran until the time limit."
    else:
        what = "The script was killed for memory."
    return Judged(Verdict.OUT_OF_MEMORY, f"out of memory: limit {limit}", f"{what} {advice}")


def _lost(report: RunReport) -> Judged:
    match report.loss:
        case Loss.KILLED:
            what = "The sandbox was ended from outside"
        case Loss.SILENT:
            what = "The sandbox stopped answering"
        case Loss.PROTOCOL:
            what = "The sandbox sent something that its protocol doesn't allow"
        case Loss.FAULT | Loss.MEMORY | None:
            what = "The sandbox failed"
        case _:
            assert_never(report.loss)
    detail = _detail(report.notes)
    return Judged(
        Verdict.SANDBOX_LOST,
        "sandbox lost",
        f"{what}{f' ({detail})' if detail else ''}. That is not your script's fault; run it again.",
    )


def _requirements_failed(
    report: RunReport, run: RunLimits, sandbox: SandboxLimits, requirements: Sequence[str]
) -> Judged:
    headline = "dependencies failed"
    if report.usage.memory_kills:
        reason = f"The installation ran out of memory (limit {show_bytes(sandbox.memory_bytes)})."
    elif report.usage.full_paths or uv_text.names_no_room(report.notes):  # uv frees the room when it fails
        reason = (
            f"No room to install: packages may take {show_bytes(sandbox.environment_bytes)} here (the /env share; "
            "start the server with a larger --memory). Name fewer or smaller packages."
        )
    elif report.reason is StopReason.INSTALL_TIME:
        headline = f"timed out while installing: limit {show_seconds(run.install_seconds)}"
        reason = _took_longer(run)
    else:
        reason = _installer_said(report.notes, requirements)
    return Judged(Verdict.REQUIREMENTS_FAILED, headline, f"{DID_NOT_START} {reason}")


def _timed_out(report: RunReport, run: RunLimits, sandbox: SandboxLimits) -> Judged:
    limit = show_seconds(run.run_seconds)
    sentence = f"The script was stopped at its time limit of {limit}; what it printed until then is kept."
    if report.usage.process_refusals:
        sentence += f" It also met the limit of {sandbox.processes} processes."
    if report.usage.full_paths:
        sentence += f" It also filled {_paths(report)}."
    return Judged(Verdict.TIMED_OUT, f"timed out after {limit}", sentence)


def _exited(report: RunReport, sandbox: SandboxLimits) -> Judged:
    after = f" in {show_seconds(report.usage.run_seconds)}"
    if report.exit_code is None and report.signal is None:
        return _lost(RunReport(reason=StopReason.LOST, loss=Loss.FAULT, notes="no exit status was reported"))
    if report.exit_code == 0:
        return Judged(Verdict.OK, f"exit 0{after}", _met_on_the_way(report, sandbox))
    ended = f"exit {report.exit_code}" if report.signal is None else _by_signal(report.signal)
    if report.usage.process_refusals:
        return Judged(
            Verdict.PROCESS_LIMIT,
            f"process limit: {sandbox.processes} ({ended}{after})",
            f"The script asked for more than {sandbox.processes} processes and threads at a time. Use fewer workers.",
        )
    if report.usage.full_paths:
        return Judged(
            Verdict.DISK_FULL,
            f"disk full: {_paths(report)} ({ended}{after})",
            f"No room was left: {_shares(report, sandbox)}. Write less, remove files that are no longer needed, or "
            "start the server with a larger --disk.",
        )
    if report.signal is not None:
        return Judged(Verdict.SIGNALLED, f"{ended}{after}", _signal_sentence(report, sandbox))
    return Judged(Verdict.FAILED, f"{ended}{after}")


def _by_signal(number: int) -> str:
    return (
        f"killed by {signal_name(number)} ({number})" if number <= 31 else f"killed by {signal_name(number)}"
    )


def _signal_sentence(report: RunReport, sandbox: SandboxLimits) -> str:
    number = report.signal or 0
    if signal_name(number) == "SIGKILL" and report.usage.memory_kills is None:
        return (
            "The kernel doesn't tell here whether memory was the cause; the limit is "
            f"{show_bytes(sandbox.memory_bytes)}."
        )
    return signal_meaning(number)


def _met_on_the_way(report: RunReport, sandbox: SandboxLimits) -> str:
    """A word on limits that a script met and lived with."""
    met = []
    if report.usage.process_refusals:
        met.append(f"met the limit of {sandbox.processes} processes")
    if report.usage.full_paths:
        met.append(f"filled {_paths(report)}")
    return f"The script {' and '.join(met)} on its way." if met else ""


def _paths(report: RunReport) -> str:
    return _detail(" and ".join(report.usage.full_paths[:4]))


def _shares(report: RunReport, sandbox: SandboxLimits) -> str:
    """What the full folders hold, and the working folder, which holds most."""
    shares = sandbox.disk_shares()
    held = []
    for path in report.usage.full_paths[:4]:
        share = sandbox.environment_bytes if path == "/env" else shares.of(path)
        held.append(f"{_detail(path)} holds {show_bytes(share)}" if share is not None else _detail(path))
    if "/work" not in report.usage.full_paths:
        held.append(f"the working folder {show_bytes(shares.work)}")
    return "; ".join(held)


def _detail(text: str) -> str:
    shown = " ".join(clean_text(text[: 4 * MAX_DETAIL_CHARACTERS]).split()).rstrip(".")
    return shown if len(shown) <= MAX_DETAIL_CHARACTERS else shown[: MAX_DETAIL_CHARACTERS - 1] + "…"
