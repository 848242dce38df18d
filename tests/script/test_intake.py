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


def test_everything_wrong_with_a_request_is_told_at_once() -> None:
    with pytest.raises(RequestError, match=r"(?s)3 problems.*never closed.*option.*3\.9"):
        read("# /// script\nx", "--pre", python_version="3.9")
