"""One control group of either version."""

import errno
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import GroupUsage, Limit
from python_exec_sandbox.drivers.bubblewrap.cgroup.dialects import CONTROLLERS, Counter, Dialect
from python_exec_sandbox.drivers.bubblewrap.cgroup.kernel import Kernel
from python_exec_sandbox.errors import CreateFailed, DriverError
from python_exec_sandbox.model.limits import SandboxLimits

# The bound of promise KILL. A fork bomb takes 40 ms; a process in the middle of a disk access holds out longer.
KILL_SECONDS = 2.0

# Freezing is what makes the list of processes hold still. Where something can't be frozen soon, what can be
# seen is killed, and then again.
_FREEZE_SECONDS = 0.2
_REAP_SECONDS = 0.1


class KernelGroup:
    """``folders``: by controller; one and the same in version 2, one for each in version 1."""

    def __init__(self, kernel: Kernel, dialect: Dialect, name: str, folders: Mapping[str, Path]) -> None:
        self._kernel = kernel
        self._dialect = dialect
        self._by_controller = folders
        self._folders = tuple(dict.fromkeys(folders.values()))
        self.name = name

    @property
    def entrances(self) -> tuple[Path, ...]:
        return tuple(folder / "cgroup.procs" for folder in self._folders)

    def make(self) -> None:
        """Raises ``OSError``; what was made by then stays."""
        for folder in self._folders:
            self._kernel.make(folder)

    def limit(self, limit: Limit, limits: SandboxLimits) -> None:
        """Have the kernel hold ``limit``. Raises ``OSError`` if it can't, ``KeyError`` without its controller."""
        folder = self._by_controller[CONTROLLERS[limit]]
        for setting in self._dialect.settings[limit]:
            self._kernel.write(folder / setting.file, str(setting.value(limits)))

    def add(self, pid: int) -> None:
        try:
            for entrance in self.entrances:
                self._kernel.write(entrance, str(pid))
        except ProcessLookupError:
            raise
        except OSError as error:
            raise CreateFailed(
                f"The process {pid} could not be put under the limits of its sandbox ({self.name}): {error}."
            ) from error

    def usage(self) -> GroupUsage:
        return GroupUsage(
            memory_kills=self._count(self._dialect.memory_kills),
            peak_memory_bytes=self._count(self._dialect.peak_memory),
            refused_forks=self._count(self._dialect.refused_forks),
        )

    def kill(self) -> None:
        deadline = self._kernel.seconds() + KILL_SECONDS
        is_first = True
        while processes := self._processes():
            if self._kernel.seconds() > deadline:
                raise DriverError(
                    f"{len(processes)} processes of a sandbox were still there {KILL_SECONDS:g} s after they were "
                    f"killed ({self.name}); the first is {min(processes)}. They may wait for a disk or network."
                )
            if self._kill_at_once():
                pass
            elif is_first:
                # As a rule they end already, with their namespace, and a server that is killed meanwhile must
                # not leave them frozen: only what goes on forking is.
                self._kill_seen()
            else:
                self._kill_frozen()
            is_first = False
            self._wait_until(lambda: not self._processes(), _REAP_SECONDS)

    def remove(self) -> None:
        self.kill()
        deadline = self._kernel.seconds() + KILL_SECONDS
        for folder in self._folders:
            while not self._removed(folder):
                if self._kernel.seconds() > deadline:
                    raise DriverError(f"The control group {folder} is empty and yet can't be removed.")
                self._kernel.pause()

    def _removed(self, folder: Path) -> bool:
        try:
            self._kernel.remove(folder)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY:  # which the last process's end can cause for a moment
                raise DriverError(f"The control group {folder} could not be removed: {error}.") from error
            return False
        return True

    def _processes(self) -> set[int]:
        return {pid for folder in self._folders for pid in processes_in(self._kernel, folder)}

    def _kill_at_once(self) -> bool:
        if self._dialect.kill_file is None:
            return False
        try:
            for folder in self._folders:
                self._kernel.write(folder / self._dialect.kill_file, "1")
        except OSError:
            return False  # an older kernel
        return True

    def _kill_seen(self) -> None:
        for pid in self._processes():
            self._kernel.end(pid, self.name)

    def _kill_frozen(self) -> None:
        freezer = self._dialect.freezer
        folder = self._by_controller.get("freezer")
        if folder is not None:
            with suppress(OSError):
                self._kernel.write(folder / freezer.file, freezer.freeze)
                self._wait_until(self._is_frozen, _FREEZE_SECONDS)
        self._kill_seen()
        if folder is not None:
            with suppress(OSError):
                self._kernel.write(folder / freezer.file, freezer.thaw)  # a frozen process can't even die

    def _is_frozen(self) -> bool:
        freezer = self._dialect.freezer
        state = self._kernel.read(self._by_controller["freezer"] / freezer.state)
        return freezer.frozen in state.splitlines()

    def _wait_until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = self._kernel.seconds() + seconds
        while not done() and self._kernel.seconds() < deadline:
            self._kernel.pause()

    def _count(self, counter: Counter) -> int | None:
        folder = self._by_controller.get(counter.controller)
        if folder is None:
            return None
        try:
            words = self._kernel.read(folder / counter.file).split()
            return int(words[0] if counter.key is None else words[words.index(counter.key) + 1])
        except (OSError, ValueError, IndexError):
            return None


def processes_in(kernel: Kernel, folder: Path) -> list[int]:
    """The processes directly in the group ``folder``; none if it is gone."""
    try:
        return [int(pid) for pid in kernel.read(folder / "cgroup.procs").split()]
    except OSError:
        return []
