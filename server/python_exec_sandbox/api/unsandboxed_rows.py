"""What a script finds that runs on the machine itself, as rows. Pure."""

from collections.abc import Iterator

from python_exec_sandbox.api.row import Row, State, limit_row
from python_exec_sandbox.drivers.unsandboxed.differences import known_differences
from python_exec_sandbox.drivers.unsandboxed.rlimits import rlimits
from python_exec_sandbox.run.measuring import Measured
from python_exec_sandbox.settings import Settings


def unsandboxed_rows(settings: Settings, measured: Measured) -> Iterator[Row]:
    """The limits that the kernel keeps for a process, and all that doesn't hold."""
    asked = rlimits(settings.sandbox_limits())
    yield Row("user", f"uid {measured.uid}, gid {measured.gid}, with all rights of that user", State.WARNING)
    kept_by = "the kernel's limits of a process"
    yield limit_row("data of a process", measured.process_data_bytes, asked["DATA"], kept_by)
    yield limit_row("size of a file", measured.file_bytes, asked["FSIZE"], kept_by)
    yield limit_row("open files", measured.open_files, asked["NOFILE"], kept_by)
    yield limit_row("core dumps", measured.core_bytes, asked["CORE"], kept_by)
    yield Row("environment variables", ", ".join(measured.variables) or "none")
    for difference in known_differences():
        yield Row("does not hold", difference, State.WARNING)
