"""Fetching a Python: with the person's own uv, and with the cause when that fails."""

from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap import fetching
from python_exec_sandbox.drivers.bubblewrap.fetching import fetch_python
from python_exec_sandbox.errors import PythonUnavailable

pytestmark = pytest.mark.anyio


def played(folder: Path, code: str) -> Path:
    uv = folder / "uv"
    uv.write_text(f"#!/bin/sh\n{code}\n", encoding="utf-8")
    uv.chmod(0o755)
    return uv


async def test_uv_is_asked_with_the_persons_own_variables_and_puts_nothing_on_their_path(
    tmp_path: Path,
) -> None:
    uv = played(tmp_path, f'echo "$@" "$MIRROR" > {tmp_path}/asked')
    await fetch_python(uv, "3.13", {"MIRROR": "mine"})
    assert (tmp_path / "asked").read_text(
        encoding="utf-8"
    ) == "python install --no-bin --no-progress 3.13 mine\n"


async def test_the_last_cause_is_told(tmp_path: Path) -> None:
    uv = played(tmp_path, "echo 'error: no\n  cause: a request\n  cause: dns error.' >&2; exit 2")
    with pytest.raises(PythonUnavailable, match=r"^Python 3.13 could not be fetched: dns error$"):
        await fetch_python(uv, "3.13", {})


async def test_one_that_takes_too_long_is_ended_and_one_that_is_missing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "FETCH_SECONDS", 0.05)
    with pytest.raises(PythonUnavailable, match="not fetched within"):
        await fetch_python(played(tmp_path, "exec sleep 60"), "3.13", {"PATH": "/usr/bin:/bin"})
    with pytest.raises(PythonUnavailable, match="could not be started"):
        await fetch_python(tmp_path / "missing", "3.13", {})
