"""The commands: serve a client, run one script, tell what is wrong, clear away what is left."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from python_exec_sandbox.api.ending import exit_at_once_on_signals, leave
from python_exec_sandbox.collector import permanent
from python_exec_sandbox.errors import ConfigurationError, RequestError
from python_exec_sandbox.flags import (
    PROGRAM,
    DoctorCommand,
    PruneCommand,
    RunCommand,
    ServeCommand,
    parse_command,
)
from python_exec_sandbox.logs import configure_logging, tell_ineffective
from python_exec_sandbox.setting_sources import load_settings
from python_exec_sandbox.setting_values import LogLevel, parse_seconds
from python_exec_sandbox.settings import Settings

EXIT_WRONG_USE = 2

FOR_A_TERMINAL = (
    f"This is an MCP server; a client starts it. Try: {PROGRAM} run FILE, or --help (Ctrl-C ends it)"
)

# The executor refuses what is too large and says how large it may be; this only keeps an endless stream out.
LARGEST_INPUT_BYTES = 64 * 1024 * 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out the command line. Returns an exit code where nothing was started; otherwise the command
    ends the process itself."""
    _open_standard_descriptors()
    parent = os.getppid()  # taken before the imports, which take a second in which it may end
    exit_at_once_on_signals()
    try:
        command = parse_command(sys.argv[1:] if argv is None else argv)
        settings = load_settings(command.flags, command.config)
        match command:
            case ServeCommand():
                _serve(settings, parent)
            case RunCommand():
                _run(settings, command)
            case DoctorCommand():
                _doctor(settings)
            case PruneCommand():
                _prune(settings, command)
    except (ConfigurationError, RequestError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_WRONG_USE
    raise AssertionError("each command ends the process")


def _open_standard_descriptors() -> None:
    """Whoever starts us without stdin, stdout or stderr: files opened later must not get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one


def _serve(settings: Settings, parent: int) -> None:
    configure_logging(settings.log_level)
    if sys.stdin is not None and sys.stdin.isatty():
        print(FOR_A_TERMINAL, file=sys.stderr)
    tell_ineffective(settings)
    with permanent():
        from python_exec_sandbox.api.app import build, serve_stdio  # here: the SDK takes a second to import

        application = build(settings)
    serve_stdio(application, parent)


def _configure_quiet_logging(settings: Settings) -> None:
    """Beside a command's own output only what went wrong is worth a line, unless more is asked for."""
    asked = "log_level" in settings.model_fields_set
    configure_logging(settings.log_level if asked else LogLevel.ERROR)


def _doctor(settings: Settings) -> None:
    _configure_quiet_logging(settings)
    import anyio

    from python_exec_sandbox.api.backends import open_backend
    from python_exec_sandbox.api.doctor import examine

    leave(anyio.run(examine, settings, open_backend(settings, warm=False)))


def _prune(settings: Settings, command: PruneCommand) -> None:
    _configure_quiet_logging(settings)
    import anyio

    from python_exec_sandbox.api.prune import opening, prune

    driver = opening(settings)
    leave(anyio.run(partial(prune, driver, yes=command.yes, environments=command.environments)))


def _run(settings: Settings, command: RunCommand) -> None:
    _configure_quiet_logging(settings)
    tell_ineffective(settings)
    import anyio  # here, with the rest: not needed to answer --help or to serve

    from python_exec_sandbox.api.backends import open_backend
    from python_exec_sandbox.api.once import run_once
    from python_exec_sandbox.run.records import RunRequest

    request = RunRequest(
        script=_read_script(command.file),
        dependencies=command.dependencies,
        timeout_seconds=_timeout(command.timeout, settings.max_timeout),
        args=command.args,
        stdin=b"" if command.file == "-" else _inherited_input(),
    )
    leave(anyio.run(run_once, request, open_backend(settings, warm=False)))


def _read_script(file: str) -> bytes:
    if file == "-":
        return _bounded_input()
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} can't be read ({error.strerror})") from None
    from python_exec_sandbox.script.source import why_not_utf8  # here: not needed to serve

    if wrong := why_not_utf8(data):
        raise ConfigurationError(f"{file} {wrong}")
    return data


def _inherited_input() -> bytes:
    """What was piped or redirected into this command; nothing from a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    return _bounded_input()


def _bounded_input() -> bytes:
    data = sys.stdin.buffer.read(LARGEST_INPUT_BYTES + 1)
    if len(data) > LARGEST_INPUT_BYTES:
        raise ConfigurationError("stdin has more than 64 MiB; give less")
    return data


def _timeout(text: str | None, longest: float) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise ConfigurationError(f"--timeout {text} {error}") from None
    if seconds <= 0:
        raise ConfigurationError(f"--timeout {text} must be above 0")
    if seconds > longest:
        raise ConfigurationError(
            f"--timeout {text} is above --max-timeout {longest:g}; raise that, or ask for less"
        )
    return seconds
