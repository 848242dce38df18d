import contextlib
import re
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script import cutoffs
from python_exec_sandbox.script.blocks import find_blocks
from python_exec_sandbox.script.metadata import MAX_BLOCK_CHARACTERS, Metadata
from python_exec_sandbox.script.metadata import read_metadata as read_into
from python_exec_sandbox.script.problems import Problems

SPECIFIED = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def read_metadata(text: str) -> Metadata:
    """What a faultless script says of itself."""
    problems = Problems()
    metadata = read_into(text, problems)
    problems.raise_any()
    return metadata


def problem(text: str) -> str:
    with pytest.raises(RequestError) as caught:
        read_metadata(text)
    return str(caught.value)


def test_a_script_without_a_block_has_no_metadata() -> None:
    assert read_metadata("import os  # ///\n").dependencies == ()


def test_dependencies_and_python_are_read_with_their_line() -> None:
    found = read_metadata(
        '#!/usr/bin/env python3\n"""doc"""\n# /// script\n# requires-python = ">=3.13"\n'
        '# dependencies = [\n#   "humanize>=4",\n#\n#   "rich",\n# ]\n# ///\nimport humanize\n'
    )
    assert found.dependencies == ("humanize>=4", "rich")
    assert found.requires_python == ">=3.13"
    assert found.line == 5


def test_the_last_closing_line_of_a_run_of_comments_closes() -> None:
    found = find_blocks('# /// some\n# a = """\n# /// <x>\n# ///\n# b"""\n# ///\n# more\nprint()\n')
    assert found.blocks[0].lines == ('a = """', "/// <x>", "///", 'b"""')


def test_blocks_of_other_types_are_left_alone() -> None:
    assert (
        read_metadata("# /// pyproject\n# not toml at all [\n# ///\n# /// other\nx = 1\n").dependencies == ()
    )


def test_two_script_blocks_are_an_error() -> None:
    block = "# /// script\n# dependencies = []\n# ///\n\n"
    assert "lines 1 and 5" in problem(block + block)


@pytest.mark.parametrize("quote", ['"""', "'''"])
def test_a_block_inside_a_string_literal_is_text(quote: str) -> None:
    text = f'TEMPLATE = {quote}\n# /// script\n# dependencies = ["x"]\n# ///\n{quote}\n'
    assert read_metadata(text).dependencies == ()
    assert read_metadata(text + '# /// script\n# dependencies = ["y"]\n# ///\n').dependencies == ("y",)


def test_what_looks_wrong_inside_a_string_literal_is_text_too() -> None:
    assert read_metadata('T = """\n#/// script\n# /// script\nopen\n"""\n').dependencies == ()


def test_a_script_that_can_not_be_tokenised_keeps_its_block() -> None:
    text = 'if 1:\n        a\n    b\n# /// script\n# dependencies = ["x"]\n# ///\n'
    assert read_metadata(text).dependencies == ("x",)


def test_newer_syntax_before_the_block_does_not_hide_it() -> None:
    text = 'type A = int\nprint(f"{"a" + "b"}", t"{1}")\n# /// script\n# dependencies = ["x"]\n# ///\n'
    assert read_metadata(text).dependencies == ("x",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('# /// script \n# dependencies = ["x"]\n# ///\n', ["Line 1", "'# /// script'"]),
        ('x = 1\n#/// script\n# dependencies = ["x"]\n# ///\n', ["Line 2", "'# /// script'"]),
        ('# /// Script\n# dependencies = ["x"]\n# ///\n', ["Line 1", "'# /// script'"]),
        ('  # /// script\n# dependencies = ["x"]\n# ///\n', ["Line 1"]),
        ('# // script\n# dependencies = ["x"]\n# ///\n', ["Line 1"]),
        ('# /// script\n#dependencies = ["x"]\n# ///\n', ["line 2", "blank", "'# dependencies"]),
        ('# /// script\n# dependencies = [\n#"x"\n# ]\n# ///\n', ["line 3", "blank"]),
        ('# /// script\n\n# dependencies = ["x"]\n# ///\n', ["empty line 2"]),
        ('# /// script\n# dependencies = ["x"]\n# /// \nx = 1\n', ["line 3", "'# ///'"]),
        ('# /// script\n# dependencies = ["x"]\n#///\nx = 1\n', ["line 3", "'# ///'"]),
        ('# /// script\n# dependencies = ["x"]\nimport x\n', ["line 1", "never closed", "line 2"]),
        ('# /// script\n# dependencies = ["x"]', ["never closed"]),
        ("# /// script", ["never closed"]),
        ('# /// script\n# dependencies = ["x"\n# ///\n', ["TOML", "Line 2"]),
        ('# /// script\n# requires-python = ">=3.13"\n# dependencies = [x]\n# ///\n', ["TOML", "Line 3"]),
        ('x = 1\n# /// script\n# dependencies = "x"\n# ///\n', ["Line 3", "list of texts"]),
        ('# /// script\n# dependencies = ["x", 3]\n# ///\n', ["Line 2", "list of texts"]),
        ("# /// script\n# requires-python = 3.13\n# ///\n", ["Line 2", "requires-python"]),
        ('# /// script\n# requires-python = "snake"\n# ///\n', ["Line 2", "snake"]),
        ('# /// script\n# dependancies = ["x"]\n# ///\n', ["Line 2", "'dependencies'"]),
        ('# /// script\n# requires_python = ">=3.13"\n# ///\n', ["Line 2", "'requires-python'"]),
        (
            '# /// script\n# a = 1\n# [tool.uv.sources]\n# x = {path = "/etc"}\n# ///\n',
            ["'x'", "is a path", "line 1"],
        ),
        ('# /// script\n# [[tool.uv.index]]\n# url = "https://example.org"\n# ///\n', ["'index'"]),
        ("# /// script\n# a = " + "[" * 5000 + "\n# ///\n", ["line 1", "nested"]),
        ("# /// script\n# a = 1" + "0" * 5000 + "\n# ///\n", ["TOML"]),
        ("# /// script\n# a = '" + "0" * MAX_BLOCK_CHARACTERS + "'\n# ///\n", [f"{MAX_BLOCK_CHARACTERS:,}"]),
    ],
)
def test_a_malformed_block_gives_an_error_that_names_the_line_and_the_fix(
    text: str, words: list[str]
) -> None:
    told = problem(text)
    for word in words:
        assert word in told
    assert len(told) < 500


def test_all_problems_of_a_block_are_told_at_once() -> None:
    told = problem('# /// script\n# dependencies = "x"\n# requires-python = "snake"\n# ///\n')
    assert "2 problems" in told


def test_two_blocks_without_a_line_between_are_told_as_such() -> None:
    block = "# /// script\n# dependencies = []\n# ///\n"
    told = problem(block + block)
    assert "line 1" in told
    assert "line 4" in told
    assert "only one is allowed" in told


def test_what_is_wrong_and_what_is_noted_comes_in_the_order_of_its_lines() -> None:
    keys = [f"k{n}" for n in range(20)]
    found = read_metadata("# /// script\n" + "".join(f"# {key} = 1\n" for key in keys) + "# ///\n")
    assert [note.split("'")[1] for note in found.notes] == keys


def test_unknown_keys_and_harmless_settings_are_noted() -> None:
    found = read_metadata(
        '# /// script\n# licence = "MIT"\n# [tool.uv]\n# prerelease = "allow"\n'
        "# [tool.ruff]\n# line-length = 3\n# ///\n"
    )
    assert len(found.notes) == 2
    assert "licence" in found.notes[0]
    assert "prerelease" in found.notes[1]


@pytest.mark.parametrize("value", ['"2025-01-01"', "2025-01-01", '"7 days"', "2025-01-01T00:00:00Z"])
def test_a_cutoff_is_read_as_a_text_or_as_a_date(value: str) -> None:
    found = read_metadata(f"# /// script\n# [tool.uv]\n# exclude-newer = {value}\n# ///\n")
    assert cutoffs.moment(found.exclude_newer, datetime.now(UTC)) is not None


def test_sources_with_an_address_are_read() -> None:
    found = read_metadata(
        '# /// script\n# dependencies = ["A_b"]\n# [tool.uv.sources]\n# A_b = { url = "https://f.example/a.zip" }\n# ///\n'
    )
    assert found.sources == {"a-b": "https://f.example/a.zip"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('x = { git = "https://example.org/x" }', "needs git"),
        ('x = { path = "../x" }', "is a path"),
        ("x = { workspace = true }", "is a workspace"),
        ('x = { index = "inner" }', "names an index"),
        ('x = { url = "https://f.example/x.zip", subdirectory = "a" }', "nothing more"),
        ("x = { url = 3 }", "nothing more"),
        ('x = [{ url = "https://f.example/x.zip" }]', "nothing more"),
        ("x = 3", "nothing more"),
    ],
)
def test_all_other_sources_are_refused_in_a_line(line: str, words: str) -> None:
    told = problem(f"# /// script\n# [tool.uv.sources]\n# {line}\n# ///\n")
    assert words in told
    assert "'x'" in told


@pytest.mark.parametrize("value", ['"yesterday"', "3", '["2025-01-01"]', '"2025-13-01"', '"7 days; x"'])
def test_a_cutoff_that_is_no_time_is_a_problem(value: str) -> None:
    assert "is no time" in problem(f"# /// script\n# [tool.uv]\n# exclude-newer = {value}\n# ///\n")


LINES = st.sampled_from(
    [
        "# /// script",
        "# ///",
        "# /// other-1",
        "#",
        "# a = 1",
        "#b",
        "",
        "x = 1",
        "# /// ",
        "# /// b_c",
        "#\t",
    ]
)


@given(st.lists(LINES, max_size=12).map("\n".join), st.sampled_from(["", "\n"]))
def test_blocks_are_those_of_the_specified_pattern(text: str, end: str) -> None:
    script = text + end
    expected = [
        (match["type"], match["content"].removesuffix("\n").split("\n"))
        for match in SPECIFIED.finditer(script)
    ]
    found = [(block.type, block.lines) for block in find_blocks(script).blocks if block.lines]
    assert found == [(kind, tuple(line[2:] for line in lines)) for kind, lines in expected]


@given(st.text(alphabet="# /script\n=[]\"'x", max_size=60))
def test_any_text_gives_metadata_or_a_request_error(text: str) -> None:
    with contextlib.suppress(RequestError):
        assert read_metadata(text).line >= 0


@pytest.mark.parametrize(
    "line", ["# /// script\n", "# /// a\n", "#/// script\n", "# ///\n", '"""\n# /// script\n']
)
def test_a_hostile_script_takes_time_proportional_to_its_length(line: str) -> None:
    began = time.perf_counter()
    find_blocks(line * (600_000 // len(line)))
    assert time.perf_counter() - began < 10  # the pattern itself takes minutes
