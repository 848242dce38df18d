"""The arguments of both bwraps of a sandbox, and of a builder's: settings, limits and the host's facts in, words out, no effects.

The outer sandbox holds the runner, the inner one the script (see the runner's ``nest.py``). The order of the
words is the order of mounting: what lies below a tmpfs is mounted after it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.host import Entry, Host
from python_exec_sandbox.drivers.bubblewrap.options import Network
from python_exec_sandbox.drivers.bubblewrap.pythons import NEUTRAL, HostPython
from python_exec_sandbox.errors import ConfigurationError
from python_exec_sandbox.model.limits import MIB, SandboxLimits
from python_exec_sandbox.stream.building import STORE

WORK = "/work"
HOME = "/home/sandbox"
PACKAGES = "/env"
SANDBOX = "/opt/sandbox"
CACHE = f"{PACKAGES}/cache"
CA_BUNDLE_PATH = "/etc/ssl/sandbox-ca.crt"

INNER_UID = 1000
"""What both namespaces call the one user there is."""

ALLOWED_VARIABLES = frozenset({"LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"})
"""The only variables a sandbox gets; nothing of the server's own environment is passed on unasked."""

OWN_PROCESSES = 3
"""What a sandbox has more than a container: two bwraps that wait, and the inner PID 1."""

_UV = f"{SANDBOX}/bin/uv"
_RUNNER = f"{SANDBOX}/runner.zip"
_BUILDER = f"{SANDBOX}/builder"
_NEST_ARGUMENTS = f"{SANDBOX}/nest.args"
_NEST_SECCOMP = f"{SANDBOX}/nest.seccomp"
_PYTHONS = f"{SANDBOX}/pythons.json"

# For locks and the like; what is downloaded goes into the store.
_BUILDER_SCRATCH_BYTES = 64 * MIB
_BUILDER_SHARED_BYTES = 16 * MIB

# For downloads of sources, what they unpack to, and the tools that build them.
_SOURCE_BYTES = 512 * MIB

_PASSWD = (
    "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    f"sandbox:x:{INNER_UID}:{INNER_UID}:sandbox:{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
)
_GROUP = f"root:x:0:\nsandbox:x:{INNER_UID}:\nnogroup:x:65534:\n"
_HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n"


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes that bwrap reads from a descriptor; the word becomes its number."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Source:
    """A path of the host's; the word becomes a path under which the sandbox's user can reach it."""

    path: Path


Word = str | Data | Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one sandbox is made from.

    ``python`` is the version that waits inside, ``runner_python`` the interpreter that the runner runs
    with, ``runner`` its program as a zip archive. ``store`` are the folders of the store of packages that it
    sees. ``counters`` are folders of control groups, with the places
    where the runner reads them. ``cache`` is what uv already knows: path below its cache -> content. The last
    two limit each process of the script, 0 for not at all.
    """

    host: Host
    limits: SandboxLimits
    network: Network
    python: str
    runner_python: HostPython
    runner: bytes
    seccomp: bytes
    ca_bundle: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    store: tuple[Path, ...] = ()
    counters: tuple[tuple[Path, str], ...] = ()
    cache: Mapping[str, bytes] | None = None
    script_processes: int = 0
    script_address_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderPlan:
    """What a builder's sandbox is made from: no script runs in it, and it has the network whatever scripts have.

    ``python`` is the interpreter that ``builder``, files by their paths in a folder, runs with; ``store`` the
    whole store, or ``None`` for a build sandbox, in which code of packages runs.
    """

    host: Host
    python: HostPython
    builder: Mapping[str, bytes]
    seccomp: bytes
    store: Path | None
    ca_bundle: Path | None = None
    network: Network = Network.FULL
    environment: tuple[tuple[str, str], ...] = ()


def outer_words(plan: Plan) -> list[Word]:
    """The options of the outer bwrap; the command comes after them.

    Raises:
        ConfigurationError: a variable isn't allowed.
    """
    return [
        *_namespaces(plan.network),
        *_variables(plan),
        *_system(plan),
        *_counters(plan.counters),
        *_writable(plan.limits),
        *_tools(plan),
        *("--remount-ro", "/", "--chdir", "/"),
    ]


def inner_arguments() -> bytes:
    """The options of the inner bwrap, as its ``--args`` wants them.

    Everything is seen as it is outside but the processes. ``--disable-userns`` is possible here only: the
    outer sandbox must be able to make one more namespace, this one.
    """
    words = (
        *("--unshare-user", "--unshare-pid", "--disable-userns"),
        *("--uid", str(INNER_UID), "--gid", str(INNER_UID)),
        *("--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"),
        *("--dev-bind", "/", "/", "--proc", "/proc", "--chdir", WORK),
    )
    return "".join(f"{word}\0" for word in words).encode()


def runner_command(plan: Plan) -> list[str]:
    """What the outer bwrap executes."""
    command = [plan.runner_python.executable, "-I", "-S", _RUNNER]
    command += ["--python", plan.python, "--pythons", _PYTHONS, "--uv", _UV]
    command += ["--work", WORK, "--home", HOME, "--packages", PACKAGES]
    command += ["--open-files", str(plan.limits.open_files)]
    command += ["--nest", _bwrap_inside(plan.host), "--nest-arguments", _NEST_ARGUMENTS]
    command += ["--nest-processes", str(plan.script_processes)]
    command += ["--nest-address-bytes", str(plan.script_address_bytes)]
    if plan.network is Network.FILTERED:
        command += ["--outward", "yes"]
    if plan.seccomp:
        command += ["--nest-seccomp", _NEST_SECCOMP]
    return command


def trial_command(plan: Plan) -> list[str]:
    """What the outer bwrap executes in a sandbox that only shows whether sandboxes can be made."""
    interpreter, isolated, bare, runner, *arguments = runner_command(plan)
    return [interpreter, isolated, bare, runner, "prepare", *arguments]


def builder_words(plan: BuilderPlan) -> list[Word]:
    """The options of a builder's one bwrap; the command comes after them."""
    words: list[Word] = [*_namespaces(plan.network, "builder"), "--disable-userns"]
    words += [*_variables(plan), *_system(plan)]
    words += [*_tmpfs("/dev/shm", _BUILDER_SHARED_BYTES, "1777"), "--remount-ro", "/dev"]  # noqa: S108 - inside
    words += _tmpfs("/tmp", _BUILDER_SCRATCH_BYTES, "0700")  # noqa: S108 - inside
    words += [
        "--perms",
        "0755",
        "--dir",
        SANDBOX,
        "--ro-bind",
        Source(plan.host.uv),
        _UV,
        *_pythons(plan.host),
    ]
    for name, content in sorted(plan.builder.items()):
        words += _file(f"{_BUILDER}/{name}", content)
    if plan.store is not None:
        words += ["--bind", Source(plan.store), STORE]
    else:
        words += _tmpfs(PACKAGES, _SOURCE_BYTES, "0700")
    words += ["--remount-ro", "/", "--chdir", "/"]
    return [*words, "--seccomp", Data(plan.seccomp)] if plan.seccomp else words


def builder_command(plan: BuilderPlan) -> list[str]:
    """What a builder's bwrap executes."""
    command = [plan.python.executable, "-I", "-S", _BUILDER]
    if plan.store is None:
        return [*command, "build-source", "--uv", _UV]
    return [*command, "build", "--uv", _UV, "--one-user", "yes"]


def _namespaces(network: Network, name: str = "sandbox") -> list[Word]:
    words: list[Word] = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    words.append("--unshare-cgroup-try")
    if network is not Network.FULL:
        words.append("--unshare-net")
    words += ["--uid", str(INNER_UID), "--gid", str(INNER_UID), "--hostname", name]
    # The runner is a PID 1 by trade, and so is the builder; a script never is one.
    return [*words, "--new-session", "--as-pid-1", "--cap-drop", "ALL"]


def _variables(plan: "Plan | BuilderPlan") -> Iterator[Word]:
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **dict(plan.environment)}
    if refused := sorted(set(variables) - ALLOWED_VARIABLES - {"PATH"}):
        raise ConfigurationError(
            f"The variables {', '.join(refused)} can't be given to sandboxes; "
            f"only {', '.join(sorted(ALLOWED_VARIABLES))} can."
        )
    if plan.ca_bundle is not None:
        variables |= {"SSL_CERT_FILE": CA_BUNDLE_PATH, "REQUESTS_CA_BUNDLE": CA_BUNDLE_PATH}
    yield "--clearenv"
    for name, value in sorted(variables.items()):
        yield from ("--setenv", name, value)


def _system(plan: "Plan | BuilderPlan") -> Iterator[Word]:
    for folder in ("/etc", "/etc/ssl"):
        yield from ("--perms", "0755", "--dir", folder)
    for entry in plan.host.system:
        yield from _entry(entry)
    if plan.ca_bundle is not None:
        yield from ("--ro-bind", Source(plan.ca_bundle), CA_BUNDLE_PATH)
    yield from _file("/etc/passwd", _PASSWD.encode())
    yield from _file("/etc/group", _GROUP.encode())
    yield from _file("/etc/hosts", _HOSTS.encode())
    if plan.network is Network.FULL:
        yield from _file("/etc/resolv.conf", plan.host.resolver.encode())
    yield from ("--proc", "/proc", "--dev", "/dev")


def _counters(counters: tuple[tuple[Path, str], ...]) -> Iterator[Word]:
    for source, place in counters:
        yield from ("--ro-bind", str(source), place)


def _entry(entry: Entry) -> tuple[Word, ...]:
    if entry.link:
        return ("--symlink", entry.link, entry.path)
    return ("--ro-bind", entry.source, entry.path)


def _writable(limits: SandboxLimits) -> Iterator[Word]:
    """Every place that can be written to, each with its size: bwrap's default is half of the machine's memory."""
    shares = limits.disk_shares()
    yield from _tmpfs("/dev/shm", shares.shm, "1777")  # noqa: S108 - paths inside the sandbox
    yield from ("--remount-ro", "/dev")
    yield from _tmpfs("/tmp", shares.tmp, "1777")  # noqa: S108
    yield from _tmpfs(WORK, shares.work, "0700")
    yield from _tmpfs(HOME, shares.home, "0700")
    yield from _tmpfs(PACKAGES, limits.environment_bytes, "0700")


def _tmpfs(path: str, size: int, mode: str) -> tuple[Word, ...]:
    return ("--perms", mode, "--size", str(size), "--tmpfs", path)


def _tools(plan: Plan) -> Iterator[Word]:
    host = plan.host
    yield from ("--perms", "0755", "--dir", SANDBOX)
    yield from ("--ro-bind", Source(host.uv), _UV)
    yield from _bwrap(host)
    yield from _pythons(host)
    for folder in plan.store:
        yield from ("--ro-bind", Source(folder), f"{STORE}/{folder.name}")
    yield from _file(_RUNNER, plan.runner)
    yield from _file(_NEST_ARGUMENTS, inner_arguments())
    if plan.seccomp:
        yield from _file(_NEST_SECCOMP, plan.seccomp)
    for path, content in sorted((plan.cache or {}).items()):
        yield from ("--perms", "0600", "--file", Data(content), f"{CACHE}/{path}")


def _bwrap_inside(host: Host) -> str:
    return f"{SANDBOX}/bwrap/_bin/bwrap" if host.bwrap.beside else f"{SANDBOX}/bwrap"


def _bwrap(host: Host) -> Iterator[Word]:
    """The program, and its libraries as far as it brings its own: two folders up from it, beside its package."""
    yield from ("--ro-bind", Source(host.bwrap.path), _bwrap_inside(host))
    for folder in host.bwrap.beside:
        yield from ("--ro-bind", Source(folder), f"{SANDBOX}/{folder.name}")


def _pythons(host: Host) -> Iterator[Word]:
    for python in host.pythons:
        yield from _python(python)
    yield from _file(_PYTHONS, json.dumps({each.version: each.executable for each in host.pythons}).encode())


def _python(python: HostPython) -> Iterator[Word]:
    if python.prefix is not None:
        for part in python.parts or ("",):
            place = f"{NEUTRAL}/{python.version}/{part}".rstrip("/")
            yield from ("--ro-bind", Source(python.prefix / part), place)
    if python.library is not None:
        yield from ("--ro-bind", Source(python.library), str(python.library))


def _file(path: str, content: bytes) -> Sequence[Word]:
    return ("--perms", "0444", "--ro-bind-data", Data(content), path)
