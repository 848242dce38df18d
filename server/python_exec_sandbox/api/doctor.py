"""The command ``doctor``: the same facts as ``check_environment``, for a person at a terminal."""

import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TextIO

import anyio

from python_exec_sandbox.api.environment import Surveyor
from python_exec_sandbox.api.environment_rows import sections
from python_exec_sandbox.api.once import tell_activity, until_signalled
from python_exec_sandbox.api.row import Row, Section, State
from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.run.records import SilentListener
from python_exec_sandbox.settings import Settings
from python_exec_sandbox.stream.clean import clean_text

EXIT_NO_SCRIPT_RUNS = 1

NAME_WIDTH = 24
LINE_WIDTH = 110

MARKS = {State.PLAIN: " ", State.GOOD: "✓", State.WARNING: "!", State.BAD: "✗"}
PLAIN_MARKS = {State.PLAIN: " ", State.GOOD: "+", State.WARNING: "!", State.BAD: "x"}
"""For terminals and files whose encoding lacks a tick."""

_COLOURS = {State.GOOD: "\x1b[32m", State.WARNING: "\x1b[33m", State.BAD: "\x1b[31m"}
_BOLD = "\x1b[1m"
_RESET = "\x1b[0m"


async def examine(settings: Settings, opening: AbstractAsyncContextManager[Backend]) -> int:
    """Print the table; the exit code is 0 when scripts can run, else 1. A signal ends it within 2 s."""

    async def work() -> int:
        async with opening as backend, anyio.create_task_group() as tasks:
            tasks.start_soon(tell_activity, backend)
            found = await Surveyor(settings.max_timeout).survey(backend, SilentListener())
            tasks.cancel_scope.cancel()
        _print(sections(settings, found), sys.stdout)
        return 0 if found.can_run else EXIT_NO_SCRIPT_RUNS

    return await until_signalled(work)


def table(parts: Sequence[Section], *, ticks: bool = True, colours: bool = False) -> str:
    """The rows below each other: a mark, the name, the value; below it what to do where it isn't well."""
    marks = MARKS if ticks else PLAIN_MARKS
    lines: list[str] = []
    for part in parts:
        lines.append(f"{_BOLD}{part.title}{_RESET}" if colours else part.title)
        lines += [line for row in part.rows for line in _lines(row, marks[row.state], colours=colours)]
        lines.append("")
    return "\n".join(lines[:-1])


def _lines(row: Row, mark: str, *, colours: bool) -> list[str]:
    colour = _COLOURS.get(row.state, "") if colours else ""
    shown = f"{colour}{mark}{_RESET}" if colour else mark
    indent = " " * (NAME_WIDTH + 5)
    value, *more = _wrapped(row.value)
    lines = [f"  {shown} {clean_text(row.name):<{NAME_WIDTH}} {value}", *(indent + line for line in more)]
    if row.fix:
        first, *rest = _wrapped(row.fix, narrower=3)
        lines += [f"{indent}-> {first}", *(f"{indent}   {line}" for line in rest)]
    return lines


def _wrapped(text: str, *, narrower: int = 0) -> list[str]:
    """``text`` in lines that fit beside the names; long words, such as paths, stay whole."""
    width = LINE_WIDTH - NAME_WIDTH - 5 - narrower
    return textwrap.wrap(clean_text(text), width, break_long_words=False, break_on_hyphens=False) or [""]


def _print(parts: Sequence[Section], out: TextIO) -> None:
    encoding = out.encoding or "ascii"
    ticks = _can_write("".join(MARKS.values()), encoding)
    colours = out.isatty() and not os.environ.get("NO_COLOR")
    text = table(parts, ticks=ticks, colours=colours) + "\n"
    out.write(text.encode(encoding, "replace").decode(encoding))
    out.flush()


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
