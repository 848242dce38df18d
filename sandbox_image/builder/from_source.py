"""The build sandbox: turns source distributions into wheels, in a container where there is nothing to take or change.

Code of packages runs here, as the same user as this program: what comes out is whatever that code wants, and is
taken apart with suspicion by the builder (``built.py``). There is no store here, no script and no credential;
the container ends with the answer. The answer is one line of JSON, see :mod:`.built`.
"""

import base64
import json
import os
import re
import sys
import tomllib
import urllib.request
from urllib.parse import unquote, urlsplit

from .installer import UV, Installer, InstallerFailed, InstallerKilled
from .program import Request, end_with_stdin_in_background, read_line

PLACE = "/env"
"""A folder in memory, for this container alone."""

DOWNLOAD_SECONDS = 60.0
"""Without a byte for so long, a download counts as failed."""


def main(argv: list[str]) -> None:
    """Answer the request on stdin. ``argv``: ``--uv PATH``."""
    os.umask(0o022)
    options = dict(zip(argv[::2], argv[1::2], strict=True))
    request = Request.parse(read_line())
    end_with_stdin_in_background()
    with open("/opt/sandbox/pythons.json", encoding="utf-8") as file:
        python = json.load(file)[request.python]
    installer = Installer(
        os.path.join(PLACE, "cache"),
        _unheard,
        options.get("--uv", UV),
        settings=request.installer.environment(PLACE),
    )
    os.environ.update(installer.variables())  # our own downloads go the same way
    try:
        answer = build(installer, python, request.requirements, PLACE)
    except InstallerFailed as error:
        answer = {"failed": "installer", "text": str(error)}
    except (InstallerKilled, MemoryError):
        answer = {"failed": "memory", "text": ""}
    except OSError as error:
        answer = {"failed": "installer", "text": f"error: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _unheard(words: str) -> None:
    """Nobody is told how it goes: they could not tell it from what a package says."""


def build(installer: Installer, python: str, requirements: list[str], place: str) -> dict[str, object]:
    """Exact versions of what has wheels in the index, and the wheels of all else."""
    pins: list[object] = []
    wheels: list[object] = []
    for number, package in enumerate(tomllib.loads(installer.lock(python, requirements, place))["packages"]):
        if package.get("wheels"):
            hashes = [f"sha256:{wheel['hashes']['sha256']}" for wheel in package["wheels"]]
            pins.append([package["name"], package["version"], hashes])
            continue
        folder = os.path.join(place, f"built-{number}")
        os.mkdir(folder)
        fetched = _fetch(package.get("sdist") or package.get("archive") or {}, package["name"], folder)
        if not fetched.endswith(".whl"):
            fetched = installer.build(python, fetched, os.path.join(folder, "out"))
        with open(fetched, "rb") as file:
            wheels.append([os.path.basename(fetched), base64.b64encode(file.read()).decode()])
    return {"pins": pins, "wheels": wheels}


def _fetch(named: dict[str, str], package: str, folder: str) -> str:
    """The path of the file that a lock names."""
    address = named.get("url", "")
    name = re.sub(r"[^\w.+-]", "_", unquote(os.path.basename(urlsplit(address).path)))
    if urlsplit(address).scheme not in {"http", "https"} or not name.strip("."):
        raise InstallerFailed(f"error: {package} has no source that can be fetched")
    path = os.path.join(folder, name)
    try:
        with urllib.request.urlopen(address, timeout=DOWNLOAD_SECONDS) as source, open(path, "wb") as file:  # noqa: S310  # its scheme was looked at
            while data := source.read(1 << 20):
                file.write(data)
    except OSError as error:
        raise InstallerFailed(f"error: Failed to fetch {package}: {error}") from error
    return path
