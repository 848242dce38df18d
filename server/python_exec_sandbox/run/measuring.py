"""What holds inside a sandbox, measured there."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from python_exec_sandbox.errors import CreateFailed
from python_exec_sandbox.model.result import Verdict
from python_exec_sandbox.run.own_programs import MEASURE, OwnProgram, RunsScripts, run_own
from python_exec_sandbox.run.records import RunListener

MEASURE_SECONDS = 30.0
"""It takes half a second; the rest is for a machine that makes sandboxes beside it."""

Text = Annotated[str, StringConstraints(max_length=500)]


class Folder(BaseModel):
    """A file system on which a script may write."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: Text
    kind: Text
    bytes: int


class Measured(BaseModel):
    """What our program found inside a sandbox; ``None`` where the system didn't tell.

    Sizes are bytes. ``capabilities`` are all that any set of the process has, the bounding set among them,
    ``effective_capabilities`` those it can use, both in hexadecimal. ``seccomp`` is the kernel's mode (2: a filter).
    ``file_bytes`` and ``process_data_bytes`` are what one file and the data of one process may take. ``unsandboxed``
    says why it was measured on the machine itself, and is empty for a sandbox.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    python: Text
    system: Text
    uv: Text | None = None
    uv_path: Text | None = None
    pythons: tuple[Text, ...] = Field((), max_length=100)
    uid: int
    gid: int
    capabilities: Text | None = None
    effective_capabilities: Text | None = None
    no_new_privileges: int | None = None
    seccomp: int | None = None
    processes_seen: int | None = None
    devices: tuple[Text, ...] | None = None
    variables: tuple[Text, ...] = ()
    root_is_read_only: bool | None = None
    folders: tuple[Folder, ...] = ()
    control_groups: int | None = None
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    processes: int | None = None
    cpus: float | None = None
    open_files: int | None = None
    core_bytes: int | None = None
    file_bytes: int | None = None
    process_data_bytes: int | None = None
    unsandboxed: str = ""


async def measure(executor: RunsScripts, listener: RunListener, *, longest: float) -> Measured:
    """What a script finds in a sandbox of the default Python, within ``longest`` seconds of run time.

    Raises:
        SandboxError: no sandbox could be had, or what ran in it gave no answer.
    """
    program = OwnProgram(MEASURE, "measuring a sandbox", min(MEASURE_SECONDS, longest))
    result, answer = await run_own(executor, program, listener)
    if result.verdict is not Verdict.OK:
        raise CreateFailed(
            f"A sandbox was made, but measuring it failed: {result.headline}. {result.sentence} "
            f"{result.stderr.tail[-300:].decode(errors='replace')}".rstrip()
        )
    try:
        measured = Measured.model_validate_json(answer)
    except ValidationError as error:
        raise CreateFailed(f"A sandbox was measured, but its answer can't be read: {error}") from error
    return measured.model_copy(update={"unsandboxed": result.unsandboxed})
