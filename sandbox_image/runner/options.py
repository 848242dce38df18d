"""What the driver tells the runner on its command line, and what the sandbox itself says."""

import argparse
import json
import os
from dataclasses import dataclass

from .identity import Identity
from .interpreter import Place

PASSED_ON = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "TZ")
"""Variables of the container that a script sees too; all others are made here."""


DEFAULT_UID = 58000
"""The first of the uids that the image names; the driver gives each sandbox one of its own."""

DEFAULT_GID = 1000


@dataclass(frozen=True)
class Options:
    """Where everything lies and which Python waits."""

    python: str
    pythons: list[str]
    identity: Identity
    place: Place
    writable: tuple[str, ...]

    @classmethod
    def parse(cls, argv: list[str]) -> "Options":
        parser = argparse.ArgumentParser(prog="runner", allow_abbrev=False)
        parser.add_argument("--python", required=True)
        parser.add_argument("--pythons", default="/opt/sandbox/pythons.json")
        parser.add_argument("--uv", default="/usr/local/bin/uv")
        parser.add_argument("--uid", type=int, default=DEFAULT_UID)
        parser.add_argument("--gid", type=int, default=DEFAULT_GID)
        parser.add_argument("--work", default="/work")
        parser.add_argument("--home", default="/home/sandbox")
        parser.add_argument("--packages", default="/env")
        given = parser.parse_args(argv)
        with open(given.pythons, encoding="utf-8") as file:
            pythons = list(json.load(file))
        return cls(
            python=given.python,
            pythons=pythons,
            identity=Identity(given.uid, given.gid),
            place=Place(given.uv, given.work, given.packages, _environment(given.home, given.packages)),
            writable=(given.work, "/tmp", "/dev/shm", given.home, given.packages),
        )


def _environment(home: str, packages: str) -> dict[str, str]:
    """All that a script finds in ``os.environ``, before what uv adds."""
    return {
        "HOME": home,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        # A script that is killed (memory, time) must not lose what it printed.
        "PYTHONUNBUFFERED": "1",
        "UV_CACHE_DIR": os.path.join(packages, "cache"),
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PYTHON_INSTALL_DIR": "/opt/python",
    } | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
