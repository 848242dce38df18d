import pytest

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.intake import Prepared, prepare

BLOCK = '# /// script\n# dependencies = ["humanize"]\n# ///\nimport humanize\n'


def read(script: str | bytes, *dependencies: str, python_version: str | None = None) -> Prepared:
    return prepare(
        script,
        pythons=("3.13", "3.14"),
        default_python="3.13",
        dependencies=dependencies,
        python_version=python_version,
    )


@pytest.mark.parametrize(
    "script",
    [
        BLOCK,
        "\ufeff" + BLOCK,
        BLOCK.replace("\n", "\r\n"),
        BLOCK.replace("\n", "\r"),
        "#!/usr/bin/env python3\n# coding: latin-1\n'''doc'''\n" + BLOCK,
        ("\ufeff" + BLOCK.replace("\n", "\r\n")).encode(),
    ],
)
def test_every_way_to_write_a_block_keeps_its_dependencies(script: str | bytes) -> None:
    assert read(script).requirements == ("humanize",)


def test_the_text_that_runs_is_the_text_that_was_sent() -> None:
    assert read(BLOCK, "six").source.data == BLOCK.encode()


def test_dependencies_of_block_and_argument_are_merged() -> None:
    assert read(BLOCK, "six", "Humanize>=4").requirements == ("humanize>=4", "six")


def test_a_contradiction_names_both_places() -> None:
    with pytest.raises(RequestError, match=r"line 2 of the script.*dependencies argument"):
        read(BLOCK.replace("humanize", "humanize==4"), "humanize==5")


def test_each_dependency_is_told_with_its_own_line() -> None:
    script = '# /// script\n# dependencies = [\n#   "six",  # not "x"\n#   "--pre", \'./y\',\n#   "rich",\n#   "a b"]\n# ///\n'
    with pytest.raises(RequestError) as caught:
        read(script)
    told = str(caught.value)
    assert "'--pre' (line 4 of the script)" in told
    assert "'./y' (line 4 of the script)" in told
    assert "'a b' (line 6 of the script)" in told


@pytest.mark.parametrize("written", ['"""--pre"""', '"\\u002d-pre"'])
def test_a_dependency_whose_place_is_hard_to_tell_has_the_line_of_its_key(written: str) -> None:
    with pytest.raises(RequestError, match="line 2 of the script"):
        read(f"# /// script\n# dependencies = [\n# {written}]\n# ///\n")


def test_a_fault_of_the_text_does_not_hide_those_of_its_block() -> None:
    script = '# /// script\n# dependencies = ["--pre"]\n# requires-python = 3\n# dependency = 1\n# ///\nx = "\0"\ny = "\ud800"\n'
    with pytest.raises(RequestError, match=r"(?s)5 problems.*Line 6.*Line 7.*Line 3.*Line 4.*line 2"):
        read(script)
    with pytest.raises(RequestError, match=r"(?s)2 problems.*byte 0xff in line 1.*'--pre' \(line 3"):
        read(b"# \xff\r# /// script\r\n# dependencies = ['--pre']\n# ///\n")


def test_everything_wrong_with_a_request_is_told_at_once() -> None:
    with pytest.raises(RequestError, match=r"(?s)3 problems.*never closed.*option.*3\.9"):
        read("# /// script\nx", "--pre", python_version="3.9")
