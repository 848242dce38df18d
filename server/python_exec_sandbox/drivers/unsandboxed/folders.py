"""Folders of runs: made, locked, and swept when their owner is dead. Everything here blocks."""

import fcntl
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from python_exec_sandbox.drivers.unsandboxed.supervisor import folder as inside
from python_exec_sandbox.drivers.unsandboxed.supervisor import tree

# Short: sockets that scripts make below it may have some hundred characters in all on macOS.
PREFIX = "pes-"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """``lock_fd`` holds the lock; whoever inherits it holds it too."""

    path: str
    lock_fd: int

    def remove(self) -> bool:
        """Remove it; whether nothing is left."""
        return inside.remove(self.path)


def make_folder(base: Path | None) -> RunFolder:
    """A new folder with the places a run needs, for this user alone."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base)).resolve()
    lock_fd = os.open(path / inside.LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for name in (inside.WORK, inside.HOME, inside.TEMPORARY, inside.PRIVATE):
        (path / name).mkdir(mode=0o700)
    return RunFolder(str(path), lock_fd)


def sweep(base: Path | None) -> int:
    """Remove what dead supervisors left, and end what still runs there; how many folders went.

    A folder whose lock is held belongs to a living one; one without a lock file is just being made, or none of ours.
    """
    removed = 0
    for path in sorted(Path(base or tempfile.gettempdir()).glob(f"{PREFIX}*")):
        if path.is_symlink() or not path.is_dir() or path.lstat().st_uid != os.getuid():
            continue
        removed += _sweep_one(path.resolve())
    return removed


def _sweep_one(path: Path) -> bool:
    try:
        if not os.access(path, os.R_OK | os.X_OK):
            path.chmod(0o700)  # a script closed it
        lock_fd = os.open(path / inside.LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        end_strays(str(path))
        return inside.remove(str(path))
    finally:
        os.close(lock_fd)


def end_strays(path: str) -> None:
    """End what runs with this folder's home, some rounds for what forks meanwhile."""
    for _ in range(5):
        strays = tree.strays_of(inside.home_path(path))
        if not strays:
            return
        for pid in strays:
            tree.kill(pid)
