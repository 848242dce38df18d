"""What tests of scripts outside a sandbox need of this machine."""

import os
import sys
from pathlib import Path


def on_path() -> str:
    """PATH with the interpreter that runs the tests, and with uv as this project installs it."""
    interpreter = Path(getattr(sys, "_base_executable", sys.executable)).parent
    return os.pathsep.join([str(Path(sys.executable).parent), str(interpreter), os.environ.get("PATH", "")])


def is_running(pid: int) -> bool:
    """Whether ``pid`` still executes anything; a zombie that nobody asked for doesn't."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}
