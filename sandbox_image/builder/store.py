"""What is where in the store, and what of it is whole.

::

    /store             0711   scripts see all of it read-only, and can enter what they know by name
    /store/cache       0700   uv's
    /store/index       0700   requests/ (which lock a request led to), environments/ (which of them are whole),
                              building/ (one held lock for each that isn't yet, or no longer), locks/;
                              cache.lock (held by who works with uv's cache), measured.json
    /store/leases      0700   one file for each environment, which a sandbox's runner holds locked as long as it
                              lives, however it ends; its time is the last use's
    /store/facts       0700   what uv knows of each environment's Python, for sandboxes to begin with; apart from
                              the environments, in which packages can put files anywhere
    /store/private     0700   a cache and wheels for each environment from sources, gone once that is whole
    /store/pythons     0755   that the image lacks
    /store/envs        0711   one folder for each environment, with a name that nobody can guess

Where all of them are one user, sandboxes see the last three alone, which are 0311: not even their owner can list
them.

An environment counts once ``index/environments`` has its record; one that has neither that nor a living
builder is debris.
"""

import contextlib
import errno
import glob
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .files import PART, alone, held, left_behind, read_record, shared, write_record

STALE_PART_SECONDS = 600.0
"""A record is written in a millisecond."""

STALE_REQUEST_SECONDS = 90 * 86_400.0
"""Who asks for pinned versions after so long has them resolved once more."""

SPARED_SECONDS = 120.0
"""After it was asked for, an environment stays, though no sandbox holds it yet: its run may be in a queue."""

STALE_DOWNLOAD_SECONDS = 6 * 3600.0
"""uv's own unfinished files; no build may take as long."""


@dataclass(frozen=True)
class Resolution:
    """What a request led to: uv's lock, and when. It is stale when the index could not be asked since."""

    lock: str
    resolved_at: float
    is_stale: bool = False
    is_built: bool = False
    """Something in it was built from its source: what a build made is good for its own request alone."""


@dataclass(frozen=True)
class Environment:
    """A whole environment: its name below ``envs``, the packages in it, and the bytes that it takes, though it
    may share them."""

    id: str
    packages: list[list[str]]
    size: int = 0


@dataclass(frozen=True)
class Measured:
    """What the whole store took at a time, and how much its environments added up to then."""

    total: int
    environments: int
    at: float


class Store:
    """The store under ``root``, its folders made where they are missing."""

    def __init__(self, root: str, *, one_user: bool = False) -> None:
        self.root = root
        self.cache = os.path.join(root, "cache")
        self.pythons = os.path.join(root, "pythons")
        self._envs = os.path.join(root, "envs")
        self._facts = os.path.join(root, "facts")
        self._index = os.path.join(root, "index")
        self._private = os.path.join(root, "private")
        _folder(root, 0o711)
        _folder(self.cache, 0o700)
        _folder(self._index, 0o700)
        for name in ("requests", "environments", "building", "locks", "pythons"):
            _folder(os.path.join(self._index, name), 0o700)
        _folder(self._facts, 0o311 if one_user else 0o700)
        _folder(os.path.join(root, "leases"), 0o311 if one_user else 0o700)
        _folder(self._private, 0o700)
        _folder(self.pythons, 0o755)
        _folder(self._envs, 0o311 if one_user else 0o711)

    def locked(self, key: str, on_wait: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """One builder at a time for what ``key`` names."""
        return held(self._path("locks", key), on_wait)

    # -- requests ------------------------------------------------------------------------------------

    def resolution(self, request: str) -> Resolution | None:
        """What ``request`` led to the last time."""
        record = read_record(self._path("requests", request + ".json"))
        match record:
            case {"lock": str(lock), "resolved_at": int() | float() as at, "is_built": bool(is_built)}:
                return Resolution(lock, float(at), is_built=is_built)
        return None

    def remember(self, request: str, resolution: Resolution) -> None:
        record: dict[str, object] = {
            "lock": resolution.lock,
            "resolved_at": resolution.resolved_at,
            "is_built": resolution.is_built,
        }
        write_record(self._path("requests", request + ".json"), record)

    # -- environments --------------------------------------------------------------------------------

    def environment(self, key: str) -> Environment | None:
        """The whole environment of ``key``, marked as used now."""
        match read_record(self._path("environments", key + ".json")):
            case {"id": str(name), "packages": list(packages)} if os.path.exists(self.python_of(name)):
                with open(self._lease(name), "a", encoding="ascii"):
                    os.utime(self._lease(name))
                return Environment(name, packages)
        return None

    def publish(self, key: str, environment: Environment) -> None:
        """From now on it is whole."""
        record: dict[str, object] = {
            "id": environment.id,
            "packages": environment.packages,
            "size": environment.size,
        }
        with open(self._lease(environment.id), "w", encoding="ascii"):
            write_record(self._path("environments", key + ".json"), record)

    def note_uses(self, uses: dict[str, float]) -> None:
        """Environments that a server gave to runs by itself, with the seconds since then."""
        now = time.time()
        for name, ago in uses.items():
            with contextlib.suppress(FileNotFoundError):
                lease = self._lease(name)
                os.utime(lease, (now, max(os.stat(lease).st_mtime, now - ago)))

    def by_last_use(self) -> list[tuple[str, str]]:
        """Keys and names of all whole environments, those first that were not used for the longest time."""
        found = [(self._used_at(name), key, name) for key, name, _ in self._records()]
        return [(key, name) for _, key, name in sorted(found)]

    def evict(self, key: str, name: str, spare_seconds: float = SPARED_SECONDS) -> bool:
        """Remove an environment unless a sandbox holds it, or it was asked for within ``spare_seconds``.

        Killed halfway it leaves what the next builder sweeps.
        """
        with alone(self._lease(name)) as is_free:
            if not is_free or time.time() - self._used_at(name) < spare_seconds:
                return False
            with held(self._path("building", name)):
                os.unlink(self._path("environments", key + ".json"))
                self._remove(name)
            return True

    def sum_of_environments(self) -> int:
        """What all whole environments would take if they shared nothing."""
        return sum(size for _, _, size in self._records())

    def _records(self) -> Iterator[tuple[str, str, int]]:
        """Key, name and size of each whole environment."""
        folder = self._path("environments")
        for file in os.listdir(folder):
            match read_record(os.path.join(folder, file)):
                case {"id": str(name), **more}:
                    size = more.get("size")
                    yield file.removesuffix(".json"), name, size if isinstance(size, int) else 0

    def _used_at(self, name: str) -> float:
        try:
            return os.stat(self._lease(name)).st_mtime
        except FileNotFoundError:
            return 0.0

    def _lease(self, name: str) -> str:
        return os.path.join(self.root, "leases", name)

    def folder_of(self, name: str) -> str:
        return os.path.join(self._envs, name)

    def facts_of(self, name: str) -> str:
        return os.path.join(self._facts, name)

    def python_of(self, name: str) -> str:
        return os.path.join(self._envs, name, "bin", "python")

    @contextlib.contextmanager
    def private(self, name: str) -> Iterator[str]:
        """A folder on the store's disk that nothing else uses, while an environment is being built."""
        folder = os.path.join(self._private, name)
        os.mkdir(folder, 0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def building(self, name: str) -> Iterator[None]:
        """The time in which an environment isn't whole yet; it is removed if the body fails, and by any later
        builder if this process dies."""
        with held(self._path("building", name)):
            try:
                yield
            except BaseException:  # whatever ends it, nothing half-built stays
                self._remove(name)
                raise

    def python_record(self, version: str) -> str:
        """The file that says where a fetched Python is."""
        return self._path("pythons", f"{version}.json")

    def remove_pythons(self) -> None:
        """Forget and remove all that were fetched, unless there is an environment, which may need one."""
        if not any(self._records()) and not os.listdir(self._path("building")):
            for folder in (self._path("pythons"), self.pythons):
                shutil.rmtree(folder, ignore_errors=True)

    def warm_record(self, python: str) -> str:
        """The file that says which packages were installed ahead for ``python``, a digest."""
        return self._path(f"warm-{python}.json")

    # -- room ----------------------------------------------------------------------------------------

    def cache_in_use(self, on_wait: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """The time in which nothing may go from uv's cache."""
        return shared(self._path("cache.lock"), on_wait)

    def cache_alone(self) -> contextlib.AbstractContextManager[bool]:
        """Whether nobody works with uv's cache; if so nobody does meanwhile."""
        return alone(self._path("cache.lock"))

    def archives(self) -> list[str]:
        """The unpacked wheels in uv's cache, the oldest first."""
        found = glob.glob(os.path.join(glob.escape(self.cache), "archive-v*", "*"))
        return sorted(found, key=lambda path: os.lstat(path).st_mtime)

    def unfinished(self) -> list[str]:
        """What uv left of installations that were cut off; only while nobody works with its cache."""
        return [
            *glob.glob(os.path.join(glob.escape(self.cache), ".tmp*")),
            *glob.glob(os.path.join(glob.escape(self.cache), "*", ".tmp*")),
        ]

    def rest_of_cache(self) -> list[str]:
        """Folders of uv's cache without the unpacked wheels: answers of the index, for the most part."""
        with os.scandir(self.cache) as found:
            return [
                entry.path
                for entry in found
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("archive-v")
            ]

    def folders(self) -> list[str]:
        """All of the store without overlaps: what is each environment's, each archive, and what is neither.

        By the records, as there are stores whose environments can't be listed.
        """
        names = {name for _, name, _ in self._records()} | set(os.listdir(self._path("building")))
        own = [folder for name in sorted(names) for folder in (self.folder_of(name), self.facts_of(name))]
        return [*own, *self.archives(), *self.rest_of_cache(), self._index, self.pythons]

    def check_free(self, size: int) -> None:
        """Raises ``OSError`` (``ENOSPC``) when the disk has less than ``size`` bytes left."""
        found = os.statvfs(self.root)
        if found.f_bavail * found.f_frsize < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def measured(self) -> Measured | None:
        """The last measure, if there is one."""
        match read_record(self._path("measured.json")):
            case {"total": int(total), "environments": int(environments), "at": float(at)}:
                return Measured(total, environments, at)
        return None

    def note_measured(self, total: int) -> None:
        record: dict[str, object] = {"total": total, "environments": self.sum_of_environments()}
        with contextlib.suppress(OSError):  # without it everything is measured once more
            write_record(self._path("measured.json"), record | {"at": time.time()})

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
        _remove_old(self._path("requests"), lambda _: True, STALE_REQUEST_SECONDS)
        _remove_old(self.cache, lambda name: name.startswith(".tmp"), STALE_DOWNLOAD_SECONDS)
        return removed

    def _is_whole(self, name: str) -> bool:
        return any(name == whole for _, whole, _ in self._records())

    def _remove(self, name: str) -> None:
        for folder in (self.folder_of(name), self.facts_of(name), os.path.join(self._private, name)):
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._lease(name))

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
