"""The Pythons of this machine, found where people have them."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 9)
"""Older ones uv hardly supports any more."""

OLDEST_RUNNER = (3, 11)
"""What the runner itself needs."""

NEUTRAL = "/opt/python"
"""Where interpreters that lie elsewhere than in the system are mounted."""

_NAME = re.compile(r"python3\.(\d{1,2})")
_MANAGED = re.compile(r"cpython-3\.(\d{1,2})\.(\d+)-linux-")
_PYENV = re.compile(r"3\.(\d{1,2})\.(\d+)")

# uv starts every interpreter on PATH once, shims that hang among them.
_LIST_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class HostPython:
    """One interpreter, such as 3.13's.

    ``prefix`` is the folder to mount at ``NEUTRAL/VERSION``, or ``None`` where the system's own mounts show
    it. ``executable`` is its path inside a sandbox. ``library`` is the shared library that the executable
    looks for under its path on the host, if it does. ``parts`` are all that is mounted of a prefix that others use,
    too, such as ``~/.local``; without any it is the Python's alone.
    """

    version: str
    executable: str
    prefix: Path | None = None
    library: Path | None = None
    parts: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))


def find_pythons(
    environment: Mapping[str, str], home: Path, visible: tuple[str, ...], uv: Path
) -> tuple[HostPython, ...]:
    """One for each version, the newest version last: uv's own, then pyenv's, then what ``PATH`` names, then
    the system's; what ``uv python list`` finds only where these have none that the runner could use."""
    found: dict[str, HostPython] = {}
    managers = (_uv_folder(environment, home), _pyenv_folder(environment, home))
    managed = tuple(Path(os.path.realpath(folder)) for folder in managers)
    for program in _programs(environment, home):
        _add(found, program, visible, managed)
    if not any(python.numbers >= OLDEST_RUNNER for python in found.values()):
        for program in _listed(uv, environment):
            _add(found, program, visible, managed)
    return tuple(sorted(found.values(), key=lambda python: python.numbers))


def _add(
    found: dict[str, HostPython], program: Path, visible: tuple[str, ...], managed: tuple[Path, ...]
) -> None:
    match = _NAME.fullmatch(program.name)
    if match is None or (3, int(match[1])) < OLDEST or f"3.{match[1]}" in found:
        return
    if (python := describe(program, f"3.{match[1]}", visible, managed)) is not None:
        found[python.version] = python


def describe(
    program: Path, version: str, visible: tuple[str, ...], managed: tuple[Path, ...]
) -> HostPython | None:
    """How ``program`` can be used inside; ``None`` when it is no interpreter of its own (a shim, a venv).
    ``managed`` are folders in which each Python has one to itself."""
    try:
        real = program.resolve(strict=True)
        with real.open("rb") as file:
            head = file.read(4)
    except OSError:
        return None
    if head != b"\x7fELF" or real.name != f"python{version}":
        return None
    if any(real.is_relative_to(root) for root in visible):
        return HostPython(version, str(real))
    prefix = real.parent.parent
    if real.parent.name != "bin" or not (prefix / "lib" / f"python{version}" / "os.py").is_file():
        return None
    return HostPython(
        version,
        f"{NEUTRAL}/{version}/bin/python{version}",
        prefix,
        _bound_library(real, prefix, version),
        () if prefix.parent in managed else _parts(prefix, version),
    )


def _parts(prefix: Path, version: str) -> tuple[str, ...]:
    """A Python installed among other things: in a person's ``~/.local`` these are mail, keys and the like."""
    libraries = sorted(path.name for path in (prefix / "lib").glob(f"libpython{version}*.so*"))
    return (f"bin/python{version}", f"lib/python{version}", *(f"lib/{name}" for name in libraries))


def _bound_library(real: Path, prefix: Path, version: str) -> Path | None:
    """The shared library, if the executable names its folder outright instead of relative to itself."""
    library = prefix / "lib" / f"libpython{version}.so.1.0"
    if not library.is_file() or f"{prefix}/lib\0".encode() not in real.read_bytes():
        return None
    return library


def _programs(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    yield from _newest_first(_uv_folder(environment, home), _MANAGED)
    yield from _newest_first(_pyenv_folder(environment, home), _PYENV)
    folders = [*environment.get("PATH", "").split(":"), "/usr/local/bin", "/usr/bin"]
    for folder in dict.fromkeys(filter(None, folders)):
        yield from (path for path in _entries(Path(folder)) if _NAME.fullmatch(path.name))


def _uv_folder(environment: Mapping[str, str], home: Path) -> Path:
    if named := environment.get("UV_PYTHON_INSTALL_DIR"):
        return Path(named)
    data = environment.get("XDG_DATA_HOME")
    return (Path(data) if data else home / ".local/share") / "uv/python"


def _pyenv_folder(environment: Mapping[str, str], home: Path) -> Path:
    root = environment.get("PYENV_ROOT")
    return Path(root) / "versions" if root else home / ".pyenv/versions"


def _newest_first(folder: Path, names: re.Pattern[str]) -> Iterator[Path]:
    matches = [(path, match) for path in _entries(folder) if (match := names.match(path.name))]
    for path, match in sorted(matches, key=lambda pair: (int(pair[1][1]), int(pair[1][2])), reverse=True):
        yield path / "bin" / f"python3.{match[1]}"


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _listed(uv: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """What ``uv python list --only-installed`` finds."""
    command = [str(uv), "python", "list", "--only-installed", "--no-config", "--output-format", "json"]
    kept = {name: environment[name] for name in ("PATH", "HOME") if name in environment}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIST_SECONDS,
            check=False,
            env=kept,
        )
        for entry in json.loads(done.stdout):
            path = Path(str(entry["path"]))
            if _NAME.fullmatch(path.name):
                yield path
            real = Path(os.path.realpath(path))
            if _NAME.fullmatch(real.name):
                yield real
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return
