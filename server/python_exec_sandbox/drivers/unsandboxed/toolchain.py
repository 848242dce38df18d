"""What the machine has: uv, its cache, and the Pythons that uv finds."""

import importlib.util
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from python_exec_sandbox.drivers.unsandboxed.environment import config_candidates
from python_exec_sandbox.errors import ConfigurationError, CreateFailed

logger = logging.getLogger(__name__)

DEFAULT_UV = "uv"

# Asking each Python once takes some hundred milliseconds, on a loaded machine seconds; then it is cached.
UV_SECONDS = 20.0

_OLDEST = (3, 8)
"""uv runs no older one."""

_WHERE = "import sys; print(sys.executable)"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """``pythons`` maps a minor version to its interpreter, oldest first; ``config`` is the person's uv.toml."""

    uv: str
    cache: str
    pythons: Mapping[str, str]
    config: str | None = None


def find_toolchain(uv_path: str) -> Toolchain:
    """Look for everything; blocks for up to some seconds.

    Raises:
        ConfigurationError: there is no uv at ``uv_path``.
        CreateFailed: uv doesn't do what it should.
    """
    uv = find_uv(uv_path)
    cache = _run([uv, "cache", "dir"]).strip()
    listed = _run(
        [uv, "python", "list", "--only-installed", "--no-python-downloads", "--output-format", "json"]
    )
    config = next((str(path) for path in config_candidates(os.environ) if path.is_file()), None)
    return Toolchain(uv, cache, _usable(listed), config)


def find_uv(uv_path: str) -> str:
    """The absolute path of uv: ``uv_path`` itself, what PATH has of that name, else what was installed with
    this package.

    Raises:
        ConfigurationError: none of these; says where it looked.
    """
    if os.sep in uv_path:
        if os.access(uv_path, os.X_OK) and Path(uv_path).is_file():
            return str(Path(uv_path).resolve())
        raise ConfigurationError(f"--uv-path {uv_path} is not an executable file")
    if found := shutil.which(uv_path):
        return str(Path(found).absolute())
    if uv_path == DEFAULT_UV and importlib.util.find_spec("uv") is not None:
        import uv  # noqa: PLC0415 - only the fallback needs it

        try:
            return str(uv.find_uv_bin())
        except FileNotFoundError as error:
            raise ConfigurationError(f"no uv on PATH, nor where its package has it ({error})") from error
    raise ConfigurationError(
        f"no program {uv_path} on PATH; name uv with --uv-path /path/to/uv, or install it"
    )


def parse_pythons(listed: str) -> dict[str, list[str]]:
    """Minor version -> paths, from uv's JSON; the newest patch first, ordinary CPython builds only.

    Raises:
        CreateFailed: it is no such JSON.
    """
    try:
        entries = json.loads(listed)
        found = [
            (
                (int(entry["version_parts"]["major"]), int(entry["version_parts"]["minor"])),
                int(entry["version_parts"]["patch"]),
                str(entry["path"]),
            )
            for entry in entries
            if entry["path"] and entry["implementation"] == "cpython" and entry["variant"] == "default"
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise CreateFailed(
            f"uv's list of Pythons could not be read ({error!r}); is it a recent uv?"
        ) from error
    found = sorted((one for one in found if one[0] >= _OLDEST), key=lambda one: (one[0], -one[1]))
    pythons: dict[str, list[str]] = {}
    for (major, minor), _, path in found:
        pythons.setdefault(f"{major}.{minor}", []).append(path)
    return pythons


def _usable(listed: str) -> dict[str, str]:
    """The first of each version that says where it lies; behind a shim that is another place."""
    return {
        version: place
        for version, paths in parse_pythons(listed).items()
        if (place := next(filter(None, map(_place, paths)), None)) is not None
    }


def _place(path: str) -> str | None:
    try:
        return _run([path, "-I", "-S", "-c", _WHERE]).strip() or None
    except CreateFailed as error:
        logger.debug("a Python that doesn't run: %s", error)
        return None


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=UV_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CreateFailed(f"{command[0]} could not be asked: {error}") from error
    if done.returncode != 0:
        raise CreateFailed(
            f"{' '.join(command[:3])} ended with {done.returncode}: {done.stderr.strip()[-300:] or 'no word'}"
        )
    return done.stdout
