"""Where the hierarchies of control groups are mounted, and where this process is in them; pure.

Formats: ``proc_pid_mountinfo(5)`` and ``cgroups(7)``.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """``root`` is the group that is seen at ``point``: not the topmost one inside a container."""

    point: Path
    root: PurePosixPath

    def folder_of(self, group: str) -> Path | None:
        """Where the group that the kernel calls ``group`` is seen; ``None`` if it isn't."""
        path = PurePosixPath(group)
        if ".." in path.parts or not path.is_relative_to(self.root):
            return None
        return self.point / path.relative_to(self.root)


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """``v1``: by controller. Both versions may be there at once, controllers in one of them only."""

    v1: dict[str, Mount] = field(default_factory=dict)
    v2: Mount | None = None


def read_mounts(mountinfo: str) -> Hierarchies:
    """What ``/proc/self/mountinfo`` says; lines that can't be read say nothing."""
    v1: dict[str, Mount] = {}
    v2: Mount | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if len(left) < 5 or len(right) < 3:
            continue
        mount = Mount(point=Path(_plain(left[4])), root=PurePosixPath(_plain(left[3])))
        if right[0] == "cgroup2":
            v2 = v2 or mount
        elif right[0] == "cgroup":
            for option in right[2].split(","):
                v1.setdefault(option, mount)
    return Hierarchies(v1, v2)


def own_group(cgroup: str) -> str | None:
    """This process's group of version 2, from ``/proc/self/cgroup``."""
    return next((line[3:] for line in cgroup.splitlines() if line.startswith("0::")), None)


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
