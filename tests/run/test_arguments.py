import math

import pytest

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.model.limits import SandboxLimits
from python_exec_sandbox.run.arguments import (
    MAX_STDIN_BYTES,
    check_args,
    check_fits,
    check_job_size,
    choose_seconds,
    encode_stdin,
)


def test_ordinary_arguments_pass() -> None:
    check_args(("a b", "ü", "", "--x=1"))
    check_job_size(("a",), ("six",))
    assert encode_stdin("ü\n") == b"\xc3\xbc\n"
    assert encode_stdin(b"\0\xff") == b"\0\xff"


@pytest.mark.parametrize("args", [("a", "b\0"), ("\ud800",), ("x" * 30_000,), ("\U0001f600" * 3000,)])
def test_arguments_that_no_process_or_message_can_hold_are_refused(args: tuple[str, ...]) -> None:
    with pytest.raises(RequestError, match="args"):
        check_args(args)


def test_args_and_requirements_must_fit_one_message() -> None:
    with pytest.raises(RequestError, match="dependencies together"):
        check_job_size(("x" * 30_000,), ("y" * 32_000,))


def test_standard_input_has_a_limit() -> None:
    with pytest.raises(RequestError, match="stdin"):
        encode_stdin(b"x" * (MAX_STDIN_BYTES + 1))
    with pytest.raises(RequestError, match="surrogate"):
        encode_stdin("\ud800")


def test_the_run_time_is_the_default_or_what_was_asked_for() -> None:
    assert choose_seconds(None, default=30, longest=300) == 30
    assert choose_seconds(300, default=30, longest=300) == 300


@pytest.mark.parametrize("wanted", [0, -1, math.nan, math.inf, 301])
def test_a_run_time_out_of_range_is_refused(wanted: float) -> None:
    with pytest.raises(RequestError, match="timeout_seconds"):
        choose_seconds(wanted, default=30, longest=300)


def test_a_run_time_that_is_refused_is_shown_as_it_was_sent() -> None:
    with pytest.raises(RequestError, match=r"not -1\."):
        choose_seconds(-1.0, default=30, longest=300)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9, 0.09, math.nan, math.inf])
def test_a_run_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(RequestError, match=r"at least 0\.1"):
        choose_seconds(seconds, default=30, longest=300)


def test_a_script_that_would_fill_the_working_folder_is_refused_with_the_limit() -> None:
    disk = SandboxLimits(disk_bytes=16 * 1024 * 1024).disk_shares()
    check_fits(b"x" * (4 * 1024 * 1024), disk)
    with pytest.raises(RequestError, match=r"more than half of the working folder \(8 MiB\)"):
        check_fits(b"x" * (4 * 1024 * 1024 + 1), disk)
