"""Programs that the kernel would refuse are refused here, and jumps land where they should."""

import pytest

from python_exec_sandbox.drivers.bubblewrap.seccomp import assembler
from tests.support.bpf import Filter, Refused

YES, NO = 0x7FFF0000, 0x00050001


def run(*blocks: assembler.Block, number: int = 0) -> int:
    return Filter(assembler.assemble(*blocks)).verdict(0, number)


@pytest.mark.parametrize("count", [1, 2, 254, 255])
def test_each_of_many_values_reaches_the_verdict_and_no_other(count: int) -> None:
    program = (
        assembler.load_number(),
        assembler.give_if_any(range(10, 10 + count), NO),
        assembler.give(YES),
    )
    assert [run(*program, number=at) for at in (10, 9 + count)] == [NO, NO]
    assert [run(*program, number=at) for at in (9, 10 + count)] == [YES, YES]


@pytest.mark.parametrize("count", [0, 256])
def test_more_values_than_a_jump_is_long_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"{count} values"):
        assembler.give_if_any(range(count), NO)


def test_a_block_is_left_out_whole() -> None:
    long = assembler.give(NO) * 255
    program = (assembler.load_number(), assembler.if_equal(7, long), assembler.give(YES))
    assert (run(*program, number=7), run(*program, number=8)) == (NO, YES)
    with pytest.raises(ValueError, match="256"):
        assembler.if_equal(7, long + assembler.give(NO))


def test_numbers_are_compared_as_unsigned() -> None:
    program = (assembler.load_number(), assembler.give_if_at_least(0x80000000, NO), assembler.give(YES))
    assert run(*program, number=0x7FFFFFFF) == YES
    assert run(*program, number=0xFFFFFFFF) == NO


def test_a_program_ends_with_a_verdict() -> None:
    with pytest.raises(ValueError, match="verdict"):
        assembler.assemble(assembler.load_number())
    with pytest.raises(ValueError, match=" 0 instructions"):
        assembler.assemble()
    with pytest.raises(ValueError, match="4097 instructions"):
        assembler.assemble(assembler.give(YES) * 4097)


@pytest.mark.parametrize(
    "program",
    [
        b"",
        b"\x06\x00\x00\x00\x00\x00",  # not whole
        bytes.fromhex("2000000000000000"),  # no verdict
        bytes.fromhex("1500000100000000 0600000000000000"),  # jumps past the end
        bytes.fromhex("2000000041000000 0600000000000000"),  # loads past the data
        bytes.fromhex("0700000000000000 0600000000000000"),  # unknown to seccomp
    ],
)
def test_the_interpreter_refuses_what_the_kernel_would(program: bytes) -> None:
    with pytest.raises(Refused):
        Filter(program)
