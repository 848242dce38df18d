"""No text, however hostile, holds up the event loop: what costs more than its length is bounded in number."""

import time

import pytest

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.intake import prepare

SECONDS = 2.0
"""Far above what a busy machine needs for each of these, far below what they took without a bound."""


def block(*lines: str) -> str:
    return "# /// script\n" + "".join(f"# {line}\n" for line in lines) + "# ///\nprint(1)\n"


HOSTILE: dict[str, tuple[str, list[str]]] = {
    "conditions in many wishes": ("print(1)", [f"a!={n}" for n in range(1500)]),
    "conditions in many wishes with a marker": (
        "print(1)",
        [f"a!={n};python_version>'3'" for n in range(700)],
    ),
    "conditions in one wish": ("print(1)", ["a" + ",".join(f"!={n}" for n in range(3000))]),
    "a dotted key": (block("[tool.x]", ".".join("a" * 15_000) + "=1"), []),
    "a dotted table": (block("[" + ".".join("a" * 15_000) + "]"), []),
    "dotted keys in many lines": (block(*[".".join("b" * 200) + f".k{n}=1" for n in range(70)]), []),
    "conditions of requires-python": (
        block('requires-python = "' + ",".join(f"!=3.{n}" for n in range(3000)) + '"'),
        [],
    ),
    "openers that open nothing": ("#/// script\n" * 40_000, []),
    "blocks that aren't closed": ("# /// script\n\n" * 40_000, []),
    "blocks that swallow others": ("# /// a\n# /// script\n# ///\n\n" * 20_000, []),
    "unknown keys": (block(*[f"dependencie{n} = 1" for n in range(1500)]), []),
}


@pytest.mark.parametrize(("script", "wishes"), HOSTILE.values(), ids=HOSTILE)
def test_what_would_cost_more_than_its_length_is_refused_at_once(script: str, wishes: list[str]) -> None:
    start = time.process_time()
    with pytest.raises(RequestError):
        prepare(script, pythons=("3.13",), default_python="3.13", dependencies=wishes, python_version=None)
    assert time.process_time() - start < SECONDS


def test_as_many_plain_dependencies_as_there_is_room_for_take_no_time() -> None:
    start = time.process_time()
    wishes = [f"package-{n}>=1" for n in range(1500)]
    prepared = prepare(
        "print(1)", pythons=("3.13",), default_python="3.13", dependencies=wishes, python_version=None
    )
    assert len(prepared.requirements) == 1500
    assert time.process_time() - start < SECONDS
