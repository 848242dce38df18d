"""What the groups ask of the machine: small files of the kernel, signals, the clock.

Nothing of it needs Linux to be imported. A test puts a fake in its place.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

# The kernel tells of an emptied group by no event that both versions have; it takes it a millisecond or more.
_PAUSE_SECONDS = 0.002

# What systemd puts on a group that it leaves to others (systemd's CGROUP_DELEGATION document).
_DELEGATION_MARKS = ("user.delegate", "trusted.delegate")


class Kernel(Protocol):
    """All methods raise ``OSError`` as the system does, unless they say otherwise."""

    def read(self, path: Path) -> str: ...

    def write(self, path: Path, text: str) -> None:
        """Into a file that is there; never makes one."""

    def make(self, folder: Path) -> None:
        """With its parents; fine if it is there."""

    def remove(self, folder: Path) -> None: ...

    def folders(self, folder: Path) -> list[str]:
        """Names of the folders in it; none if it isn't there."""

    def may_write(self, path: Path) -> bool: ...

    def is_delegated(self, folder: Path) -> bool:
        """Whether systemd says that this group is somebody else's to divide."""

    def end(self, pid: int, group: str) -> None:
        """SIGKILL for ``pid`` if it is in a group of that name at this moment. Never raises."""

    def pause(self) -> None:
        """Let the kernel work for a moment."""

    def seconds(self) -> float:
        """A clock that only goes forward."""


class RealKernel:
    """This machine's."""

    def read(self, path: Path) -> str:
        return path.read_text(encoding="utf-8", errors="replace")

    def write(self, path: Path, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())  # the kernel takes a value whole or not at all
        finally:
            os.close(descriptor)

    def make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def remove(self, folder: Path) -> None:
        folder.rmdir()

    def folders(self, folder: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def may_write(self, path: Path) -> bool:
        return os.access(path, os.W_OK)

    def is_delegated(self, folder: Path) -> bool:
        if sys.platform == "linux":
            for mark in _DELEGATION_MARKS:
                with suppress(OSError):
                    if os.getxattr(folder, mark) == b"1":
                        return True
        return False

    def end(self, pid: int, group: str) -> None:
        if sys.platform == "linux":
            # By descriptor, and only then looked at: the number may have passed to a stranger since it was read.
            with suppress(OSError):
                descriptor = os.pidfd_open(pid)
                try:
                    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
                    if any(line.endswith(f"/{group}") for line in lines):
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                finally:
                    os.close(descriptor)

    def pause(self) -> None:
        time.sleep(_PAUSE_SECONDS)  # in a worker thread, see base.py

    def seconds(self) -> float:
        return time.monotonic()
