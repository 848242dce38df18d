"""Where a container engine may listen, found without PATH, HOME or the docker command.

A client that starts the server may give it next to no environment. So the home comes from the user
database where HOME is missing, and each desktop product's socket is known here.
"""

import hashlib
import json
import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from python_exec_sandbox.errors import ConfigurationError

_HELP = (
    "Start Docker Desktop, OrbStack, Colima, Podman or dockerd; or name the engine's address with "
    "--docker-host or DOCKER_HOST, for example unix:///var/run/docker.sock."
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the search looks at. ``read`` gives a file's text or ``None``; ``is_socket`` follows links."""

    environ: Mapping[str, str]
    home: Path
    uid: int
    read: Callable[[Path], str | None]
    is_socket: Callable[[Path], bool]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An address to try, and where it comes from, in words for a person."""

    address: str
    origin: str

    @property
    def is_local(self) -> bool:
        """Whether the engine's files are this machine's as far as an address can tell."""
        return self.address.startswith("unix://")


@dataclass(frozen=True, slots=True)
class Findings:
    """``candidates`` in the order to try; ``absent`` are places where nothing was."""

    candidates: tuple[Candidate, ...]
    absent: tuple[str, ...]

    def explain(self, failures: Mapping[str, str]) -> str:
        """One text for a person: what was tried, why each failed (by address), what to do."""
        lines = ["No container engine could be used."]
        lines += [
            f"  {c.address} ({c.origin}): {failures.get(c.address, 'not tried')}" for c in self.candidates
        ]
        if self.absent:
            lines.append("  nothing at " + ", ".join(self.absent))
        return "\n".join([*lines, _HELP])


def surroundings() -> Surroundings:
    """This process's own view. Blocks for a moment: call it in a worker thread."""
    uid = os.getuid()
    environ = dict(os.environ)
    return Surroundings(
        environ=environ,
        home=Path(environ.get("HOME") or _home_of(uid)),
        uid=uid,
        read=_read_text,
        is_socket=_is_socket,
    )


def find_engines(view: Surroundings, option: str | None) -> Findings:
    """Where to look for an engine.

    An address that a person gave (option, DOCKER_CONTEXT, DOCKER_HOST) is the only candidate: another
    engine than the one asked for would be a surprise. Otherwise the current docker context comes first,
    then the known sockets that exist.

    Raises:
        ConfigurationError: the address is of a kind that isn't supported, or the context doesn't exist.
    """
    if option:
        return _only(_checked(option, "the option --docker-host"))
    config = _config_folder(view)
    if name := view.environ.get("DOCKER_CONTEXT"):
        return _only(_named_context(view, config, name))
    if host := view.environ.get("DOCKER_HOST"):
        return _only(_checked(host, "DOCKER_HOST"))
    candidates: list[Candidate] = []
    if (current := _current_context(view, config)) is not None:
        candidates.append(current)
    absent: list[str] = []
    for path, owner in _known_sockets(view):
        address = f"unix://{path}"
        if not view.is_socket(path):
            absent.append(str(path))
        elif address not in {c.address for c in candidates}:
            candidates.append(Candidate(address, owner))
    return Findings(tuple(candidates), tuple(absent))


def _only(candidate: Candidate) -> Findings:
    return Findings((candidate,), ())


def _checked(address: str, origin: str) -> Candidate:
    scheme, separator, rest = address.partition("://")
    if not separator and address.startswith("/"):
        return Candidate(f"unix://{address}", origin)
    if scheme in {"ssh", "https", "npipe", "fd"}:
        raise ConfigurationError(
            f"The engine address {address!r} from {origin} is of a kind that isn't supported yet. Forward its "
            "socket to this machine (ssh -L /tmp/docker.sock:/var/run/docker.sock HOST) and name that with "
            "--docker-host unix:///tmp/docker.sock."
        )
    if scheme not in {"unix", "tcp", "http"} or not rest:
        raise ConfigurationError(
            f"The engine address {address!r} from {origin} is none that can be understood; expected "
            "unix:///path/to/socket or tcp://host:port."
        )
    return Candidate(address, origin)


def _config_folder(view: Surroundings) -> Path:
    return Path(view.environ.get("DOCKER_CONFIG") or view.home / ".docker")


def _current_context(view: Surroundings, config: Path) -> Candidate | None:
    """The context chosen with ``docker context use``; ``None`` when it says nothing of use."""
    name = _json_text(view, config / "config.json", "currentContext")
    if not name or name == "default":
        return None
    try:
        return _named_context(view, config, name)
    except ConfigurationError:
        return None  # nobody asked for it now: a leftover must not hide an engine that runs


def _named_context(view: Surroundings, config: Path, name: str) -> Candidate:
    """The docker command keeps a context under the SHA-256 of its name."""
    if name == "default":
        return _checked(
            view.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock", "the default context"
        )
    digest = hashlib.sha256(name.encode()).hexdigest()
    host = _json_text(
        view, config / "contexts" / "meta" / digest / "meta.json", "Endpoints", "docker", "Host"
    )
    if not host:
        raise ConfigurationError(
            f"The docker context {name!r} doesn't exist in {config} or names no address. "
            "Choose another with DOCKER_CONTEXT, or name the engine with --docker-host."
        )
    return _checked(host, f"the docker context {name!r}")


def _json_text(view: Surroundings, path: Path, *keys: str) -> str | None:
    try:
        value = json.loads(view.read(path) or "null")
    except (ValueError, RecursionError):
        return None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _known_sockets(view: Surroundings) -> list[tuple[Path, str]]:
    home = view.home
    runtime = Path(view.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{view.uid}")
    return [
        (Path("/var/run/docker.sock"), "the engine of this machine"),
        (home / ".docker/run/docker.sock", "Docker Desktop"),
        (home / ".docker/desktop/docker.sock", "Docker Desktop"),
        (home / ".orbstack/run/docker.sock", "OrbStack"),
        (home / ".colima/default/docker.sock", "Colima"),
        (home / ".config/colima/default/docker.sock", "Colima"),
        (home / ".rd/docker.sock", "Rancher Desktop"),
        (runtime / "docker.sock", "rootless Docker"),
        (runtime / "podman/podman.sock", "rootless Podman"),
        (home / ".local/share/containers/podman/machine/podman.sock", "Podman machine"),
        (Path("/run/podman/podman.sock"), "Podman"),
    ]


def _home_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/"


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:
        return False
