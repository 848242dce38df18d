"""What the driver tells the runner on its command line, and what the sandbox itself says."""

import json
import os
import sys

from .identity import Identity
from .interpreter import Place
from .nest import NestPlan

PASSED_ON = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "TZ")
"""Variables of the container that a script sees too; all others are made here."""

_PATH = "/usr/local/bin:/usr/bin:/bin"

DEFAULT_UID = 58000
"""The first of the uids that the image names; the driver gives each sandbox one of its own."""

DEFAULT_GID = 1000

_DEFAULTS = {
    "--python": "",
    "--pythons": "/opt/sandbox/pythons.json",
    "--uv": "/usr/local/bin/uv",
    "--uid": str(DEFAULT_UID),
    "--gid": str(DEFAULT_GID),
    "--work": "/work",
    "--home": "/home/sandbox",
    "--packages": "/env",
    "--outward": "",  # "yes": the script's connections to the outside go through the server
    "--open-files": "0",  # as many as the runner itself may open
    "--nest": "",  # bwrap, where the script gets a sandbox of its own inside this one
    "--nest-arguments": "/opt/sandbox/nest.args",
    "--nest-seccomp": "",
    "--nest-processes": "0",
    "--nest-address-bytes": "0",
}
"""Every option, with what holds without it. Read by hand: argparse takes longer than all of this."""


class Options:
    """Where everything lies and which Python waits."""

    def __init__(self, argv: list[str]) -> None:
        """Raises ``ValueError`` for what isn't in :data:`_DEFAULTS`, or without a Python."""
        given = _read(argv)
        with open(given["--pythons"], encoding="utf-8") as file:
            pythons: dict[str, str] = json.load(file)
        nest = _nest(given) if given["--nest"] else None
        work, home, packages = given["--work"], given["--home"], given["--packages"]
        self.python = given["--python"]
        self.pythons = list(pythons)
        # An inner sandbox is the wall between two parties of one user.
        self.identity = Identity(None, None) if nest else Identity(int(given["--uid"]), int(given["--gid"]))
        self.place = Place(
            uv=given["--uv"],
            work=work,
            packages=packages,
            environment=_environment(home, packages, os.path.dirname(given["--uv"])),
            interpreters=pythons if nest else {},
            nest=nest,
        )
        self.writable = (work, "/tmp", "/dev/shm", home, packages)
        self.outward = given["--outward"] == "yes"
        self.open_files = int(given["--open-files"])

    def limit(self) -> None:
        """Set the resource limits that this process and all it starts shall have."""
        if self.open_files:
            import resource  # noqa: PLC0415 - an engine sets its containers' limits

            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            count = self.open_files if most == resource.RLIM_INFINITY else min(self.open_files, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(argv: list[str]) -> dict[str, str]:
    given = dict(zip(argv[::2], argv[1::2], strict=True))
    if unknown := given.keys() - _DEFAULTS.keys():
        raise ValueError(f"unknown options: {', '.join(sorted(unknown))}")
    if "--python" not in given:
        raise ValueError("which --python?")
    return _DEFAULTS | given


def _nest(given: dict[str, str]) -> NestPlan:
    return NestPlan(
        bwrap=given["--nest"],
        arguments=given["--nest-arguments"],
        seccomp=given["--nest-seccomp"],
        first=(sys.executable, "-I", "-S", sys.argv[0], "first"),
        processes=int(given["--nest-processes"]),
        address_bytes=int(given["--nest-address-bytes"]),
    )


def _environment(home: str, packages: str, tools: str) -> dict[str, str]:
    """All that a script finds in ``os.environ``, before what uv adds."""
    return {
        "HOME": home,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "PATH": _PATH if tools in _PATH.split(":") else f"{tools}:{_PATH}",
        "LANG": "C.UTF-8",
        # A script that is killed (memory, time) must not lose what it printed.
        "PYTHONUNBUFFERED": "1",
        "UV_CACHE_DIR": os.path.join(packages, "cache"),
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PYTHON_INSTALL_DIR": "/opt/python",
    } | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
