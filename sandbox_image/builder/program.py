"""The builder's one request, from stdin to stdout."""

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from .built import MAX_BUILT_BYTES, BuildRefused, Built
from .bytecode import compile_modules, existing, share
from .installer import RETRIES, UV, Installer, InstallerFailed, InstallerKilled, NeedsSource, Settings
from .pythons import PythonMissing, Pythons
from .room import Room, size_of
from .store import Environment, Resolution, Store
from .warming import Warming, is_unreachable

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Certificates are the most of it."""

TEXT_CHARACTERS = 16 * 1024
ADDRESS_CHARACTERS = 200
LEAST_PRIORITY = 19
"""For what nobody waits for."""

FEW_RETRIES = 1
"""To reach an index whose last answer is known."""

OFFLINE_SECONDS = 60.0
"""How long a server needn't ask again after the index could not be reached, which took seconds to find out."""

_PINNED = re.compile(r"[\w.-]+(\[[^\]]*\])?\s*===?\s*[^,*;\s]+\s*(;.*)?")

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

LEAST_FREE_BYTES = 256 * 1024
"""With less on the disk, something of the last build is missing: what could not be compiled is left out in silence."""

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Request:
    """What to build. A resolution older than ``resolution_seconds`` is made again unless all is pinned.

    The store may take ``store_bytes``; ``used`` are environments that the server gave to runs without asking
    here, and how many seconds ago. ``is_from_source``: what a build sandbox made of it follows in the next line.
    """

    python: str
    requirements: list[str]
    resolution_seconds: float
    task: str = "build"
    store_bytes: int = 10 * 1024**3
    used: dict[str, float] = field(default_factory=dict)
    installer: Settings = field(default_factory=Settings)
    is_from_source: bool = False
    python_mirror: str = ""

    @property
    def is_pinned(self) -> bool:
        """Whether asking the index again could not change what was asked for."""
        return all(_PINNED.fullmatch(line) for line in self.requirements)

    def key(self, base: "Base") -> str:
        """Under which its resolution is remembered. What other indexes lead to is something else; the config's
        credentials can't be told from a digest."""
        return digest("request", base.fingerprint, self.installer.config, *self.requirements)

    @classmethod
    def parse(cls, line: bytes) -> "Request":
        """Raises ``ValueError`` when it isn't one."""
        match json.loads(line):
            case {
                "task": str(task),
                "python": str(python),
                "requirements": [*requirements],
                "resolution_seconds": int() | float() as seconds,
                "store_bytes": int(store_bytes),
                "used": dict(used),
                "installer": installer,
                "from_source": bool(from_source),
                "python_mirror": str(mirror),
            } if task in TASKS and all(isinstance(one, str) and one.isprintable() for one in requirements):
                return cls(
                    python,
                    sorted(requirements),
                    float(seconds),
                    task,
                    store_bytes,
                    _uses(used),
                    Settings.parse(installer),
                    from_source,
                    mirror,
                )
        raise ValueError("not a request")


TASKS = ("build", "resolve", "warm", "trim")

_LOCKED = re.compile(r"([\w.-]+) ?(?:==|@) ?([^\s;\\]+)", re.ASCII)
"""A package in uv's lock, with its version, or with its address."""


def _uses(used: dict[str, object]) -> dict[str, float]:
    if not all(_ID.fullmatch(name) and isinstance(ago, int | float) for name, ago in used.items()):
        raise ValueError("not the names of environments")
    return {name: float(str(ago)) for name, ago in used.items()}


class Program:
    """Carries out one request in ``store``; ``tell`` sends words about how it goes."""

    def __init__(
        self, store: Store, installer: Installer, pythons: dict[str, str], tell: Callable[[str], None]
    ) -> None:
        self._store = store
        self._installer = installer
        self._pythons = Pythons(pythons, store, installer)
        self._tell = tell

    def answer(self, request: Request, built: Built | None = None) -> dict[str, object]:
        """The result message for ``request``; ``built`` is what was made from sources for it, if that was asked
        for."""
        room = Room(self._store, request.store_bytes, self._tell)
        try:
            self._store.note_uses(request.used)
            if request.task == "trim":
                return {"type": "trimmed", "freed": room.empty()}
            base = Base.of(request.python, self._pythons.find(request.python, request.python_mirror))
            if request.task == "resolve":
                return self._versions(request, base)
            if request.task == "warm":
                return self._warmed(request, base, room)
            return self._built(request, base, room, built)
        except PythonMissing as error:
            return failed("python", str(error))
        except NeedsSource as error:
            return failed("needs_source", str(error))
        except InstallerFailed as error:
            return failed("installer", str(error))
        except (InstallerKilled, MemoryError):
            return failed("memory")
        except OSError as error:
            if error.errno in _NO_ROOM:
                return failed("no_room")
            raise

    def _versions(self, request: Request, base: "Base") -> dict[str, object]:
        with self._resolved(request, base, None) as (resolution, _):
            return {"type": "resolved", "packages": locked_packages(resolution.lock)}

    def _warmed(self, request: Request, base: "Base", room: Room) -> dict[str, object]:
        """The next package of the list in an environment of its own."""
        warming = Warming(self._store.warm_record(digest("python", base.fingerprint)))
        left = warming.left()
        if not left:
            return {"type": "warmed", "package": "", "left": 0}
        try:
            self._built(replace(request, requirements=left[:1]), base, room, None)
        except InstallerFailed as error:
            if is_unreachable(str(error)):
                raise  # another day
        warming.note(left[0])
        return {"type": "warmed", "package": left[0], "left": len(left) - 1}

    def _built(self, request: Request, base: "Base", room: Room, built: Built | None) -> dict[str, object]:
        """The environment, with what was not used for a long time out of its way if the disk is full."""
        try:
            answer = self._build(request, base, built)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._tell("the disk is full; making room in the store")
            if not room.make():
                raise
            try:
                answer = self._build(request, base, built)
            except BaseException:  # whatever ends it: the disk is full, so that leftovers matter
                room.tidy()
                raise
        if not answer["reused"]:
            room.keep()
        return answer

    def _build(self, request: Request, base: "Base", built: Built | None) -> dict[str, object]:
        key = request.key(base)
        with self._resolved(request, base, built) as (found, is_remembered):
            resolution = found
            try:
                environment, reused = self._environment(base, key, resolution, built)
            except InstallerFailed:
                if not is_remembered or built is not None:
                    raise
                # A file may have left the index since: once more, with what it has now.
                resolution = self._resolve(request, base)
                environment, reused = self._environment(base, key, resolution, built)
            if resolution.is_built:
                self._store.remember(key, resolution)
        return {
            "type": "built",
            "id": environment.id,
            "reused": reused,
            "packages": environment.packages,
            "fresh_seconds": _fresh_seconds(request, resolution),
        }

    @contextlib.contextmanager
    def _resolved(
        self, request: Request, base: "Base", built: Built | None
    ) -> Iterator[tuple[Resolution, bool]]:
        """What the request leads to, and whether that was known already; nobody else is at it meanwhile."""
        key = request.key(base)
        with self._store.cache_in_use(self._tell_wait), self._store.locked(key, self._tell_wait):
            remembered = self._store.resolution(key)
            resolution = self._fresh(request, base, remembered, built)
            yield resolution, resolution is remembered and not resolution.is_stale

    def _tell_wait(self) -> None:
        self._tell("waiting for another server that installs the same")

    def _fresh(
        self, request: Request, base: "Base", remembered: Resolution | None, built: Built | None
    ) -> Resolution:
        if remembered is not None:
            age = time.time() - remembered.resolved_at
            is_fresh = request.is_pinned or 0 <= age < request.resolution_seconds
            # What was built can't be made again from its lock.
            if is_fresh and (
                not remembered.is_built
                or self._store.environment(_key_of(base, request.key(base), remembered))
            ):
                return remembered
        if built is not None:
            return Resolution(built.lock, time.time(), is_built=True)
        try:
            return self._resolve(request, base, FEW_RETRIES if remembered else RETRIES)
        except InstallerFailed as error:
            if request.task == "warm" or not is_unreachable(str(error)):
                raise
            self._tell("the package index can't be reached; using what it said before")
            return replace(remembered or self._known_offline(request, base, error), is_stale=True)

    def _resolve(self, request: Request, base: "Base", retries: int = RETRIES) -> Resolution:
        now = time.time()
        if not request.requirements:  # a Python of its own
            return Resolution("", now)
        self._tell("resolving versions")
        with tempfile.TemporaryDirectory() as scratch:
            lock = self._installer.resolve(base.python, request.requirements, scratch, retries=retries)
        resolution = Resolution(lock, now)
        self._store.remember(request.key(base), resolution)
        return resolution

    def _known_offline(self, request: Request, base: "Base", failure: InstallerFailed) -> Resolution:
        """What uv's cache leads to; else ``failure`` stands."""
        try:
            with tempfile.TemporaryDirectory() as scratch:
                lock = self._installer.resolve(base.python, request.requirements, scratch, offline=True)
        except InstallerFailed:
            raise failure from None
        return Resolution(lock, 0.0)

    def _environment(
        self, base: "Base", request_key: str, resolution: Resolution, built: Built | None
    ) -> tuple[Environment, bool]:
        """The environment for a lock, and whether it was there already."""
        key = _key_of(base, request_key, resolution)
        if found := self._store.environment(key):
            return found, True
        with self._store.locked(key, self._tell_wait):
            if found := self._store.environment(key):
                return found, True
            name = secrets.token_hex(16)  # that nobody can guess: scripts can enter what they know by name
            with self._store.building(name):
                if not resolution.is_built:
                    packages = self._make(base, name, resolution.lock, self._installer)
                elif built is None:
                    raise NeedsSource("error: building source distributions is disabled")
                else:
                    packages = self._make_from(built, base, name)
                environment = Environment(name, packages, size_of(self._store.folder_of(name)))
                self._store.publish(key, environment)
            return environment, False

    def _make_from(self, built: Built, base: "Base", name: str) -> list[list[str]]:
        """As :meth:`_make`, with wheels that code of packages made: nothing of them, and nothing that they could
        overlay, comes into the cache that all share, or shares a file with it."""
        with self._store.private(name) as folder:
            wheels, cache = os.path.join(folder, "wheels"), os.path.join(folder, "cache")
            os.mkdir(wheels)
            built.write(wheels)
            return self._make(base, name, built.lock, self._installer.private(cache), wheels)

    def _make(
        self, base: "Base", name: str, lock: str, installer: Installer, wheels: str | None = None
    ) -> list[list[str]]:
        """Build at its final place, as paths inside it must be right. Returns what is in it."""
        folder, python = self._store.folder_of(name), self._store.python_of(name)
        self._installer.make(base.python, folder)
        with tempfile.TemporaryDirectory() as scratch:
            self._installer.ask(python, scratch)  # before there is anything in it that could run
            for facts in glob.glob(os.path.join(scratch, "interpreter-v*")):
                shutil.copytree(facts, os.path.join(self._store.facts_of(name), os.path.basename(facts)))
        if not lock:
            return []
        with tempfile.TemporaryDirectory() as scratch:
            self._tell("installing packages")
            installer.install(python, lock, scratch, wheels)
        self._tell("compiling")
        site = os.path.join(folder, "lib", f"python{base.version}", "site-packages")
        brought = existing(site)
        compile_modules(base.python, site)
        if wheels is None:
            share(site, self._store.cache, brought, f"cpython-{base.version.replace('.', '')}")
        self._store.check_free(LEAST_FREE_BYTES)
        return packages_in(site)


def _key_of(base: "Base", request_key: str, resolution: Resolution) -> str:
    """The name of an environment. One with a lock alone is shared by all requests that lead to it; one that was
    built belongs to its request, or a package could make one that others are given."""
    if resolution.is_built:
        return digest("built environment", request_key, resolution.lock)
    return digest("environment", base.fingerprint, resolution.lock)


@dataclass(frozen=True)
class Base:
    """A Python of the image or the store. Environments hold links to it and what uv knows of it, so that they go with it."""

    version: str
    python: str
    fingerprint: str

    @classmethod
    def of(cls, version: str, python: str) -> "Base":
        """The ``fingerprint`` changes with the file itself, in another image for example."""
        real = os.path.realpath(python)
        found = os.stat(real)
        identity = (version, real, str(found.st_size), str(found.st_ctime_ns), os.uname().machine)
        return cls(version, python, "\n".join(identity))


def _fresh_seconds(request: Request, resolution: Resolution) -> float | None:
    if request.is_pinned:
        return None
    if resolution.is_stale:
        return OFFLINE_SECONDS
    return max(0.0, request.resolution_seconds - (time.time() - resolution.resolved_at))


def packages_in(site: str) -> list[list[str]]:
    """Names and versions of the packages in ``site``, by the names of their folders."""
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(site), "*.dist-info"))):
        name, _, version = os.path.basename(path).removesuffix(".dist-info").partition("-")
        found.append([name.replace("_", "-").lower(), version])
    return found


def locked_packages(lock: str) -> list[list[str]]:
    """Names and versions in uv's ``lock``; for a package that has an address, that."""
    found = (_LOCKED.match(line) for line in lock.splitlines())
    return [[match[1].lower(), match[2][:ADDRESS_CHARACTERS]] for match in found if match]


def digest(*parts: str) -> str:
    """A name for all of ``parts`` together."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def failed(cause: str, text: str = "") -> dict[str, object]:
    """The message of a failure; of a long text the end."""
    return {"type": "failed", "cause": cause, "text": text[-TEXT_CHARACTERS:]}


def say(message: dict[str, object]) -> None:
    """Send one line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def end_with_stdin() -> None:
    """End the process, and with it the container, once nobody waits for the answer any more."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def main(argv: list[str]) -> None:
    """Answer the request on stdin; exit code 70 on an error of our own.

    ``argv``: ``--uv PATH``, and ``--one-user yes`` where the store's owner is who runs the scripts, too.
    """
    os.umask(0o022)
    options = dict(zip(argv[::2], argv[1::2], strict=True))
    try:
        request = Request.parse(read_line())
        built = Built.parse(read_line(MAX_BUILT_BYTES)) if request.is_from_source else None
        if request.task == "warm":
            os.nice(LEAST_PRIORITY)
        end_with_stdin_in_background()
        store = Store("/store", one_user="--one-user" in options)
        store.sweep()

        def tell(words: str) -> None:
            say({"type": "progress", "words": words})

        with open("/opt/sandbox/pythons.json", encoding="utf-8") as file:
            pythons = json.load(file)
        with tempfile.TemporaryDirectory() as folder:
            settings = request.installer.environment(folder)
            installer = Installer(store.cache, tell, options.get("--uv", UV), settings)
            say(Program(store, installer, pythons, tell).answer(request, built))
    except BuildRefused as refused:
        say(failed(refused.cause, refused.text))
    except BaseException as error:  # noqa: BLE001 - the server is told whatever it is
        traceback.print_exc()
        say(failed("fault", f"{type(error).__name__}: {error}"))
        os._exit(70)


def end_with_stdin_in_background() -> None:
    """As :func:`end_with_stdin`, from now on."""
    threading.Thread(target=end_with_stdin, daemon=True).start()


def read_line(most: int = MAX_REQUEST_BYTES) -> bytes:
    """The next line of stdin, of at most so many bytes; what follows it stays unread.

    Raises ``ValueError`` when there is none.
    """
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = sys.stdin.buffer.readline(65536)
        data += piece
        if not piece or len(data) > most:
            raise ValueError("no request")
    return bytes(data)
