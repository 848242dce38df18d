"""A machine's control groups in memory, with the kernel's rules for them; both versions.

Only what is asked of it: folders bring their files along, a group of version 2 is either divided or holds
processes, and a fork bomb forks each time it is looked at.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SERVER_PID = 100

V1_FILES = {
    "memory": {
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.memsw.limit_in_bytes": "9223372036854771712",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
        "memory.max_usage_in_bytes": "0\n",
        "memory.failcnt": "0\n",
    },
    "pids": {"pids.max": "max", "pids.events": "max 0\n"},
    "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"},
    "freezer": {"freezer.state": "THAWED\n"},
}
V2_FILES = {
    "memory": {
        "memory.max": "max",
        "memory.swap.max": "max",
        "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
        "memory.peak": "0\n",
        "memory.oom.group": "0",
    },
    "pids": {"pids.max": "max", "pids.events": "max 0\n"},
    "cpu": {"cpu.max": "max 100000"},
}


@dataclass
class Hierarchy:
    """``controllers``: what its topmost group has. ``enclosed``: seen from a container, so the top is no top."""

    point: Path
    version: int
    controllers: tuple[str, ...]
    enclosed: bool = False
    members: dict[int, Path] = field(default_factory=dict)


class FakeKernel:
    """Not there yet: mount hierarchies with :meth:`mount`, and put the server into a group with :meth:`place`."""

    def __init__(self, uid: int = 1000) -> None:
        self.uid = uid
        self.files: dict[Path, str] = {}
        self.hierarchies: list[Hierarchy] = []
        self.owned: set[Path] = set()
        self.delegated: set[Path] = set()
        self.bombs: set[Path] = set()
        self.unkillable: set[int] = set()
        self.refused: dict[str, int] = {}
        self.absent: set[str] = set()
        self.ended: list[int] = []
        self.now = 0.0
        self._next_pid = 1000

    # How a test sets it up.

    def mount(self, point: str, version: int, *controllers: str, enclosed: bool = False) -> Hierarchy:
        hierarchy = Hierarchy(Path(point), version, controllers, enclosed)
        self.hierarchies.append(hierarchy)
        self._populate(hierarchy, hierarchy.point, controllers)
        return hierarchy

    def place(self, pid: int, folder: str | Path) -> None:
        """Move a process, and make the group if it isn't there."""
        path = Path(folder)
        hierarchy = self._hierarchy(path)
        if path != hierarchy.point:
            self._make(path)
        hierarchy.members[pid] = path

    def inside(self, folder: Path) -> list[int]:
        members = self._hierarchy(folder).members
        return sorted(pid for pid, place in members.items() if place == folder)

    def groups(self) -> set[str]:
        """Names of all folders that there are."""
        return {path.parent.name for path in self.files if path.name == "cgroup.procs"}

    # What is under test asks for.

    def read(self, path: Path) -> str:
        if path == Path("/proc/self/mountinfo"):
            return "".join(self._mountinfo())
        if path == Path("/proc/self/cgroup"):
            return "".join(self._own_groups())
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if path.name == "cgroup.procs":
            listed = self.inside(path.parent)
            self._explode(path.parent)  # what it forks meanwhile is not in the list
            return "".join(f"{pid}\n" for pid in listed)
        return self.files[path]

    def write(self, path: Path, text: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if not self.may_write(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        if path.name in self.refused:
            code = self.refused[path.name]
            raise OSError(code, os.strerror(code), str(path))
        match path.name:
            case "cgroup.procs":
                self._enter(path.parent, int(text))
            case "cgroup.subtree_control":
                self._hand_on(path.parent, text)
            case "cgroup.kill":
                for pid in self.inside(path.parent):
                    self._end(pid)
            case "cgroup.freeze":
                self.files[path] = text
                self.files[path.with_name("cgroup.events")] = f"populated 1\nfrozen {text}\n"
            case _:
                self.files[path] = text

    def make(self, folder: Path) -> None:
        if not self._is_owned(folder.parent if self._exists(folder.parent) else folder.parent.parent):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        self._make(folder)

    def remove(self, folder: Path) -> None:
        if not self._exists(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        if self.inside(folder) or self.folders(folder):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(folder))
        for path in [path for path in self.files if path.parent == folder]:
            del self.files[path]

    def folders(self, folder: Path) -> list[str]:
        below = {path.parent for path in self.files if path.name == "cgroup.procs"}
        return sorted(path.name for path in below if path.parent == folder)

    def may_write(self, path: Path) -> bool:
        return self._is_owned(path) or self._is_owned(path.parent)

    def is_delegated(self, folder: Path) -> bool:
        return folder in self.delegated

    def end(self, pid: int, group: str) -> None:
        if any(place.name == group for place in self._places(pid)):
            self.ended.append(pid)
            self._end(pid)

    def pause(self) -> None:
        self.now += 0.002

    def seconds(self) -> float:
        return self.now

    # The kernel's side.

    def _mountinfo(self) -> Iterator[str]:
        yield "23 1 0:20 / / rw shared:1 - ext4 /dev/vda rw\n"
        for number, each in enumerate(self.hierarchies, 30):
            kind = "cgroup2" if each.version == 2 else "cgroup"
            options = "rw" if each.version == 2 else f"rw,{','.join(each.controllers)}"
            yield f"{number} 23 0:{number} / {each.point} rw,nosuid shared:9 - {kind} {kind} {options}\n"

    def _own_groups(self) -> Iterator[str]:
        for number, each in enumerate(self.hierarchies):
            path = each.members.get(SERVER_PID, each.point).relative_to(each.point)
            group = "/" if path == Path() else f"/{path}"
            yield (
                f"0::{group}\n"
                if each.version == 2
                else f"{number + 1}:{','.join(each.controllers)}:{group}\n"
            )

    def _hierarchy(self, folder: Path) -> Hierarchy:
        return next(each for each in self.hierarchies if folder.is_relative_to(each.point))

    def _places(self, pid: int) -> list[Path]:
        return [each.members[pid] for each in self.hierarchies if pid in each.members]

    def _exists(self, folder: Path) -> bool:
        return folder / "cgroup.procs" in self.files

    def _is_owned(self, path: Path) -> bool:
        return self.uid == 0 or any(path.is_relative_to(folder) for folder in self.owned)

    def _make(self, folder: Path) -> None:
        if self._exists(folder):
            return
        hierarchy = self._hierarchy(folder)
        self._make(folder.parent)
        if hierarchy.version == 1:
            self._populate(hierarchy, folder, hierarchy.controllers)
        else:
            self._populate(
                hierarchy, folder, tuple(self.files[folder.parent / "cgroup.subtree_control"].split())
            )

    def _populate(self, hierarchy: Hierarchy, folder: Path, controllers: tuple[str, ...]) -> None:
        files = {"cgroup.procs": ""}
        is_top = folder == hierarchy.point and not hierarchy.enclosed
        if hierarchy.version == 2:
            files |= {"cgroup.controllers": " ".join(controllers), "cgroup.subtree_control": ""}
            if not is_top:
                files |= {"cgroup.kill": "", "cgroup.freeze": "0", "cgroup.events": "populated 0\nfrozen 0\n"}
        if not is_top:
            known = V1_FILES if hierarchy.version == 1 else V2_FILES
            for controller in controllers:
                files |= known.get(controller, {})
        self.files |= {folder / name: text for name, text in files.items() if name not in self.absent}

    def _enter(self, folder: Path, pid: int) -> None:
        hierarchy = self._hierarchy(folder)
        if pid not in {SERVER_PID} | {pid for each in self.hierarchies for pid in each.members}:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if self.files.get(folder / "cgroup.subtree_control") and not self._is_real_top(folder):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(folder))
        hierarchy.members[pid] = folder

    def _hand_on(self, folder: Path, text: str) -> None:
        control = folder / "cgroup.subtree_control"
        if text[1:] not in self.files[folder / "cgroup.controllers"].split():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(control))
        if self.inside(folder) and not self._is_real_top(folder):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(control))
        if text[1:] not in self.files[control].split():
            self.files[control] = f"{self.files[control]} {text[1:]}".strip()

    def _is_real_top(self, folder: Path) -> bool:
        hierarchy = self._hierarchy(folder)
        return folder == hierarchy.point and not hierarchy.enclosed

    def _end(self, pid: int) -> None:
        if pid not in self.unkillable:
            for each in self.hierarchies:
                each.members.pop(pid, None)

    def _explode(self, folder: Path) -> None:
        """A fork bomb forks unless it is frozen or empty."""
        if folder in self.bombs and self.inside(folder) and not self._is_frozen(folder):
            self._next_pid += 1
            for each in self.hierarchies:
                if any(bomb.is_relative_to(each.point) for bomb in self.bombs):
                    each.members[self._next_pid] = next(
                        bomb for bomb in self.bombs if bomb.is_relative_to(each.point)
                    )

    def _is_frozen(self, folder: Path) -> bool:
        states = [
            text.strip() in {"FROZEN", "1"}
            for path, text in self.files.items()
            if path.name in {"freezer.state", "cgroup.freeze"} and path.parent.name == folder.name
        ]
        return any(states)
