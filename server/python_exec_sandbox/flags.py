"""The command line, made from the settings."""

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from python_exec_sandbox import __version__
from python_exec_sandbox.errors import ConfigurationError
from python_exec_sandbox.settings import ENV_PREFIX, Flag, Group, Settings

PROGRAM = "python-exec-sandbox"

DESCRIPTION = "Runs Python scripts in pre-warmed, single-use sandboxes, for AI assistants over MCP."

OVERVIEW = f"""\
commands:
  {PROGRAM} [options]
      the MCP server on stdin and stdout, as clients start it
  {PROGRAM} run FILE|- [-d REQUIREMENT]... [--timeout SECONDS] [options] [[--] ARGUMENTS]
      one script in a sandbox; its output and exit code become this command's
  {PROGRAM} doctor [options]
      whether scripts can run here, what holds in a sandbox, and what to do about what doesn't
  {PROGRAM} prune [--yes] [--environments] [options]
      remove old images, the unused network and containers of dead servers; lists them without --yes
  {PROGRAM} help [COMMAND] | version
"""

EPILOG = f"""\
Each setting is also read from {ENV_PREFIX}* (--pool-size is {ENV_PREFIX}POOL_SIZE)
and from the file given with --config (pool-size = 4). A flag beats the variable, the variable beats the file.
Sizes: 512MiB, 1GB, 65536. Times: 45, 45s, 00:01:30.
"""

RUN_EPILOG = """\
What follows FILE and is no option is an argument of the script; after -- everything is.

Exit codes: the script's own (128+N when signal N ended it); 2 wrong use, wrong settings or no engine;
124 out of time; 125 out of memory, too many processes, too much output, packages that could not be
installed, or a lost sandbox.
"""

DOCTOR_EPILOG = """\
Exit codes: 0 when scripts can run, 1 when none can, 2 wrong use or wrong settings.
"""

PRUNE_EPILOG = """\
Removed is what this package made and nobody uses: containers whose server is dead, images of other versions of
this package, its network when no container is on it. Nothing is forced, and images with names of your own stay.
With --environments it also removes all installed packages but those that a running script uses.
Without --yes it only lists them, and asks when it runs in a terminal.

Exit codes: 0 nothing is left to remove, or it was only listed; 1 the engine kept something; 2 wrong use or no engine.
"""


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """Serve MCP on stdio."""

    flags: dict[str, Any]
    config: Path | None


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Run one script; ``file`` is a path or ``-``."""

    flags: dict[str, Any]
    config: Path | None
    file: str
    args: tuple[str, ...]
    dependencies: tuple[str, ...]
    timeout: str | None


@dataclass(frozen=True, slots=True)
class DoctorCommand:
    """Tell whether scripts can run."""

    flags: dict[str, Any]
    config: Path | None


@dataclass(frozen=True, slots=True)
class PruneCommand:
    """Remove what nobody uses; ``yes`` without asking, ``environments`` the installed packages, too."""

    flags: dict[str, Any]
    config: Path | None
    yes: bool
    environments: bool


Command = ServeCommand | RunCommand | DoctorCommand | PruneCommand

COMMANDS = ("run", "doctor", "prune", "help", "version")


class _Joined(argparse.Action):
    """Each value goes behind those before."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, "")
        setattr(namespace, self.dest, f"{before} {values}".strip())


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line of ours."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            message = "run needs a FILE, or - for stdin"
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            first = unknown.split()[0]
            message = self._unknown(first) if first.startswith("-") else f"{first} means nothing here"
        raise ConfigurationError(f"{message} (see --help)")

    def _unknown(self, option: str) -> str:
        known = [name for action in self._actions for name in action.option_strings]
        close = difflib.get_close_matches(option, known, n=1, cutoff=0.8)
        meant = f"; did you mean {close[0]}?" if close else ""
        script = (
            "; options of the script itself follow --" if self.prog.endswith(" run") and not close else ""
        )
        return f"unknown option {option}{meant}{script}"


def parse_command(argv: Sequence[str]) -> Command:
    """What the command line ``argv`` asks for; only the flags that are on it are in ``flags``.

    Options may stand before ``run``. What follows its file is the script's, and everything after ``--``.
    A switch may have a value (``--structured-output=false``): else none could undo what a variable or a file says.

    Raises:
        ConfigurationError: it can't be understood; one line.
        SystemExit: help or the version was printed.
    """
    own, script_args = _split(argv)
    words, switches = _without_switch_values(own)
    command = _parse([*words, *(("--", *script_args) if "--" in argv else ())])
    return replace(command, flags={**command.flags, **switches}) if switches else command


def _without_switch_values(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """``words`` without switches that have a value, and these by the names of their settings."""
    fields = Settings.model_fields.items()
    switches = {f"--{name.replace('_', '-')}": name for name, field in fields if field.annotation is bool}
    valued = {
        word: word.partition("=") for word in words if "=" in word and word.partition("=")[0] in switches
    }
    return (
        [word for word in words if word not in valued],
        {switches[option]: value for option, _, value in valued.values()},
    )


def _parse(argv: Sequence[str]) -> Command:
    own, script_args = _split(argv)
    at = _command_at(own)
    match own[at : at + 1]:
        case ["run"]:
            return _run_command([*own[:at], *own[at + 1 :]], script_args)
        case ["help"]:
            about = own[at + 1 : at + 2]
            if about and about[0] not in COMMANDS:
                raise _unknown(about[0])
            return _parse([*(word for word in about if word not in {"help", "version"}), "--help"])
        case ["version"]:
            return _parse(["--version"])
    if script_args:
        raise ConfigurationError("arguments after -- belong to a script: use the run command (see --help)")
    match own[at : at + 1]:
        case ["doctor"]:
            return _doctor_command([*own[:at], *own[at + 1 :]])
        case ["prune"]:
            return _prune_command([*own[:at], *own[at + 1 :]])
        case [word]:
            raise _unknown(word)
    known = vars(_parser(PROGRAM, DESCRIPTION, OVERVIEW, EPILOG).parse_args(own))
    return ServeCommand(config=known.pop("config", None), flags=known)


def _unknown(word: str) -> ConfigurationError:
    close = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.7)
    meant = f"did you mean {close[0]}?" if close else f"a script is run by: {PROGRAM} run FILE (see --help)"
    return ConfigurationError(f"unknown command {word}; {meant}")


def _command_at(words: Sequence[str]) -> int:
    """The index of the first word that is neither an option nor an option's value; ``len(words)`` without
    one, or when an option isn't known."""
    actions = _run_parser()._actions  # noqa: SLF001  # argparse tells of its options in no other way
    takes_value = {option: action.nargs != 0 for action in actions for option in action.option_strings}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option, separator, _ = words[at].partition("=")
        if option not in takes_value:
            return len(words)
        at += 2 if takes_value[option] and not separator else 1
    return at


def _split(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The part before ``--`` and the part after it."""
    words = list(argv)
    if "--" not in words:
        return words, ()
    at = words.index("--")
    return words[:at], tuple(words[at + 1 :])


def _run_parser() -> _Parser:
    parser = _parser(f"{PROGRAM} run", "Runs one script in a sandbox.", "", RUN_EPILOG + "\n" + EPILOG)
    parser.add_argument("file", metavar="FILE", help="the script, or - for stdin")
    parser.add_argument("args", nargs="*", metavar="ARGUMENTS", help="what it finds in sys.argv[1:]")
    once = parser.add_argument_group("This run")
    once.add_argument(
        "-d", "--dependency", action="append", metavar="REQ", help="a package it needs (repeatable)"
    )
    once.add_argument("--timeout", metavar="SECONDS", help="its run time [--default-timeout]")
    return parser


def _run_command(own: list[str], script_args: tuple[str, ...]) -> RunCommand:
    known = vars(_run_parser().parse_intermixed_args(own))
    return RunCommand(
        config=known.pop("config", None),
        file=known.pop("file"),
        args=(*known.pop("args", ()), *script_args),
        dependencies=tuple(known.pop("dependency", ())),
        timeout=known.pop("timeout", None),
        flags=known,
    )


def _doctor_command(own: list[str]) -> DoctorCommand:
    parser = _parser(
        f"{PROGRAM} doctor", "Tells whether scripts can run here.", "", DOCTOR_EPILOG + "\n" + EPILOG
    )
    known = vars(parser.parse_args(own))
    return DoctorCommand(config=known.pop("config", None), flags=known)


def _prune_command(own: list[str]) -> PruneCommand:
    parser = _parser(
        f"{PROGRAM} prune", "Removes what nobody uses from the engine.", "", PRUNE_EPILOG + "\n" + EPILOG
    )
    parser.add_argument("-y", "--yes", action="store_true", help="remove them without asking")
    parser.add_argument(
        "--environments", action="store_true", help="installed packages too, but what running scripts use"
    )
    known = vars(parser.parse_args(own))
    return PruneCommand(
        config=known.pop("config", None),
        yes=known.pop("yes", False),
        environments=known.pop("environments", False),
        flags=known,
    )


def _parser(program: str, description: str, overview: str, epilog: str) -> _Parser:
    parser = _Parser(
        prog=program,
        usage=f"{program} FILE|- [options] [[--] ARGUMENTS]"
        if program == f"{PROGRAM} run"
        else f"{program} [options]",
        description=f"{description}\n\n{overview}".rstrip(),
        epilog=epilog,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=30, width=110
        ),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
    )
    groups = {group: parser.add_argument_group(group.value) for group in Group}
    for name, field in Settings.model_fields.items():
        flag = next(mark for mark in field.metadata if isinstance(mark, Flag))
        option = f"--{name.replace('_', '-')}"
        groups[flag.group].add_argument(option, dest=name, **_look(flag, field.description or ""))
    server = groups[Group.SERVER]
    server.add_argument("--config", type=Path, metavar="FILE", help="settings in a TOML file")
    server.add_argument(
        "-V", "--version", action="version", version=f"{PROGRAM} {__version__}", help="print the version"
    )
    server.add_argument("-h", "--help", action="help", help="print this")
    return parser


def _look(flag: Flag, description: str) -> dict[str, Any]:
    """How argparse is told of a setting: a switch, or an option with a value."""
    shown = f"{description} [{flag.default}]" if flag.default else description
    if flag.repeatable:
        return {"metavar": flag.metavar, "help": shown, "action": _Joined}
    return (
        {"metavar": flag.metavar, "help": shown} if flag.metavar else {"action": "store_true", "help": shown}
    )
