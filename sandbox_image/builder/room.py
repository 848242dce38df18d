"""Keeps the store within a size: first goes what nothing uses, then what was not used for the longest time.

Installed files are links to those in uv's cache, so that a file's room is free once the last folder that holds
it has gone. The folders are: each environment, each unpacked wheel of the cache (an archive), and the rest.
"""

import contextlib
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .store import SPARED_SECONDS, Store

KEPT_SHARE = 0.9
"""Of the size, after something had to go: or every build would have to remove something."""

KEPT_WHEN_FULL = 0.75
"""Of the store, when its disk is full: more may go than a build needs, but nothing that was used lately."""

MEASURED_SECONDS = 86_400.0
"""After this time everything is measured anew; until then only what was built is added up."""

BLOCK = 512
"""What ``st_blocks`` counts in."""

File = tuple[int, int]


@dataclass
class Ledger:
    """Which folders hold which files, and how much room they take together."""

    total: int = 0
    _files: dict[str, set[File]] = field(default_factory=dict)
    _holders: Counter[File] = field(default_factory=Counter)
    _sizes: dict[File, int] = field(default_factory=dict)

    def add(self, folder: str) -> None:
        """Count what is in ``folder``, and ``folder`` itself."""
        files = {}
        for path in _below(folder):
            with contextlib.suppress(FileNotFoundError):  # somebody else may be at work there
                found = os.lstat(path)
                files[found.st_dev, found.st_ino] = found.st_blocks * BLOCK
        self._files[folder] = set(files)
        self.total += sum(size for file, size in files.items() if not self._holders[file])
        self._holders.update(files.keys())
        self._sizes.update(files)

    def drop(self, folder: str) -> None:
        """``folder`` has gone."""
        for file in self._files.pop(folder, ()):
            self._holders[file] -= 1
            if not self._holders[file]:
                self.total -= self._sizes[file]

    def is_shared(self, folder: str) -> bool:
        """Whether another folder holds one of its files, too."""
        return any(self._holders[file] > 1 for file in self._files.get(folder, ()))


class Room:
    """The room that ``store`` may take: ``limit`` bytes.

    Every builder that works with uv's cache holds ``store.cache_in_use()`` meanwhile; the methods here must be
    called without it, and leave the cache alone while others hold it.
    """

    def __init__(self, store: Store, limit: int, tell: Callable[[str], None] = lambda _: None) -> None:
        self._store = store
        self._limit = limit
        self._tell = tell

    def keep(self) -> int:
        """Remove what is beyond the limit; how many bytes that was. Measures only when it may be."""
        if not self._may_be_beyond():
            return 0
        ledger = measured(self._store)
        freed = 0
        if ledger.total > self._limit:
            self._tell("making room in the store")
            freed = self._shrink(ledger, int(self._limit * KEPT_SHARE), SPARED_SECONDS)
        self._store.note_measured(ledger.total)
        return freed

    def empty(self) -> int:
        """Remove everything that no sandbox holds; how many bytes that freed."""
        ledger = measured(self._store)
        freed = self._shrink(ledger, goal=0, spare_seconds=0.0)
        self._store.remove_pythons()
        self._store.note_measured(ledger.total)
        return freed

    def make(self) -> bool:
        """Whether there is more room now, as environments went that were not used for a long time."""
        self.tidy()
        ledger = measured(self._store)
        before = len(self._store.by_last_use())
        self._shrink(ledger, int(ledger.total * KEPT_WHEN_FULL), SPARED_SECONDS, whole_cache=False)
        return len(self._store.by_last_use()) < before

    def tidy(self) -> None:
        """Remove what a build left that could not be ended for want of room."""
        self._shrink(measured(self._store), goal=0, spare_seconds=math.inf, whole_cache=False)

    def _may_be_beyond(self) -> bool:
        last = self._store.measured()
        if last is None or not 0 <= time.time() - last.at < MEASURED_SECONDS:
            return True
        return last.total + self._store.sum_of_environments() - last.environments > self._limit

    def _shrink(self, ledger: Ledger, goal: int, spare_seconds: float, *, whole_cache: bool = True) -> int:
        """Remove folders until ``goal`` is met or nothing is left that may go."""
        before = ledger.total
        with self._store.cache_alone() as is_alone:
            if not is_alone:
                return 0  # the last of those at work does it
            _remove_all(self._store.unfinished(), ledger)
            self._remove_unused(ledger, goal)
            for key, name in self._store.by_last_use():
                if ledger.total <= goal:
                    break
                if self._store.evict(key, name, spare_seconds):
                    ledger.drop(self._store.folder_of(name))
                    ledger.drop(self._store.facts_of(name))
                    self._remove_unused(ledger, goal)
            if whole_cache and ledger.total > goal:
                _remove_all(self._store.rest_of_cache(), ledger)
        return before - ledger.total

    def _remove_unused(self, ledger: Ledger, goal: int) -> None:
        for archive in self._store.archives():
            if ledger.total <= goal:
                return
            if not ledger.is_shared(archive):
                _remove_all([archive], ledger)


def measured(store: Store) -> Ledger:
    """What the store takes."""
    ledger = Ledger()
    for folder in store.folders():
        ledger.add(folder)
    return ledger


def size_of(folder: str) -> int:
    """The bytes that ``folder`` takes, shared or not."""
    ledger = Ledger()
    ledger.add(folder)
    return ledger.total


def _below(folder: str) -> Iterable[str]:
    yield folder
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield os.path.join(parent, name)


def _remove_all(folders: Iterable[str], ledger: Ledger) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        ledger.drop(folder)
