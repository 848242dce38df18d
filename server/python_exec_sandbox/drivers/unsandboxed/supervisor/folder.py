"""The folder of one run: where things lie in it, and how it is removed whatever a script made of it."""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
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
    """Remove it, with what a script made unreadable; whether nothing is left. Follows no link, and touches
    nothing outside."""
    _open(folder)
    for _ in range(2):  # opening one folder may show another one that is closed
        shutil.rmtree(folder, onerror=partial(_again, folder))
        if not os.path.lexists(folder):
            return True
    return False


def _again(top: str, work: Callable[..., Any], path: str, _: object) -> None:
    """Open a folder that can't be read or changed, and try once more."""
    if path != top:
        _open(os.path.dirname(path))
    _open(path)
    if work is not os.open and work is not os.scandir:
        with contextlib.suppress(OSError):
            work(path)


def _open(path: str) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.chmod(path, stat.S_IRWXU)
