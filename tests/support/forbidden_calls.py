"""``python forbidden_calls.py NAME=NUMBER...``: make each call and print ``NAME ERRNO``, 0 if it succeeded.

The arguments are such that a process without any privilege gets another answer from the kernel itself.
"""

import ctypes
import os
import sys
import threading

BAD_POINTER = 1
OWN_PID = os.getpid()

ARGUMENTS: dict[str, tuple[int, ...]] = {
    "bpf": (-1, BAD_POINTER, 0),
    "chroot": (BAD_POINTER,),
    "clone": (0x10000000 | 17, 0, 0, 0, 0),
    "clone3": (BAD_POINTER, 0),
    "get_mempolicy": (0, 0, 0, 0, 0),
    "io_uring_setup": (0, BAD_POINTER),
    "ioctl": (-1, 0x5412, 0),
    "kcmp": (OWN_PID, OWN_PID, 0, 0, 0),
    "keyctl": (0, -3, 0, 0, 0),
    "mount": (BAD_POINTER, BAD_POINTER, BAD_POINTER, 0, 0),
    "move_mount": (-1, BAD_POINTER, -1, BAD_POINTER, 0),
    "name_to_handle_at": (-1, BAD_POINTER, BAD_POINTER, BAD_POINTER, 0),
    "open_tree": (-1, BAD_POINTER, 0),
    "perf_event_open": (BAD_POINTER, 0, -1, -1, 0),
    "personality": (0x0040000,),
    "pidfd_getfd": (-1, 0, 0),
    "process_vm_readv": (OWN_PID, 0, 0, 0, 0, 0),
    "ptrace": (16, 0, 0, 0),  # PTRACE_ATTACH; what PTRACE_TRACEME leaves, the parent could not reap
    "setns": (-1, 0),
    "unshare": (0,),
    "userfaultfd": (0x4000,),
}


def attempt(number: int, arguments: tuple[int, ...]) -> int:
    """In a thread of its own: what a call that succeeds changes must not reach the next one."""
    libc = ctypes.CDLL(None, use_errno=True)
    answer: list[int] = []

    def call() -> None:
        result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments))
        answer.append(ctypes.get_errno() if result == -1 else 0)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return answer[0]


if __name__ == "__main__":
    for named in sys.argv[1:]:
        name, _, number = named.partition("=")
        print(name, attempt(int(number), ARGUMENTS[name]), flush=True)
