"""The folder of one run: where things lie in it, and how it is removed whatever a script made of it."""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from typing import Any

LOCK = "lock"
"""Locked as long as the run's supervisor lives: who gets the lock may remove the folder."""

WORK, HOME, TEMPORARY, PRIVATE = "work", "home", "tmp", "uv"


def script_path(folder: str) -> str:
    return os.path.join(folder, WORK, "script.py")


def requirements_path(folder: str) -> str:
    return os.path.join(folder, PRIVATE, "requirements.txt")


def temporary_path(folder: str) -> str:
    return os.path.join(folder, TEMPORARY)


def home_path(folder: str) -> str:
    return os.path.join(folder, HOME)


def remove(folder: str) -> bool:
    """Remove it, with what a script made unreadable; whether nothing is left. Follows no link."""
    for _ in range(2):  # opening one folder may show another one that is closed
        shutil.rmtree(folder, onerror=_opened)
        if not os.path.lexists(folder):
            return True
    return False


def _opened(again: Callable[..., Any], path: str, _: object) -> None:
    """Open a folder that can't be read or changed, and try once more."""
    with contextlib.suppress(OSError):
        for one in (os.path.dirname(path), path):
            if stat.S_ISDIR(os.lstat(one).st_mode):
                os.chmod(one, stat.S_IRWXU)
        if again is not os.open and again is not os.scandir:
            again(path)
