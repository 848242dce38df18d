"""The checker itself, under this process's Python; integration/ runs it in a sandbox."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from python_exec_sandbox.run.inside import check_syntax


def check(script: str | bytes) -> dict[str, Any]:
    answer: dict[str, Any] = check_syntax.check(script if isinstance(script, bytes) else script.encode())
    json.dumps(answer)
    return answer


def test_a_script_that_compiles_is_not_executed(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "ran"
    answer = check(f"print('ran')\nopen({str(target)!r}, 'w')\n__import__('os')._exit(3)\n")
    assert answer["error"] is None
    assert not target.exists()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("script", "kind", "line", "column"),
    [
        ("x = 1\nif x\n    pass\n", "SyntaxError", 2, 5),
        ("def f():\n\tx = 1\n        y = 2\n", "TabError", 3, None),
        ("def f():\nreturn 1\n", "IndentationError", 2, None),
        ("x = 1\nreturn x\n", "SyntaxError", 2, 1),
        ("print('ä' 'b'\n", "SyntaxError", 1, 6),
    ],
)
def test_what_the_compiler_refuses_is_told_with_its_place(
    script: str, kind: str, line: int, column: int | None
) -> None:
    error = check(script)["error"]
    assert (error["kind"], error["line"]) == (kind, line)
    assert error["message"]
    if column is not None:
        assert error["column"] == column
        assert error["text"] == script.splitlines()[line - 1]


def test_a_coding_comment_is_obeyed_as_in_a_file() -> None:
    assert check("# coding: latin-1\nx = 'é'\n".encode("latin-1"))["error"] is None
    assert check("x = 'é'\n".encode("latin-1"))["error"]["kind"] == "SyntaxError"


@pytest.mark.parametrize(
    "script",
    ["(" * 5000 + ")" * 5000, "-" * 20_000 + "1", "x = " + "[" * 300, "a" + ".b" * 20_000, "\0"],
    ids=["parentheses", "minus", "brackets", "attributes", "nul"],
)
def test_what_is_too_deep_for_the_compiler_is_an_answer_or_the_end_of_its_process_alone(script: str) -> None:
    done = subprocess.run(
        [sys.executable, check_syntax.__file__],
        input=script.encode(),
        capture_output=True,
        timeout=50,
        check=False,
    )
    if done.returncode >= 0:
        assert done.returncode == 0, done.stderr
        assert set(json.loads(done.stdout)) == {"python", "error", "warnings", "imports"}


def test_warnings_are_told_once_each_with_their_lines() -> None:
    doubts = check("x = 1\nif x is 1: pass\ny = '\\d'\n")["warnings"]
    assert [doubt["line"] for doubt in doubts] == [2, 3]
    assert len(check("\n".join(["x is 1"] * 100))["warnings"]) == check_syntax.MOST_WARNINGS


def test_only_imports_that_are_needed_and_no_part_of_python_are_named() -> None:
    script = """
import os, numpy.linalg, json
from yaml import load
from . import sibling
try:
    import optional
except ImportError:
    optional = None
try:
    import needed
finally:
    pass
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import for_types
def f():
    import late, numpy
"""
    assert [(one["module"], one["line"]) for one in check(script)["imports"]] == [
        ("numpy", 2),
        ("yaml", 3),
        ("needed", 10),
        ("late", 17),
    ]


def test_a_large_script_is_checked_without_hints() -> None:
    answer = check("import numpy\n" + "x = 1\n" * 50_000)
    assert answer["error"] is None
    assert answer["imports"] == []
