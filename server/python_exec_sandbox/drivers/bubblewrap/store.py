"""Where installed packages lie on this machine, and which parts of it sandboxes see."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.users import BUILDER_UID
from python_exec_sandbox.errors import CreateFailed

PACKAGE_FOLDER = "python-exec-sandbox"

# Entered by whoever knows a name in it, listed by nobody: a script may be of the same user as the builder.
_ENTERED_ONLY = 0o311


def cache_folder(environment: Mapping[str, str], home: Path) -> Path:
    """This package's own folder among the person's caches, by the XDG Base Directory Specification."""
    named = environment.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else home / ".cache") / PACKAGE_FOLDER


def home_folder() -> Path:
    """The person's home; ``~`` itself where there is none, which raises nothing."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111 - the other way raises without a home


@dataclass(frozen=True, slots=True)
class StoreFolders:
    """The store at ``root``; what a builder does with it is said in ``builder/store.py``."""

    root: Path

    @property
    def seen(self) -> tuple[Path, ...]:
        """What sandboxes see of it."""
        return (self.root / "envs", self.root / "facts", self.root / "leases")


def make_store(root: Path, *, is_root: bool) -> StoreFolders:
    """The store, its folders made where they are missing. Call it in a worker thread.

    Where the server is root, they belong to the builder's own user.

    Raises:
        CreateFailed: they can't be made, or aren't ours.
    """
    folders = StoreFolders(root)
    owner = BUILDER_UID if is_root else os.geteuid()
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (root, *folders.seen):
            _make(folder, owner, 0o711 if folder == root else _ENTERED_ONLY)
    except OSError as error:
        raise CreateFailed(f"The store for packages can't be made: {error}.") from error
    return folders


def _make(folder: Path, owner: int, mode: int) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {owner, os.geteuid()}:
            raise CreateFailed(
                f"The store for packages can't be used: {folder} belongs to somebody else, or is no folder. "
                "Move it away."
            ) from None
    if owner != os.geteuid():
        os.chown(folder, owner, owner, follow_symlinks=False)
    folder.chmod(mode)
