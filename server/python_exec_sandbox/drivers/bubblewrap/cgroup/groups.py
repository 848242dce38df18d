"""The groups of one server, of either version."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Limit, LimitState, Means
from python_exec_sandbox.drivers.bubblewrap.cgroup.dialects import CONTROLLERS, Dialect
from python_exec_sandbox.drivers.bubblewrap.cgroup.fallback import without_group
from python_exec_sandbox.drivers.bubblewrap.cgroup.group import KernelGroup
from python_exec_sandbox.drivers.bubblewrap.cgroup.kernel import Kernel
from python_exec_sandbox.drivers.bubblewrap.cgroup.names import group_name, maker_of
from python_exec_sandbox.drivers.identity import Life, ServerIdentity, life_of
from python_exec_sandbox.errors import CreateFailed, DriverError
from python_exec_sandbox.model.limits import SandboxLimits

Place = Mapping[str, Path]
"""In which folder groups are made, by controller."""


class Unavailable(Exception):  # it never leaves this package
    """This way of grouping processes isn't open to this user; its text says why."""


class KernelGroups:
    """Groups in ``place``. ``elsewhere`` lists where dead servers may have left some, besides it.

    Raises:
        Unavailable: a trial showed that neither memory nor processes can be limited.
    """

    def __init__(
        self,
        kernel: Kernel,
        server: ServerIdentity,
        dialect: Dialect,
        place: Place,
        *,
        kind: str,
        missing: str,
        release: str,
        elsewhere: Callable[[], list[Place]] = list,
        life: Callable[[ServerIdentity], Life] = life_of,
    ) -> None:
        self.kind = kind
        self._kernel = kernel
        self._server = server
        self._dialect = dialect
        self._place = place
        self._elsewhere = elsewhere
        self._life = life
        self._serials = itertools.count(1)
        self.effective = self._try_out(missing, release)
        self._held = [state.limit for state in self.effective if state.means is Means.GROUP]
        if not {Limit.MEMORY, Limit.PROCESSES} & set(self._held):
            raise Unavailable("; ".join(state.reason for state in self.effective if state.reason))

    def open(self, limits: SandboxLimits) -> KernelGroup:
        group = self._group(group_name(self._server, next(self._serials)), self._place)
        try:
            group.make()
            for limit in self._held:
                group.limit(limit, limits)
        except OSError as error:
            with suppress(DriverError):  # the first failure is the one to tell
                group.remove()
            raise CreateFailed(f"A control group for a sandbox could not be made: {error}.") from error
        return group

    def left(self) -> int:
        return sum(1 for _ in self._left_behind())

    def sweep(self) -> int:
        removed = 0
        for group in self._left_behind():
            group.remove()
            removed += 1
        return removed

    def _left_behind(self) -> Iterator[KernelGroup]:
        for place in (self._place, *self._elsewhere()):
            for name in self._names_in(place):
                maker = maker_of(name)
                if maker is not None and self._life(maker) is Life.DEAD:
                    yield self._group(name, place)

    def close(self) -> None:
        for folder in dict.fromkeys(self._place.values()):
            with suppress(OSError):  # another server's groups may be in it, or this process itself
                self._kernel.remove(folder)

    def _names_in(self, place: Place) -> list[str]:
        return sorted({name for folder in place.values() for name in self._kernel.folders(folder)})

    def _group(self, name: str, place: Place) -> KernelGroup:
        folders = {controller: folder / name for controller, folder in place.items()}
        return KernelGroup(self._kernel, self._dialect, name, folders)

    def _try_out(self, missing: str, release: str) -> tuple[LimitState, ...]:
        group = self._group(group_name(self._server, 0), self._place)
        try:
            group.make()
            return tuple(self._tried(group, limit, missing, release) for limit in Limit)
        except OSError as error:
            raise Unavailable(f"no group can be made ({error})") from error
        finally:
            with suppress(DriverError):  # the sweep of a later start finds it
                group.remove()

    def _tried(self, group: KernelGroup, limit: Limit, missing: str, release: str) -> LimitState:
        try:
            group.limit(limit, SandboxLimits())
        except KeyError:
            return without_group(limit, missing.format(controller=CONTROLLERS[limit]), release)
        except OSError as error:
            return without_group(limit, f"the kernel doesn't take the limit ({error})", release)
        return LimitState(limit, Means.GROUP)
