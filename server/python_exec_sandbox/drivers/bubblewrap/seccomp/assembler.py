"""Classic BPF for seccomp, put together from a few forms.

A program sees ``struct seccomp_data``: the call's number, the architecture, and six arguments of 64 bits.
It has one register of 32 bits; jumps go forward only, by at most 255 instructions. Formats and constants:
``linux/filter.h``, ``linux/seccomp.h``, ``linux/audit.h``.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

# struct sock_filter: operation, jump if true, jump if false, operand.
_INSTRUCTION = struct.Struct("=HBBI")

MOST_INSTRUCTIONS = 4096  # BPF_MAXINSNS
_FARTHEST_JUMP = 255

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_NUMBER_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
_ARGUMENTS_OFFSET = 16
_ARGUMENT_BYTES = 8

ALLOW = 0x7FFF0000  # SECCOMP_RET_ALLOW
KILL_PROCESS = 0x80000000  # SECCOMP_RET_KILL_PROCESS
_REFUSE = 0x00050000  # SECCOMP_RET_ERRNO


def refuse(error: int) -> int:
    """The verdict "the call fails with ``error``"."""
    return _REFUSE | error


@dataclass(frozen=True, slots=True)
class Instruction:
    """``if_true`` and ``if_false`` count the instructions a jump leaves out."""

    operation: int
    operand: int
    if_true: int = 0
    if_false: int = 0


Block = tuple[Instruction, ...]
"""Instructions in a row. One that ends without a verdict goes on with what follows it."""


def load_architecture() -> Block:
    return (Instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET),)


def load_number() -> Block:
    return (Instruction(_LOAD_WORD, _NUMBER_OFFSET),)


def load_argument(index: int) -> Block:
    """The low half of an argument.

    Enough wherever the kernel itself takes the argument for an ``int``: it ignores the high half too. Both
    architectures are little-endian, so the low half comes first.
    """
    return (Instruction(_LOAD_WORD, _ARGUMENTS_OFFSET + _ARGUMENT_BYTES * index),)


def give(verdict: int) -> Block:
    """End with ``verdict``."""
    return (Instruction(_RETURN, verdict),)


def give_if_any(values: Sequence[int], verdict: int) -> Block:
    """End with ``verdict`` if the register equals one of ``values``; else go on, the register unchanged.

    Raises:
        ValueError: more values than a jump is long, or none.
    """
    if not 0 < len(values) <= _FARTHEST_JUMP:
        raise ValueError(f"{len(values)} values in one test; a jump reaches 1 to {_FARTHEST_JUMP}")
    last = len(values) - 1
    tests = (
        Instruction(_JUMP_IF_EQUAL, value, if_true=last - at, if_false=1 if at == last else 0)
        for at, value in enumerate(values)
    )
    return (*tests, *give(verdict))


def give_unless_equal(value: int, verdict: int) -> Block:
    """End with ``verdict`` unless the register equals ``value``."""
    return (Instruction(_JUMP_IF_EQUAL, value, if_true=1), *give(verdict))


def give_if_at_least(value: int, verdict: int) -> Block:
    """End with ``verdict`` if the register is ``value`` or more, taken as unsigned."""
    return (Instruction(_JUMP_IF_AT_LEAST, value, if_false=1), *give(verdict))


def give_if_any_bit(bits: int, verdict: int) -> Block:
    """End with ``verdict`` if the register has one of ``bits`` set."""
    return (Instruction(_JUMP_IF_ANY_BIT, bits, if_false=1), *give(verdict))


def if_equal(value: int, block: Block) -> Block:
    """Carry out ``block`` if the register equals ``value``. What follows must load what it needs again.

    Raises:
        ValueError: the block is longer than a jump.
    """
    if len(block) > _FARTHEST_JUMP:
        raise ValueError(f"a block of {len(block)} instructions; a jump reaches {_FARTHEST_JUMP}")
    return (Instruction(_JUMP_IF_EQUAL, value, if_false=len(block)), *block)


def assemble(*blocks: Block) -> bytes:
    """The program as the kernel takes it, and as ``bwrap --seccomp`` reads it.

    Raises:
        ValueError: longer than the kernel accepts, or it could run past its end.
    """
    program = [instruction for block in blocks for instruction in block]
    if not 0 < len(program) <= MOST_INSTRUCTIONS:
        raise ValueError(
            f"a program of {len(program)} instructions; the kernel takes 1 to {MOST_INSTRUCTIONS}"
        )
    if program[-1].operation != _RETURN:
        raise ValueError("a program must end with a verdict")
    return b"".join(
        _INSTRUCTION.pack(each.operation, each.if_true, each.if_false, each.operand) for each in program
    )
