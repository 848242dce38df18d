"""What tests of the bubblewrap driver need of the machine: an ordinary user, and Pythons that it can read."""

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.host import look
from python_exec_sandbox.drivers.bubblewrap.pythons import HostPython
from python_exec_sandbox.errors import CreateFailed

ORDINARY = "ORDINARY_USER_OF_THE_TESTS"
"""Set in the environment of what :func:`as_ordinary_user` runs."""

_UID = 61_000
"""Nobody's."""

_SECONDS = 500
_ROOT = Path(__file__).parents[2]


@functools.cache
def why_no_bubblewrap() -> str | None:
    """Why this machine has no bubblewrap sandboxes; ``None`` when it has."""
    if sys.platform != "linux":
        return "bubblewrap needs Linux"
    try:
        look(dict(os.environ), Path.home())
    except CreateFailed as error:
        return str(error)
    return None


def missing_versions(pythons: Sequence[str]) -> dict[str, str]:
    """Behaviours that ask for a version that this machine doesn't have."""
    return {
        f"Python {version} runs when it is asked for": f"this machine has no Python {version}"
        for version in ("3.13", "3.14", "3.15")
        if version not in pythons
    }


def ordinary_pythons(folder: Path) -> Path:
    """Copies of root's Pythons, laid out as uv does it, for a user who can't enter root's folders."""
    for python in look(dict(os.environ), Path.home()).pythons:
        if python.prefix is not None and python.numbers >= (3, 11):
            copy_python(python, python.prefix, folder / f"cpython-{python.version}.99-linux-copy")
    return folder


def any_python() -> tuple[HostPython, Path]:
    """A Python that a copy can be made of, and its prefix."""
    for python in look(dict(os.environ), Path.home()).pythons:
        if python.prefix is not None and python.numbers >= (3, 11):
            return python, python.prefix
    version = "{}.{}".format(*sys.version_info)
    return HostPython(version, os.path.realpath(sys.executable)), Path(sys.base_prefix)


def copy_python(python: HostPython, prefix: Path, target: Path) -> None:
    """Copy what ``python`` needs of ``prefix`` into the folder ``target``."""
    unwanted = shutil.ignore_patterns(
        "test", "tests", "site-packages", "*.a", "__pycache__", "config-3*", "idlelib"
    )
    for name in ("bin", "lib"):
        shutil.copytree(prefix / name, target / name, symlinks=True, ignore=unwanted, dirs_exist_ok=True)
    # Of a shared build the library's folder is named in the program; there it must be found beside it.
    program = target / "bin" / f"python{python.version}"
    named = f"{prefix}/lib".encode()
    content = program.read_bytes()
    program.write_bytes(content.replace(named + b"\0", b"$ORIGIN/../lib".ljust(len(named), b"\0") + b"\0"))


def as_ordinary_user(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with the arguments ``command`` as a user without rights and without an engine."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # Not below pytest's folder: each session of root's closes that to all others.
    with tempfile.TemporaryDirectory(prefix="ordinary-user-") as name:
        return _run_in(Path(name), command, environment)


def _run_in(
    folder: Path, command: Sequence[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    folder.chmod(0o755)
    pythons = ordinary_pythons(folder / "pythons")
    own = "{}.{}".format(*sys.version_info)
    interpreter = next(iter(pythons.glob(f"*/bin/python{own}")), Path(sys.executable).resolve())
    home = folder / "home"
    home.mkdir()
    os.chown(home, _UID, _UID)
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "server"), sysconfig.get_path("purelib")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "UV_PYTHON_INSTALL_DIR": str(pythons),
        "DOCKER_HOST": f"unix://{home}/no-engine.sock",
        ORDINARY: "1",
    }
    identity = ["setpriv", "--reuid", str(_UID), "--regid", str(_UID), "--clear-groups", "--"]
    return subprocess.run(
        [*identity, interpreter, *command],
        env=variables | environment,
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
