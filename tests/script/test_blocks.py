"""What opens a block, and what only looks like it."""

import pytest

from python_exec_sandbox.script.blocks import find_blocks


@pytest.mark.parametrize("opener", ["# ///", "# /// ", "#///", "# //"])
@pytest.mark.parametrize("key", ["dependencies", "requires-python"])
def test_an_opener_without_a_name_before_a_key_of_ours_is_a_mistake(opener: str, key: str) -> None:
    found = find_blocks(f"x = 1\n{opener}\n# {key} = []\n# ///\nprint(1)\n")
    assert not found.blocks
    assert "Line 2 of the script looks like the start" in found.mistakes[0]


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u200b", "\ufeff", "\x0c", "\t", ""])
def test_an_opener_with_other_blanks_is_a_mistake(blank: str) -> None:
    for opener in (
        f"#{blank}/// script",
        f"# ///{blank}script",
        f"# /// script{blank}",
        f"{blank}# /// script",
    ):
        found = find_blocks(f"{opener}\n# dependencies = ['x']\n# ///\n")
        assert bool(found.blocks) == (opener == "# /// script")
        assert bool(found.mistakes) == (opener != "# /// script")


def test_words_after_the_opener_are_a_mistake_before_a_key_of_ours_only() -> None:
    assert find_blocks("# /// script: uv\n# dependencies = []\n# ///\n").mistakes
    assert find_blocks("# /// config of the script\n# dependencies = []\n").mistakes
    assert not find_blocks("# /// a heading\n# about dependencies\n").mistakes
    assert not find_blocks("# //////////////\n# dependencies = of the tests\n").mistakes


def test_a_line_in_the_block_with_another_blank_is_told_with_how_to_write_it() -> None:
    [told] = find_blocks("# /// script\n#\u00a0dependencies = []\n# ///\n").mistakes
    assert "line 2" in told
    assert "'# dependencies = []'" in told


def test_a_block_that_swallows_the_next_is_a_mistake_with_both_lines() -> None:
    [told] = find_blocks("x = 1\n# /// other\n# y\n# ///\n# /// script\n# z = 1\n# ///\n").mistakes
    assert "line 2" in told
    assert "line 5" in told


def test_the_closer_of_a_block_is_no_opener_whatever_follows() -> None:
    found = find_blocks("# /// script\n# dependencies = []\n# ///\n\n# ///\n# nothing of ours\n")
    assert len(found.blocks) == 1
    assert not found.mistakes
