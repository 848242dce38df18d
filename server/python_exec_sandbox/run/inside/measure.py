"""Looks around inside a sandbox, as a script would, and writes what it finds to stdout as a line of JSON.

Each fact is ``None`` where the system doesn't tell it: a limit that can't be seen is not said to hold.
"""

import json
import os
import platform
import resource
import subprocess
import sys

GROUPS = "/sys/fs/cgroup"
UNLIMITED = 1 << 60
"""Version 1 of control groups writes a number near 2^63 for "none"."""

UV_SECONDS = 10.0
MOST_ITEMS = 100


def measure() -> dict[str, object]:
    status = process_status()
    memory = limit("memory", "memory.max", "memory.limit_in_bytes")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "uv": uv_version(),
        "uv_path": os.environ.get("UV"),
        "pythons": pythons(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "capabilities": highest(status, ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")),
        "effective_capabilities": highest(status, ("CapPrm", "CapEff", "CapAmb")),
        "no_new_privileges": number(status.get("NoNewPrivs")),
        "seccomp": number(status.get("Seccomp")),
        "processes_seen": len([name for name in listed("/proc") if name.isdigit()]) or None,
        "devices": listed("/sys/class/net") or None,
        "variables": sorted(os.environ)[:MOST_ITEMS],
        "root_is_read_only": root_is_read_only(),
        "folders": folders(),
        "control_groups": control_groups(),
        "memory_bytes": memory,
        "swap_bytes": swap(memory),
        "processes": limit("pids", "pids.max", "pids.max"),
        "cpus": cpus(),
        "open_files": highest_allowed(resource.RLIMIT_NOFILE),
        "core_bytes": highest_allowed(resource.RLIMIT_CORE),
        "file_bytes": highest_allowed(resource.RLIMIT_FSIZE),
        "process_data_bytes": highest_allowed(resource.RLIMIT_DATA),
    }


def highest_allowed(kind: int) -> "int | None":
    """The hard limit of a process; ``None`` when there is none."""
    hard = resource.getrlimit(kind)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def read(path: str) -> "str | None":
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return None


def listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:MOST_ITEMS]
    except OSError:
        return []


def number(text: "str | None") -> "int | None":
    try:
        return int((text or "").split()[0])
    except (ValueError, IndexError):
        return None


def process_status() -> dict[str, str]:
    lines = (read("/proc/self/status") or "").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def highest(status: dict[str, str], names: tuple[str, ...]) -> "str | None":
    """All capabilities in any of the sets ``names``, in the kernel's hexadecimal form."""
    found = [status[name] for name in names if name in status]
    total = 0
    for value in found:
        total |= int(value, 16)
    return f"{total:x}" if found else None


def root_is_read_only() -> "bool | None":
    try:
        return bool(os.statvfs("/").f_flag & os.ST_RDONLY)
    except OSError:
        return None


def folders() -> list[dict[str, object]]:
    """The file systems on which this process may write, with their sizes."""
    found: list[dict[str, object]] = []
    for line in (read("/proc/self/mountinfo") or "").splitlines():
        fields, _, rest = line.partition(" - ")
        path, kind = fields.split()[4], rest.split()[0] if rest else ""
        if kind in ("proc", "sysfs", "cgroup", "cgroup2", "mqueue", "devpts", "devtmpfs"):
            continue
        try:
            if os.path.isdir(path) and os.access(path, os.W_OK):
                room = os.statvfs(path)
                if not room.f_flag & os.ST_RDONLY:
                    found.append({"path": path, "kind": kind, "bytes": room.f_blocks * room.f_frsize})
        except OSError:
            continue
    return found[:MOST_ITEMS]


def control_groups() -> "int | None":
    if os.path.exists(f"{GROUPS}/cgroup.controllers"):
        return 2
    return 1 if os.path.isdir(f"{GROUPS}/memory") else None


def places(controller: str) -> list[str]:
    """The folders whose limits hold for this process, the innermost first."""
    path = ""
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            path = group.strip("/")
    root = GROUPS if control_groups() == 2 else f"{GROUPS}/{controller}"
    parts = path.split("/") if path else []
    return ["/".join((root, *parts[:count])) for count in range(len(parts), -1, -1)]


def limit(controller: str, new: str, old: str) -> "int | None":
    """The smallest limit of a controller; ``None`` when there is none to be seen."""
    name = new if control_groups() == 2 else old
    values = [number(read(f"{folder}/{name}")) for folder in places(controller)]
    set_ = [value for value in values if value is not None and value < UNLIMITED]
    return min(set_, default=None)


def swap(memory: "int | None") -> "int | None":
    """Swap beside the memory, in bytes."""
    if control_groups() == 2:
        return limit("memory", "memory.swap.max", "")
    both = limit("memory", "", "memory.memsw.limit_in_bytes")
    return None if both is None or memory is None else both - memory


def cpus() -> "float | None":
    found = []
    for folder in places("cpu"):
        if control_groups() == 2:
            quota, _, period = (read(f"{folder}/cpu.max") or "").partition(" ")
        else:
            quota = read(f"{folder}/cpu.cfs_quota_us") or ""
            period = read(f"{folder}/cpu.cfs_period_us") or ""
        share, whole = number(quota), number(period)
        if share is not None and whole and share > 0:
            found.append(share / whole)
    return min(found, default=None)


def uv(*arguments: str) -> "str | None":
    try:
        done = subprocess.run(
            [os.environ.get("UV") or "uv", *arguments],
            capture_output=True,
            text=True,
            timeout=UV_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def uv_version() -> "str | None":
    words = (uv("--version") or "").split()
    return words[1] if len(words) > 1 else None


def pythons() -> list[str]:
    """Full versions of the Pythons that uv has at hand here."""
    try:
        found = json.loads(
            uv("python", "list", "--only-installed", "--offline", "--output-format", "json") or "[]"
        )
        return sorted({str(one["version"]) for one in found})[:MOST_ITEMS]
    except (ValueError, KeyError, TypeError):
        return []


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()) + "\n")
