"""Gets a Python that this machine doesn't have, the way a person would: with their own uv and its settings."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import anyio

from python_exec_sandbox.errors import PythonUnavailable

# Thirty megabytes. A first call waits for it, and has to be answered before its client gives up.
FETCH_SECONDS = 20.0

_QUOTE_CHARS = 300


async def fetch_python(uv: Path, version: str, environment: Mapping[str, str]) -> None:
    """Have ``uv`` install ``version`` beside its others; when cancelled, nothing goes on.

    Raises:
        PythonUnavailable: it could not, or not within ``FETCH_SECONDS``; the text says why.
    """
    # Nothing goes into the person's ~/.local/bin: their shell's Pythons stay what they are.
    command = [str(uv), "python", "install", "--no-bin", "--no-progress", version]
    said = b""
    with anyio.move_on_after(FETCH_SECONDS) as scope:
        try:
            done = await anyio.run_process(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                check=False,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise PythonUnavailable(f"uv could not be started to fetch Python {version}: {error}") from error
        if done.returncode == 0:
            return
        said = done.stdout
    if scope.cancelled_caught:
        raise PythonUnavailable(f"Python {version} was not fetched within {FETCH_SECONDS:g} s")
    # Of a chain of causes the last one is what a person can mend.
    words = " ".join(said.decode("utf-8", "replace").split()).rpartition("cause: ")[2]
    raise PythonUnavailable(f"Python {version} could not be fetched: {words[-_QUOTE_CHARS:].rstrip('.')}")
