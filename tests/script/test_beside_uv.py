"""What is a metadata block and what isn't, asked of ours and of the real uv.

Both read the same bytes; packages come from a folder of empty wheels. Where the answers differ, both are
written down with the reason.
"""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.intake import prepare
from python_exec_sandbox.script.metadata import read_metadata
from python_exec_sandbox.script.problems import Problems
from python_exec_sandbox.script.source import from_bytes

UV_SECONDS = 30
"""It takes 20 ms; the rest is the machine's other work."""

PACKAGES = ("zz-one", "zz-two")


class Answer(Enum):
    """What is said of a script that has no usable block."""

    NONE = "no block"
    ERROR = "an error"


NONE, ERROR = Answer.NONE, Answer.ERROR

Outcome = Answer | tuple[str, ...]
"""Or the names of the packages that the block asks for."""

ONE = ("zz-one",)
BOTH = ("zz-one", "zz-two")


@dataclass(frozen=True, slots=True)
class Different:
    """A text on which ours and uv disagree, on purpose."""

    text: str | bytes
    ours: Outcome
    uv: Outcome
    reason: str


def block(*lines: str, opener: str = "# /// script", closer: str = "# ///", end: str = "\n") -> str:
    """A block with ``lines`` for its content, each with its comment sign."""
    return end.join([opener, *lines, closer, ""])


DEPENDENCIES = '# dependencies = ["zz-one"]'
PLAIN = block(DEPENDENCIES)
TWO = block('# dependencies = ["zz-two"]')

SAME: dict[str, tuple[str | bytes, Outcome]] = {
    # What a block may look like.
    "a block": (PLAIN, ONE),
    "no block": ("print(1)\n", NONE),
    "code around it": ("import os\n" + PLAIN + "print(1)\n", ONE),
    "shebang before it": ("#!/usr/bin/env python3\n" + PLAIN, ONE),
    "shebang and cookie before it": ("#!/usr/bin/python\n# coding: utf-8\n" + PLAIN, ONE),
    "docstring before it": ('"""doc"""\n' + PLAIN, ONE),
    "at the end of the script": ("print(1)\n" + PLAIN, ONE),
    "no line end after the closer": (PLAIN.removesuffix("\n"), ONE),
    "CRLF": (PLAIN.replace("\n", "\r\n"), ONE),
    "CRLF in some lines": (PLAIN.replace('"]\n', '"]\r\n'), ONE),
    "an array over several lines": (
        block("# dependencies = [", '#   "zz-one",', "#", "#   'zz-two',", "# ]"),
        BOTH,
    ),
    "comments inside": (block("# # a comment", DEPENDENCIES + "  # another"), ONE),
    "a bare comment sign inside": (block("#", DEPENDENCIES, "#"), ONE),
    "only a bare comment sign inside": (block("#"), ()),
    "blanks after the sign": (block("#    dependencies = ['zz-one']"), ONE),
    "a tab after the blank": (block("# \tdependencies = ['zz-one']"), ONE),
    "no dependencies": (block('# requires-python = ">=3.11"'), ()),
    "empty dependencies": (block("# dependencies = []"), ()),
    "both keys": (block('# requires-python = ">=3.11"', DEPENDENCIES), ONE),
    "quoted key": (block('# "dependencies" = ["zz-one"]'), ONE),
    "escapes in a string": (block('# dependencies = ["zz\\u002done"]'), ONE),
    "text of three quotes": (block("# dependencies = ['''zz-one''']"), ONE),
    "version and marker": (block("# dependencies = [\"zz-one>=1; python_version > '3'\"]"), ONE),
    "other spelling of a name": (block('# dependencies = ["ZZ_One"]'), ONE),
    "the same package twice": (block('# dependencies = ["zz-one", "zz-one==1"]'), ONE),
    "a table of another tool": (block(DEPENDENCIES, "# [tool.black]", "# line-length = 3"), ONE),
    "the last closer closes": (block("# a = '''", "# ///", "# '''", DEPENDENCIES), ONE),
    "a comment after it": (PLAIN + "# a comment\n", ONE),
    "an unknown key": (block(DEPENDENCIES, "# licence = 'MIT'"), ONE),
    "inside brackets": ("x = (\n" + PLAIN + "1)\n", ONE),
    "after a line that goes on": ("x = 1 + \\\n" + PLAIN, ONE),
    "after a mistake of syntax": ("def (\n" + PLAIN, ONE),
    "after a string that never ends": ('x = """\n' + PLAIN, ONE),
    "other line ends of Unicode beside it": (PLAIN + "# \x85 \u2028 \x0c\n", ONE),
    "nothing inside": ("# /// script\n# ///\n", ()),
    "another type never closed before it": ("# /// other\n# x\n\n" + PLAIN, ONE),
    # What is none.
    "another type": ("# /// other\n" + DEPENDENCIES + "\n# ///\n", NONE),
    "another type before it": ("# /// other\n# x\n# ///\n\n" + PLAIN, ONE),
    "another type whose name begins alike": (block(DEPENDENCIES, opener="# /// scripts"), NONE),
    "in a string of one line": ("x = '# /// script'\n", NONE),
    "after code on its line": ("x = 1 # /// script\n# dependencies = ['zz-one']\n# ///\n", NONE),
    "slashes alone": ("# ///\n# text\n# ///\n", NONE),
    "five slashes": ("# ///// script\n# x\n# /////\n", NONE),
    "no comment": ("/// script\n", NONE),
    # What is wrong.
    "TOML that is not closed": (block('# dependencies = ["zz-one"'), ERROR),
    "TOML without quotes": (block("# dependencies = [zz-one]"), ERROR),
    "a key twice": (block(DEPENDENCIES, DEPENDENCIES), ERROR),
    "dependencies are a text": (block('# dependencies = "zz-one"'), ERROR),
    "a number among them": (block('# dependencies = ["zz-one", 3]'), ERROR),
    "requires-python is a number": (block("# requires-python = 3.13"), ERROR),
    "requires-python is no specifier": (block('# requires-python = "snake"'), ERROR),
    "requires-python without an operator": (block('# requires-python = "3.13"'), ERROR),
    "no requirement": (block('# dependencies = ["zz one"]'), ERROR),
    "an option": (block('# dependencies = ["--pre"]'), ERROR),
    "pins that exclude each other": (block('# dependencies = ["zz-one==1", "zz-one==2"]'), ERROR),
    "two blocks": (PLAIN + "\n" + TWO, ERROR),
    "two blocks without a line between": (PLAIN + TWO, ERROR),
    "two blocks, one with nothing inside": ("# /// script\n# ///\n\n" + PLAIN, ERROR),
    "a comment and a closer after it": (PLAIN + "# a comment\n# ///\n", ERROR),
    "an opener alone": ("# /// script", ERROR),
    "a closer without a blank": (block(DEPENDENCIES, closer="#///"), ERROR),
    "a list in the list": (block('# dependencies = [["zz-one"]]'), ERROR),
    "a table of dependencies": (block("# [dependencies]", "# a = 1"), ERROR),
    "an empty dependency": (block('# dependencies = ["zz-one", ""]'), ERROR),
    "a path": (block('# dependencies = ["./zz"]'), ERROR),
    "an address of a file": (block('# dependencies = ["zz-one @ file:///etc/x.whl"]'), ERROR),
    "an address without a name": (block('# dependencies = ["https://example.org/zz-1.whl"]'), ERROR),
    "a source that is a path": (
        block(DEPENDENCIES, "# [tool.uv.sources]", "# zz-one = { path = '/etc' }"),
        ERROR,
    ),
    "requires a Python of long ago": (block('# requires-python = "<3"', DEPENDENCIES), ERROR),
    "a control character": (block("# x = '\x01'", DEPENDENCIES), ERROR),
    "never closed": (PLAIN.removesuffix("# ///\n"), ERROR),
    "closed after code": ("# /// script\n" + DEPENDENCIES + "\nprint(1)\n# ///\n", ERROR),
    "a blank after the closer": (block(DEPENDENCIES, closer="# /// "), ERROR),
    "an empty line inside": (block("", DEPENDENCIES), ERROR),
    "a line without a blank inside": (block("#dependencies = ['zz-one']"), ERROR),
    "tool is no table": (block("# tool = 3"), ERROR),
    "tool.uv is no table": (block("# [tool]", "# uv = 3"), ERROR),
    "not UTF-8": (b"# \xff\n" + PLAIN.encode(), ERROR),
}

MEANT = "uv takes it for a comment and runs the script without its dependencies"
TEXT = "for Python it is text in a string, and tools that write scripts have such strings"
CPYTHON = "Python reads such a file, so its block counts"

DIFFERENT: dict[str, Different] = {
    "a byte order mark": Different("\ufeff" + PLAIN, ONE, NONE, CPYTHON),
    "a byte order mark and CRLF": Different("\ufeff" + PLAIN.replace("\n", "\r\n"), ONE, NONE, CPYTHON),
    "CR": Different(PLAIN.replace("\n", "\r"), ONE, NONE, CPYTHON),
    "CR in a single place": Different(PLAIN.replace("[", "[\r# "), ONE, ERROR, CPYTHON),
    "Latin-1 with its cookie": Different(
        b"# coding: latin-1\n" + PLAIN.encode() + b"# \xe9\n", ONE, ERROR, CPYTHON
    ),
    "Shift-JIS with its cookie": Different(
        ("# coding: shift_jis\n" + PLAIN + "# 日\n").encode("shift_jis"), ONE, ERROR, CPYTHON
    ),
    "in a string": Different('x = """\n' + PLAIN + '"""\n', NONE, ONE, TEXT),
    "in a string with single quotes": Different("x = '''\n" + PLAIN + "'''\n", NONE, ONE, TEXT),
    "in an f-string": Different('x = f"""\n{1}\n' + PLAIN + '"""\n', NONE, ONE, TEXT),
    "in a string that a backslash continues": Different("x = '\\\n" + PLAIN + "'\n", NONE, ONE, TEXT),
    "in a string before the block": Different('x = """\n' + PLAIN + '"""\n' + TWO, ("zz-two",), ERROR, TEXT),
    "in a string after the block": Different(PLAIN + 'x = """\n' + TWO + '"""\n', ONE, ERROR, TEXT),
    "a blank after the opener": Different(block(DEPENDENCIES, opener="# /// script "), ERROR, NONE, MEANT),
    "an opener without a blank": Different(block(DEPENDENCIES, opener="#/// script"), ERROR, NONE, MEANT),
    "a tab in the opener": Different(block(DEPENDENCIES, opener="#\t/// script"), ERROR, NONE, MEANT),
    "two blanks in the opener": Different(block(DEPENDENCIES, opener="# ///  script"), ERROR, NONE, MEANT),
    "no blank before the type": Different(block(DEPENDENCIES, opener="# ///script"), ERROR, NONE, MEANT),
    "a no-break space in the opener": Different(
        block(DEPENDENCIES, opener="#\u00a0/// script"), ERROR, NONE, MEANT
    ),
    "a no-break space before the type": Different(
        block(DEPENDENCIES, opener="# ///\u00a0script"), ERROR, NONE, MEANT
    ),
    "an invisible space in the opener": Different(
        block(DEPENDENCIES, opener="# ///\u200b script"), ERROR, NONE, MEANT
    ),
    "a form feed before the opener": Different("\x0c" + PLAIN, ERROR, NONE, MEANT),
    "an indented block": Different(
        "if 1:\n    " + PLAIN.replace("\n", "\n    ") + "pass\n", ERROR, NONE, MEANT
    ),
    "a capital letter in the type": Different(block(DEPENDENCIES, opener="# /// Script"), ERROR, NONE, MEANT),
    "two slashes": Different(block(DEPENDENCIES, opener="# // script"), ERROR, NONE, MEANT),
    "four slashes": Different(block(DEPENDENCIES, opener="# //// script"), ERROR, NONE, MEANT),
    "two comment signs": Different(block(DEPENDENCIES, opener="## /// script"), ERROR, NONE, MEANT),
    "an opener without a type": Different(block(DEPENDENCIES, opener="# ///"), ERROR, NONE, MEANT),
    "words after the type": Different(
        block(DEPENDENCIES, opener="# /// script (PEP 723)"), ERROR, NONE, MEANT
    ),
    "a second block that is malformed": Different(
        PLAIN + "\n#/// script\n# dependencies = ['zz-two']\n# ///\n",
        ERROR,
        ONE,
        "uv runs the script without the second one's dependencies",
    ),
    "a block of another type around it": Different(
        "# /// other\n" + PLAIN,
        ERROR,
        ONE,
        "the specification takes it for content of the other, uv doesn't: the script's author decides",
    ),
    "a misspelt key": Different(
        block("# dependancies = ['zz-one']"), ERROR, (), "uv runs the script without its dependencies"
    ),
    "a key with an underscore": Different(
        block(DEPENDENCIES, "# requires_python = '>=3.11'"),
        ERROR,
        ONE,
        "uv runs the script with any Python",
    ),
    "an index": Different(
        block(DEPENDENCIES, "# [[tool.uv.index]]", "# url = 'https://example.org/simple'"),
        ERROR,
        ONE,
        "where packages come from is the server's setting",
    ),
    "a setting of uv that it doesn't know": Different(
        block(DEPENDENCIES, "# [tool.uv]", "# no-such-key = 1"),
        ONE,
        ERROR,
        "uv's settings are left out, each with a note: they are not the sandbox's",
    ),
    "a Python of a single patch": Different(
        block('# requires-python = "==3.13"', DEPENDENCIES),
        ERROR,
        ONE,
        "it means 3.13.0, which isn't there; uv warns and takes another",
    ),
    "pins for different Pythons that exclude each other": Different(
        block("# dependencies = [\"zz-one==1; python_version<'3'\", \"zz-one==2; python_version>='3'\"]"),
        ("zz-one", "zz-one"),
        ERROR,
        "that no such version exists is found when packages are resolved, which is a later step",
    ),
    "a NUL byte": Different(PLAIN + "print('\0')\n", ERROR, ONE, "Python refuses it"),
    "UTF-16": Different(PLAIN.encode("utf-16"), ERROR, NONE, "Python refuses it"),
    "a Markdown fence": Different("```python\n" + PLAIN + "```\n", ERROR, ONE, "Python refuses it"),
    "an empty script": Different("", ERROR, NONE, "there is nothing to run"),
    "a block of 70,000 characters": Different(
        block(f"# x = '{'a' * 70_000}'", DEPENDENCIES), ERROR, ONE, "reading it has a bound"
    ),
}


@pytest.fixture(scope="module")
def uv_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of ``PACKAGES`` that contain nothing, and a cache."""
    folder = tmp_path_factory.mktemp("uv")
    for package in PACKAGES:
        name = package.replace("-", "_")
        with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
            info = f"{name}-1.dist-info"
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    return folder


def ask_uv(script: bytes, folder: Path) -> Outcome:
    """What uv finds in the file ``script``."""
    file = folder / "script.py"
    file.write_bytes(script)
    command: list[str | Path] = [
        *(Path(sys.executable).with_name("uv"), "export", "--script", file, "--python", sys.executable),
        *("--offline", "--no-config", "--no-index", "--find-links", folder, "--cache-dir", folder / "cache"),
        *("--no-hashes", "--no-header", "--no-annotate"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=UV_SECONDS, env={}, cwd=folder, check=False
    )
    if done.returncode == 0:
        return tuple(line.partition("==")[0] for line in done.stdout.splitlines())
    return NONE if "does not contain a PEP 723 metadata tag" in done.stderr else ERROR


def ask_ours(script: bytes) -> Outcome:
    """What a run of ``script`` would install."""
    try:
        prepared = prepare(script, pythons=("3.13", "3.14"), default_python="3.13")
    except RequestError:
        return ERROR
    if not read_metadata(from_bytes(script).text, Problems()).line:
        return NONE
    return tuple(
        line.partition(";")[0].partition("=")[0].rstrip(">").lower().replace("_", "-")
        for line in prepared.requirements
    )


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@pytest.mark.parametrize(("text", "outcome"), SAME.values(), ids=SAME)
def test_ours_and_uv_find_the_same(text: str | bytes, outcome: Outcome, uv_folder: Path) -> None:
    assert ask_ours(as_bytes(text)) == outcome
    assert ask_uv(as_bytes(text), uv_folder) == outcome


@pytest.mark.parametrize("case", DIFFERENT.values(), ids=DIFFERENT)
def test_where_they_differ_it_is_on_purpose(case: Different, uv_folder: Path) -> None:
    assert case.ours != case.uv
    assert case.reason
    assert ask_ours(as_bytes(case.text)) == case.ours
    assert ask_uv(as_bytes(case.text), uv_folder) == case.uv
