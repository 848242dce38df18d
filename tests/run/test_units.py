import pytest

from python_exec_sandbox.run.signals import signal_meaning, signal_name
from python_exec_sandbox.run.units import show_bytes, show_seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (512 * 2**20, "512 MiB"),
        (1536 * 2**20, "1.5 GiB"),
        (2**20 - 1, "1 MiB"),
        (2**30, "1 GiB"),
        (3 * 2**40, "3 TiB"),
    ],
)
def test_bytes_are_shown_in_the_largest_fitting_unit(count: int, text: str) -> None:
    assert show_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0042, "0.004 s"),
        (0.42, "0.42 s"),
        (4.0, "4 s"),
        (30, "30 s"),
        (30.26, "30.3 s"),
        (100, "100 s"),
    ],
)
def test_seconds_are_shown_without_needless_digits(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


def test_signals_have_the_numbers_of_linux() -> None:
    assert [signal_name(n) for n in (1, 7, 9, 10, 11, 15, 24, 31)] == (
        ["SIGHUP", "SIGBUS", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGTERM", "SIGXCPU", "SIGSYS"]
    )
    assert [signal_name(n) for n in (0, 32, 64)] == ["signal 0", "signal 32", "signal 64"]
    assert signal_meaning(31)
    assert not signal_meaning(64)
