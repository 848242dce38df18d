"""Compiles an environment's modules, and keeps what was compiled for the next one with the same packages.

The base Python does it, without ``site`` (``-I -S``): a package's ``.pth`` file is code, which the
environment's own Python would run at its start.
"""

import contextlib
import glob
import os
import signal
import subprocess

from .installer import InstallerKilled

LEFT_OUT = "/tests?/"
"""Modules that are hardly ever imported, and half of all code in some packages."""


def compile_modules(python: str, site: str) -> None:
    """Compile what is in the folder ``site``; what can't be compiled stays as it is.

    The bytecode names the files without ``site``, so that it fits any environment and tells of none; Python
    puts the real path in place when it imports.
    """
    command = [python, "-I", "-S", "-m", "compileall", "-qq", "-j", "0", "-x", LEFT_OUT, "-s", site, site]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    if done.returncode == -signal.SIGKILL:
        raise InstallerKilled


def existing(site: str) -> set[tuple[int, int]]:
    """All files with bytecode below ``site``, as device and inode."""
    return {_identity(path) for path in _bytecode_of(site)}


def share(site: str, cache: str, brought: set[tuple[int, int]], tag: str) -> int:
    """Link what was compiled here beside the modules in uv's ``cache``, so that the next environment with the
    same packages has it from the start; how many files that were.

    Only what was compiled from that very file and by us: bytecode that a package ``brought`` could pretend to
    be another package's.
    """
    shared = 0
    for archive in _archives_of(site, cache):
        for folder, _, names in os.walk(archive):
            installed = os.path.normpath(os.path.join(site, os.path.relpath(folder, archive)))
            for name in names:
                if name.endswith(".py"):
                    shared += _share_one(installed, folder, name, brought, tag)
    return shared


def _share_one(installed: str, cached: str, name: str, brought: set[tuple[int, int]], tag: str) -> bool:
    compiled = f"{name.removesuffix('.py')}.{tag}.pyc"
    source, target = os.path.join(installed, "__pycache__", compiled), os.path.join(cached, "__pycache__")
    with contextlib.suppress(FileNotFoundError, FileExistsError, NotADirectoryError):
        if _identity(source) in brought:
            return False
        if _identity(os.path.join(installed, name)) != _identity(os.path.join(cached, name)):
            return False
        with contextlib.suppress(FileExistsError):
            os.mkdir(target)
        if os.path.islink(target):
            return False
        os.link(source, os.path.join(target, compiled))
        return True
    return False


def _archives_of(site: str, cache: str) -> list[str]:
    """Folders of the cache that packages in ``site`` were linked from, by a file that is never changed."""
    known = {
        _identity(path): os.path.dirname(os.path.dirname(path))
        for path in glob.glob(os.path.join(glob.escape(cache), "archive-v*", "*", "*.dist-info", "METADATA"))
    }
    installed = glob.glob(os.path.join(glob.escape(site), "*.dist-info", "METADATA"))
    return [known[identity] for path in installed if (identity := _identity(path)) in known]


def _bytecode_of(site: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(site), "**", "*.pyc"), recursive=True, include_hidden=True)


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path, follow_symlinks=False)
    return found.st_dev, found.st_ino
