"""An interpreter of classic BPF as seccomp runs it, with the checks the kernel makes when a filter is loaded.

Written from ``linux/filter.h`` and ``bpf_check_classic`` alone: it shares no constant with the assembler.
"""

import struct

DATA_BYTES = 64  # struct seccomp_data

LOAD, JUMP_ALWAYS, EQUAL, GREATER, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x05, 0x15, 0x25, 0x35, 0x45, 0x06
CONDITIONS = {
    EQUAL: lambda register, operand: register == operand,
    GREATER: lambda register, operand: register > operand,
    AT_LEAST: lambda register, operand: register >= operand,
    ANY_BIT: lambda register, operand: register & operand != 0,
}


class Refused(Exception):
    """The kernel would not load the program."""


class Filter:
    """A program that passed the kernel's checks."""

    def __init__(self, program: bytes) -> None:
        if len(program) % 8 or not 0 < len(program) // 8 <= 4096:
            raise Refused(f"{len(program)} bytes")
        self._code: list[tuple[int, int, int, int]] = [
            struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)
        ]
        for at, (operation, if_true, if_false, operand) in enumerate(self._code):
            _check(at, len(self._code), operation, if_true, if_false, operand)
        if self._code[-1][0] != RETURN:
            raise Refused("no verdict at the end")

    def __len__(self) -> int:
        return len(self._code)

    def verdict(self, architecture: int, number: int, *arguments: int) -> int:
        """What the kernel does with this call; arguments left out are 0."""
        padded = [argument % 2**64 for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
        data = struct.pack("<IIQ6Q", number % 2**32, architecture, 0xDEADBEEF, *padded)
        at = register = 0
        while True:
            operation, if_true, if_false, operand = self._code[at]
            at += 1
            if operation == LOAD:
                (register,) = struct.unpack_from("<I", data, operand)
            elif operation == JUMP_ALWAYS:
                at += operand
            elif operation == RETURN:
                return operand
            else:
                at += if_true if CONDITIONS[operation](register, operand) else if_false


def _check(at: int, length: int, operation: int, if_true: int, if_false: int, operand: int) -> None:
    if operation == LOAD:
        if operand % 4 or operand >= DATA_BYTES:
            raise Refused(f"instruction {at} loads from {operand}")
    elif operation in CONDITIONS:
        if at + 1 + max(if_true, if_false) >= length:
            raise Refused(f"instruction {at} jumps past the end")
    elif operation == JUMP_ALWAYS:
        if at + 1 + operand >= length:
            raise Refused(f"instruction {at} jumps past the end")
    elif operation != RETURN:
        raise Refused(f"instruction {at} is unknown: {operation:#x}")
