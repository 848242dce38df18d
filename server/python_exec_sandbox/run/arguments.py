"""Checks what travels into a sandbox beside the script."""

import json
import math
from collections.abc import Sequence

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.model.limits import DiskShares
from python_exec_sandbox.run.units import show_bytes, show_seconds

MAX_ARGS_BYTES = 24 * 1024
"""As JSON; together with the requirements they travel in one control frame of 64 KiB."""

MAX_JOB_BYTES = 60 * 1024
"""As JSON, arguments and requirements together; the rest of the frame is for numbers."""

MAX_STDIN_BYTES = 32 * 1024 * 1024
"""It is held in the server's memory while the script reads it."""


def check_args(args: Sequence[str]) -> None:
    """Return when ``args`` can become a process's arguments.

    Raises:
        RequestError: too long, or characters that no argument can hold.
    """
    if not args:
        return
    for n, arg in enumerate(args, start=1):
        if "\0" in arg:
            raise RequestError(f"Argument {n} of args has a NUL character, which no argument can hold.")
        _encode(arg, f"Argument {n} of args")
    size = len(json.dumps(list(args)))
    if size > MAX_ARGS_BYTES:
        raise RequestError(
            f"args have {size:,} bytes; at most {MAX_ARGS_BYTES:,} are accepted. Send more through stdin."
        )


def check_job_size(args: Sequence[str], requirements: Sequence[str]) -> None:
    """Return when both fit the message that carries them.

    Raises:
        RequestError: they don't.
    """
    if not args and not requirements:
        return
    size = len(json.dumps([list(args), list(requirements)]))
    if size > MAX_JOB_BYTES:
        raise RequestError(
            f"args and dependencies together have {size:,} bytes; at most {MAX_JOB_BYTES:,} are accepted. "
            "Name fewer packages, or send data through stdin."
        )


def encode_stdin(stdin: str | bytes) -> bytes:
    """The bytes the script reads from its standard input.

    Raises:
        RequestError: too many, or lone surrogates.
    """
    data = _encode(stdin, "stdin") if isinstance(stdin, str) else stdin
    if len(data) > MAX_STDIN_BYTES:
        raise RequestError(
            f"stdin has {len(data):,} bytes; at most {MAX_STDIN_BYTES:,} (32 MiB) are accepted."
        )
    return data


SHORTEST_SECONDS = 0.1
"""Less is no time to run anything in, and reads as 0 in results."""


def check_fits(script: bytes, disk: DiskShares) -> None:
    """Whether the sandbox can hold the script and leaves it some room to work in.

    Raises:
        RequestError: it would fill more than half of the working folder.
    """
    if len(script) > disk.work // 2:
        raise RequestError(
            f"The script has {show_bytes(len(script))}, more than half of the working folder "
            f"({show_bytes(disk.work)}); send a shorter one, or start the server with a larger --disk."
        )


def choose_seconds(wanted: float | None, *, default: float, longest: float) -> float:
    """The run time to allow.

    Raises:
        RequestError: not a positive number, or beyond ``longest``.
    """
    if wanted is None:
        return default
    if not math.isfinite(wanted) or wanted < SHORTEST_SECONDS:
        raise RequestError(f"timeout_seconds must be at least {SHORTEST_SECONDS:g}, not {wanted:g}.")
    if wanted > longest:
        raise RequestError(
            f"timeout_seconds is {show_seconds(wanted)}; at most {show_seconds(longest)} are allowed "
            "(the server's --max-timeout). Ask for less, or split the work."
        )
    return wanted


def _encode(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{what} has a lone surrogate (U+{ord(text[error.start]):04X}); send whole characters."
        ) from error
