"""What opens a block, and what only looks like it."""

import pytest

from python_exec_sandbox.script.blocks import find_blocks


@pytest.mark.parametrize("opener", ["# ///", "# /// ", "#///", "# //"])
@pytest.mark.parametrize("key", ["dependencies", "requires-python"])
def test_an_opener_without_a_name_before_a_key_of_ours_is_a_mistake(opener: str, key: str) -> None:
    found = find_blocks(f"x = 1\n{opener}\n# {key} = []\n# ///\nprint(1)\n")
    assert not found.blocks
    assert "Line 2 of the script looks like the start" in found.mistakes[0]


def test_the_closer_of_a_block_is_no_opener_whatever_follows() -> None:
    found = find_blocks("# /// script\n# dependencies = []\n# ///\n\n# ///\n# nothing of ours\n")
    assert len(found.blocks) == 1
    assert not found.mistakes
