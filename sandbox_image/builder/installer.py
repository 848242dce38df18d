"""uv, as the builder uses it: resolves and installs wheels, and never runs what it installed."""

import errno
import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

UV = "/usr/local/bin/uv"

SAID_BYTES = 64 * 1024
"""How much of what uv says is kept; its last lines name the cause."""

RETRIES = 3
"""uv's own default; they take ten seconds."""

PASSED_ON = ("SSL_CERT_FILE",)

VARIABLES = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES"}
)
"""All that a request may set in uv's environment, in upper or lower case."""

_NO_ROOM = re.compile(r"\(os error (?:28|122)\)|no space left on device", re.IGNORECASE)
"""Linux's numbers for a full disk and a full quota."""

_NEEDS_SOURCE = re.compile(
    r"has no usable wheels|have no usable wheels|building source distributions[^\n]* is disabled"
    r"|hint: wheels are required for",
    re.IGNORECASE,
)
_DOWNLOADING = re.compile(r"\s*Downloading (\S+) \(([\d.]+)\s*([KMG]?i?B)\)")


class InstallerFailed(Exception):
    """uv gave up; the text is what it said."""


class NeedsSource(InstallerFailed):
    """Something has no wheel that fits, and would have to be built from its source."""


class InstallerKilled(Exception):
    """The kernel took uv, or what it started, for memory."""


@dataclass(frozen=True)
class Settings:
    """Where packages come from: the text of a ``uv.toml``, variables, and PEM texts to trust. They may hold
    credentials: uv gets them in files of its user and in its environment, never as arguments."""

    config: str = field(default="", repr=False)
    variables: dict[str, str] = field(default_factory=dict, repr=False)
    certificates: str = field(default="", repr=False)

    @classmethod
    def parse(cls, found: object) -> "Settings":
        """Raises ``ValueError`` when it isn't any."""
        match found:
            case {"config": str(config), "variables": dict(variables), "certificates": str(certificates)} if (
                all(isinstance(value, str) and name.upper() in VARIABLES for name, value in variables.items())
            ):
                return cls(config, dict(variables), certificates)
        raise ValueError("not the settings of an installer")

    def environment(self, folder: str) -> dict[str, str]:
        """The variables that make uv follow them, with files in ``folder``, which is nobody else's."""
        given = dict(self.variables)
        given |= (
            {"UV_CONFIG_FILE": _private(folder, "uv.toml", self.config)}
            if self.config
            else {"UV_NO_CONFIG": "1"}
        )
        if self.certificates:
            given["SSL_CERT_FILE"] = _private(folder, "certificates.pem", self.certificates)
        return given


def _private(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Installer:
    """Runs uv with the cache of the store. ``tell`` gets words for a person who waits; ``settings`` are what
    :meth:`Settings.environment` made."""

    def __init__(
        self,
        cache: str,
        tell: Callable[[str], None],
        uv: str = UV,
        settings: dict[str, str] | None = None,
    ) -> None:
        self._uv = uv
        self._cache = cache
        self._tell = tell
        self._settings = settings or {"UV_NO_CONFIG": "1"}

    def resolve(
        self,
        python: str,
        requirements: list[str],
        scratch: str,
        *,
        offline: bool = False,
        retries: int = RETRIES,
    ) -> str:
        """Uv's lock for ``requirements``: exact versions with their hashes, wheels only. From the cache alone if
        ``offline``; an index that can't be reached is asked so many times more."""
        wanted, lock = os.path.join(scratch, "requirements.in"), os.path.join(scratch, "lock.txt")
        with open(wanted, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in requirements))
        try:
            self._run(
                *("pip", "compile", "--python", python, "--no-build", "--generate-hashes"),
                *("--no-header", "--no-annotate", "--output-file", lock, wanted),
                *(["--offline"] if offline else []),
                UV_HTTP_RETRIES=str(retries),
            )
        except InstallerFailed as error:
            raise NeedsSource(str(error)) if _NEEDS_SOURCE.search(str(error)) else error from None
        with open(lock, encoding="utf-8") as file:
            return file.read()

    def lock(self, python: str, requirements: list[str], scratch: str) -> str:
        """The same in the form of PEP 751, which names sources too. Runs code of packages."""
        wanted, lock = os.path.join(scratch, "requirements.in"), os.path.join(scratch, "pylock.toml")
        with open(wanted, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in requirements))
        self._run(
            *("pip", "compile", "--python", python, "--format", "pylock.toml"),
            *("--no-header", "--no-annotate", "--output-file", lock, wanted),
        )
        with open(lock, encoding="utf-8") as file:
            return file.read()

    def build(self, python: str, source: str, folder: str) -> str:
        """The wheel of the source distribution at ``source``, in ``folder``. Runs code of packages."""
        self._run("build", "--wheel", "--python", python, "--out-dir", folder, source)
        wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
        if len(wheels) != 1:
            raise InstallerFailed(f"error: building {os.path.basename(source)} made no wheel")
        return os.path.join(folder, wheels[0])

    def fetch(self, version: str, folder: str, mirror: str) -> None:
        """A Python of ``version`` into ``folder``, from uv's own source or from ``mirror``: the address of its
        copy, or of a list of downloads (``.json``)."""
        source = "UV_PYTHON_DOWNLOADS_JSON_URL" if mirror.endswith(".json") else "UV_PYTHON_INSTALL_MIRROR"
        variables = {"UV_PYTHON_DOWNLOADS": "manual", "UV_PYTHON_INSTALL_DIR": folder}
        self._tell(f"fetching Python {version}")
        self._run(
            *("python", "install", "--no-bin", "--managed-python", version),
            **variables,
            **({source: mirror} if mirror else {}),
        )

    def make(self, python: str, folder: str) -> None:
        """An environment without packages."""
        self._run("venv", "--no-project", "--python", python, folder)

    def ask(self, python: str, cache: str) -> None:
        """Have uv ask ``python`` about itself and keep the answer in ``cache``. Runs that Python."""
        self._run(
            *("run", "--no-project", "--offline", "--cache-dir", cache),
            *("--python", python, "python", "-c", ""),
        )

    def private(self, cache: str) -> "Installer":
        """The same with a ``cache`` of its own."""
        return Installer(cache, self._tell, self._uv, self._settings)

    def install(self, python: str, lock: str, scratch: str, wheels: str | None = None) -> None:
        """Put what ``lock`` names into the environment of ``python``, by links into the cache; from the folder
        ``wheels``, too."""
        path = os.path.join(scratch, "lock.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(lock)
        self._run(
            *("pip", "install", "--python", python, "--no-build", "--no-deps", "--require-hashes"),
            *("--link-mode", "hardlink", "--requirements", path),
            *(("--find-links", wheels) if wheels else ()),
        )

    def _run(self, *arguments: str, **variables: str) -> None:
        process = subprocess.Popen(
            [self._uv, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self.variables() | variables,
        )
        said = bytearray()
        assert process.stderr is not None
        with process.stderr as stderr:
            while data := os.read(stderr.fileno(), 8192):
                said += data
                del said[:-SAID_BYTES]
                self._pass_on(data.decode("utf-8", "replace"))
        status = process.wait()
        if status == -signal.SIGKILL:
            raise InstallerKilled
        if status:
            text = said.decode("utf-8", "replace")
            if _NO_ROOM.search(text):
                raise OSError(errno.ENOSPC, text)
            raise InstallerFailed(text)

    def _pass_on(self, text: str) -> None:
        for match in _DOWNLOADING.finditer(text):
            self._tell(f"downloading {match[1]} ({match[2]} {match[3]})")

    def variables(self) -> dict[str, str]:
        """All that uv finds in its environment."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "UV_CACHE_DIR": self._cache,
            "UV_PYTHON_DOWNLOADS": "never",
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            **self._settings,
        }
