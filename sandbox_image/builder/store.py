"""What is where in the store, and what of it is whole.

::

    /store             0711   scripts see all of it read-only, and can enter what they know by name
    /store/cache       0700   uv's
    /store/index       0700   requests/ (which lock a request led to), environments/ (which of them are whole),
                              building/ (one held lock for each that isn't yet), locks/
    /store/facts       0700   what uv knows of each environment's Python, for sandboxes to begin with; apart from
                              the environments, in which packages can put files anywhere
    /store/envs        0711   one folder for each environment, with a name that nobody can guess

An environment counts once ``index/environments`` has its record; one that has neither that nor a living
builder is debris.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .files import PART, held, left_behind, read_record, write_record

STALE_PART_SECONDS = 600.0
"""A record is written in a millisecond."""

STALE_DOWNLOAD_SECONDS = 6 * 3600.0
"""uv's own unfinished files; no build may take as long."""


@dataclass(frozen=True)
class Resolution:
    """What a request led to: uv's lock, and when."""

    lock: str
    resolved_at: float


@dataclass(frozen=True)
class Environment:
    """A whole environment: its name below ``envs`` and the packages in it."""

    id: str
    packages: list[list[str]]


class Store:
    """The store under ``root``, its folders made where they are missing."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.cache = os.path.join(root, "cache")
        self._envs = os.path.join(root, "envs")
        self._facts = os.path.join(root, "facts")
        self._index = os.path.join(root, "index")
        _folder(root, 0o711)
        _folder(self.cache, 0o700)
        _folder(self._index, 0o700)
        for name in ("requests", "environments", "building", "locks"):
            _folder(os.path.join(self._index, name), 0o700)
        _folder(self._facts, 0o700)
        _folder(self._envs, 0o711)

    def locked(self, key: str, on_wait: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """One builder at a time for what ``key`` names."""
        return held(self._path("locks", key), on_wait)

    # -- requests ------------------------------------------------------------------------------------

    def resolution(self, request: str) -> Resolution | None:
        """What ``request`` led to the last time."""
        record = read_record(self._path("requests", request + ".json"))
        match record:
            case {"lock": str(lock), "resolved_at": int() | float() as at}:
                return Resolution(lock, float(at))
        return None

    def remember(self, request: str, resolution: Resolution) -> None:
        record: dict[str, object] = {"lock": resolution.lock, "resolved_at": resolution.resolved_at}
        write_record(self._path("requests", request + ".json"), record)

    # -- environments --------------------------------------------------------------------------------

    def environment(self, key: str) -> Environment | None:
        """The whole environment of ``key``, marked as used now."""
        path = self._path("environments", key + ".json")
        match read_record(path):
            case {"id": str(name), "packages": list(packages)} if os.path.exists(self.python_of(name)):
                with contextlib.suppress(FileNotFoundError):
                    os.utime(path)
                return Environment(name, packages)
        return None

    def publish(self, key: str, environment: Environment) -> None:
        """From now on it is whole."""
        record: dict[str, object] = {"id": environment.id, "packages": environment.packages}
        write_record(self._path("environments", key + ".json"), record)

    def folder_of(self, name: str) -> str:
        return os.path.join(self._envs, name)

    def facts_of(self, name: str) -> str:
        return os.path.join(self._facts, name)

    def python_of(self, name: str) -> str:
        return os.path.join(self._envs, name, "bin", "python")

    @contextlib.contextmanager
    def building(self, name: str) -> Iterator[None]:
        """The time in which an environment isn't whole yet; it is removed if the body fails, and by any later
        builder if this process dies."""
        with held(self._path("building", name)):
            try:
                yield
            except BaseException:
                self._remove(name)
                raise

    # -- debris --------------------------------------------------------------------------------------

    def sweep(self) -> int:
        """Remove what killed builders left; how many environments that were."""
        removed = 0
        for name in os.listdir(self._path("building")):
            with left_behind(self._path("building", name)) as is_abandoned:
                if is_abandoned and not self._is_whole(
                    name
                ):  # its builder may have died just after it was done
                    self._remove(name)
                    removed += 1
        for folder in ("requests", "environments"):
            _remove_old(self._path(folder), lambda name: name.endswith(PART), STALE_PART_SECONDS)
        _remove_old(self.cache, lambda name: name.startswith(".tmp"), STALE_DOWNLOAD_SECONDS)
        return removed

    def _is_whole(self, name: str) -> bool:
        folder = self._path("environments")
        records = (read_record(os.path.join(folder, file)) for file in os.listdir(folder))
        return any(record is not None and record.get("id") == name for record in records)

    def _remove(self, name: str) -> None:
        for folder in (self.folder_of(name), self.facts_of(name)):
            shutil.rmtree(folder, ignore_errors=True)

    def _path(self, *parts: str) -> str:
        return os.path.join(self._index, *parts)


def _folder(path: str, mode: int) -> None:
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)


def _remove_old(folder: str, is_meant: Callable[[str], bool], seconds: float) -> None:
    for name in filter(is_meant, os.listdir(folder)):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):  # another builder may be at it, too
            if time.time() - os.lstat(path).st_mtime < seconds:
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
