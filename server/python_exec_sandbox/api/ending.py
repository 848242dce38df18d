"""How this process ends: which signals end it, and the last step."""

import contextlib
import os
import signal
import sys
from typing import NoReturn

SIGNAL_BASE = 128
"""Added to a signal's number it is the exit code that shells know."""


def ending_signals() -> list[signal.Signals]:
    """The signals that end the process; a hang-up only where nobody asked to ignore it (``nohup``)."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def exit_at_once_on_signals() -> None:
    """Until an event loop runs there is nothing to clean up: end with the right code and no traceback."""
    for number in ending_signals():
        signal.signal(number, lambda caught, _: os._exit(SIGNAL_BASE + caught))


def leave(code: int) -> NoReturn:
    """End the process now; threads in blocking calls can't be told to leave and are not waited for."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody may be left to read it
            stream.flush()
    os._exit(code)
