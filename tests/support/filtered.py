"""``python filtered.py PROGRAM COMMAND...``: become COMMAND under the seccomp filter in the file PROGRAM.

As bubblewrap does it: no new privileges, the filter, exec.
"""

import ctypes
import os
import sys
from pathlib import Path

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2


class SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load(program: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    described = SockFprog(len(program) // 8, program)
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"prctl{arguments}")


if __name__ == "__main__":
    load(Path(sys.argv[1]).read_bytes())
    os.execv(sys.argv[2], sys.argv[2:])
