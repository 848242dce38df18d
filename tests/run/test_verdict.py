import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.model.limits import MIB, RunLimits, SandboxLimits
from python_exec_sandbox.model.result import Loss, RunReport, StopReason, Usage, Verdict
from python_exec_sandbox.run.verdict import Judged, judge

RUN = RunLimits(run_seconds=30, install_seconds=120, output_bytes=1024 * MIB)
SANDBOX = SandboxLimits()


def judged(
    reason: StopReason = StopReason.EXITED,
    *,
    exit_code: int | None = None,
    signal: int | None = None,
    loss: Loss | None = None,
    notes: str = "",
    usage: Usage | None = None,
) -> Judged:
    report = RunReport(
        reason=reason,
        exit_code=exit_code,
        signal=signal,
        loss=loss,
        notes=notes,
        usage=usage or Usage(run_seconds=0.42),
    )
    return judge(report, RUN, SANDBOX)


def test_exit_0_is_ok_and_says_how_long_it_took() -> None:
    assert judged(exit_code=0) == Judged(Verdict.OK, "exit 0 in 0.42 s")


@pytest.mark.parametrize("code", [1, 2, 3, 100, 124, 125, 126, 127, 130, 137, 139, 143, 255])
def test_every_other_exit_code_is_a_plain_failure(code: int) -> None:
    assert judged(exit_code=code) == Judged(Verdict.FAILED, f"exit {code} in 0.42 s")


@pytest.mark.parametrize(
    ("number", "name"), [(9, "SIGKILL (9)"), (11, "SIGSEGV (11)"), (15, "SIGTERM (15)"), (64, "signal 64")]
)
def test_a_signal_is_named(number: int, name: str) -> None:
    told = judged(signal=number)
    assert told.verdict is Verdict.SIGNALLED
    assert told.headline == f"killed by {name} in 0.42 s"


def test_a_kill_without_memory_counters_says_that_memory_is_possible() -> None:
    assert "memory" in judged(signal=9).sentence
    assert "memory" not in judged(signal=9, usage=Usage(memory_kills=0)).sentence


@pytest.mark.parametrize(
    ("reason", "exit_code", "signal"),
    [
        (StopReason.EXITED, None, 9),
        (StopReason.EXITED, 1, None),
        (StopReason.EXITED, 0, None),
        (StopReason.RUN_TIME, None, None),
    ],
)
def test_a_memory_kill_names_the_limit_however_the_script_ended(
    reason: StopReason, exit_code: int | None, signal: int | None
) -> None:
    told = judged(reason, exit_code=exit_code, signal=signal, usage=Usage(memory_kills=1))
    assert told.verdict is Verdict.OUT_OF_MEMORY
    assert told.headline == "out of memory: limit 512 MiB"


def test_a_memory_kill_under_exit_0_says_that_a_part_was_killed() -> None:
    assert "part of the script" in judged(exit_code=0, usage=Usage(memory_kills=2)).sentence


def test_a_sandbox_lost_to_memory_is_the_scripts_doing() -> None:
    assert judged(StopReason.LOST, loss=Loss.MEMORY).verdict is Verdict.OUT_OF_MEMORY


@pytest.mark.parametrize("loss", [Loss.KILLED, Loss.SILENT, Loss.PROTOCOL, Loss.FAULT, None])
def test_any_other_loss_is_not_the_scripts_fault(loss: Loss | None) -> None:
    told = judged(StopReason.LOST, loss=loss, notes="the engine\nsays \x1b[31mso.")
    assert told.verdict is Verdict.SANDBOX_LOST
    assert "(the engine says so)" in told.sentence
    assert "not your script's fault; run it again" in told.sentence


def test_an_end_without_a_status_is_a_fault_of_the_sandbox() -> None:
    assert judged(StopReason.EXITED).verdict is Verdict.SANDBOX_LOST


def test_a_time_out_names_the_limit() -> None:
    told = judged(
        StopReason.RUN_TIME, usage=Usage(run_seconds=30.2, process_refusals=3, full_paths=("/tmp",))
    )
    assert told.verdict is Verdict.TIMED_OUT
    assert told.headline == "timed out after 30 s"
    assert "128 processes" in told.sentence
    assert "/tmp" in told.sentence


def test_output_beyond_the_limit_names_it() -> None:
    assert judged(StopReason.OUTPUT_LIMIT).headline == "output limit: 1 GiB"


def test_a_stopped_run_was_cancelled() -> None:
    assert judged(StopReason.STOPPED, usage=Usage(memory_kills=1)).verdict is Verdict.CANCELLED


def test_refused_processes_and_full_paths_count_only_when_the_script_failed() -> None:
    busy, full = Usage(process_refusals=5), Usage(full_paths=("/work", "/tmp"))
    assert judged(exit_code=1, usage=busy).verdict is Verdict.PROCESS_LIMIT
    assert judged(exit_code=1, usage=busy).headline.startswith("process limit: 128 (exit 1")
    assert judged(exit_code=1, usage=full).verdict is Verdict.DISK_FULL
    assert judged(signal=7, usage=full).headline.startswith("disk full: /work and /tmp (killed by SIGBUS (7)")
    assert judged(exit_code=0, usage=busy).verdict is Verdict.OK
    assert "limit of 128 processes" in judged(exit_code=0, usage=busy).sentence
    assert "filled /work" in judged(exit_code=0, usage=full).sentence


def test_failed_dependencies_say_that_the_script_did_not_start() -> None:
    told = judged(
        StopReason.INSTALL_FAILED,
        notes="Resolved 1 package\n  cause: Because zz was not found in the package registry, x.\n",
    )
    assert told.verdict is Verdict.REQUIREMENTS_FAILED
    assert told.sentence.startswith("The script did not start. Because zz was not found")
    assert "check the name" in told.sentence


def test_other_ways_to_fail_an_installation_name_their_limit() -> None:
    assert "120 s" in judged(StopReason.INSTALL_TIME).sentence
    assert judged(StopReason.INSTALL_TIME).headline == "timed out while installing: limit 120 s"
    assert "512 MiB" in judged(StopReason.INSTALL_FAILED, usage=Usage(memory_kills=1)).sentence
    assert "192 MiB" in judged(StopReason.INSTALL_FAILED, usage=Usage(full_paths=("/env",))).sentence
    for reason in (StopReason.INSTALL_TIME, StopReason.INSTALL_FAILED):
        assert "did not start" in judged(reason).sentence


USAGES = st.builds(
    Usage,
    run_seconds=st.floats(0, 1e6),
    memory_kills=st.none() | st.integers(0, 3),
    process_refusals=st.none() | st.integers(0, 3),
    full_paths=st.sampled_from([(), ("/tmp",), ("/w\x1b[0m\ud800",)]),
)
REPORTS = st.builds(
    RunReport,
    reason=st.sampled_from(StopReason),
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    loss=st.none() | st.sampled_from(Loss),
    notes=st.text(),
    usage=USAGES,
)


@given(REPORTS)
def test_every_report_gets_a_headline_that_can_be_encoded(report: RunReport) -> None:
    told = judge(report, RUN, SANDBOX)
    (told.headline + told.sentence).encode()
    assert told.headline
    assert "\n" not in told.headline
    assert len(told.sentence) < 2000


@given(st.integers(0, 255), st.none() | st.just(0), st.text())
def test_an_exit_code_alone_reaches_no_verdict_but_ok_and_failed(
    code: int, kills: int | None, notes: str
) -> None:
    told = judged(exit_code=code, notes=notes, usage=Usage(memory_kills=kills, process_refusals=kills))
    assert told.verdict is (Verdict.OK if code == 0 else Verdict.FAILED)


NO_ROOM = "error: Failed to extract archive\n  cause: failed to write to file `/env/x`: No space left on device (os error 28)"


@pytest.mark.parametrize(("notes", "full"), [(NO_ROOM, ()), ("", ("/env",)), (NO_ROOM, ("/env",))])
def test_packages_that_find_no_room_name_the_room_and_nothing_to_mend(
    notes: str, full: tuple[str, ...]
) -> None:
    told = judged(StopReason.INSTALL_FAILED, notes=notes, usage=Usage(full_paths=full))
    assert told.verdict is Verdict.REQUIREMENTS_FAILED
    assert "No room to install: packages may take 192 MiB here" in told.sentence
    assert "larger --memory" in told.sentence
    assert "ewer or smaller packages" in told.sentence
    assert "Mend" not in told.sentence


def test_a_full_disk_names_the_share_that_is_full() -> None:
    told = judged(exit_code=1, usage=Usage(full_paths=("/tmp",)))
    assert told.verdict is Verdict.DISK_FULL
    assert "/tmp holds 64 MiB; the working folder 128 MiB" in told.sentence
    everything = judged(
        exit_code=1, usage=Usage(full_paths=("/work", "/dev/shm", "/home/sandbox", "/env"))
    ).sentence
    for share in (
        "/work holds 128 MiB",
        "/dev/shm holds 48 MiB",
        "/home/sandbox holds 16 MiB",
        "/env holds 192 MiB",
    ):
        assert share in everything


def test_the_requirements_tell_modules_from_packages() -> None:
    report = RunReport(
        reason=StopReason.INSTALL_FAILED, notes="Because yaml was not found in the package registry, x."
    )
    assert "its package is pyyaml" in judge(report, RUN, SANDBOX, ("yaml",)).sentence
