"""A fact as a row: what it is, whether that is well, and what to do if not. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from python_exec_sandbox.run.units import show_bytes

IN_BYTES = frozenset({"memory", "swap", "core dumps", "data of a process", "size of a file"})
"""Limits that are sizes; those of folders are too."""


class State(StrEnum):
    """How a row is judged; ``PLAIN`` ones are not."""

    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    """No script can run as long as this is so."""


@dataclass(frozen=True, slots=True)
class Row:
    """``fix`` says what to do where the state is not good."""

    name: str
    value: str
    state: State = State.PLAIN
    fix: str = ""

    @property
    def needs_care(self) -> bool:
        return self.state in {State.WARNING, State.BAD}


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: tuple[Row, ...]


PAGE_BYTES = 64 * 1024
"""The kernel rounds the size of a tmpfs to whole pages, the largest of which are so large."""


def limit_row(name: str, measured: float | None, asked: float, kept_by: str, rounding: float = 0.01) -> Row:
    """What was measured against what was asked for."""
    is_bytes = name in IN_BYTES or name.startswith("folder")

    def show(value: float) -> str:
        return show_bytes(round(value)) if is_bytes else f"{value:g}"

    if measured is None:
        value = f"asked for {show(asked)}, none to be seen"
        return Row(name, value, State.WARNING, f"It does not apply, or is hidden: {kept_by} should keep it.")
    if abs(measured - asked) > rounding:
        value = f"{show(measured)} instead of the {show(asked)} asked for"
        return Row(name, value, State.WARNING, f"Look at {kept_by}.")
    return Row(name, show(measured) if asked or not is_bytes else "none", State.GOOD)


def without_home(text: str) -> str:
    """``text`` with ``~`` for the person's home: what a model reads needn't tell whose machine it is."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text
