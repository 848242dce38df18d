"""What the settings say about scripts that run on the machine itself."""

from dataclasses import dataclass, field
from pathlib import Path

from python_exec_sandbox.model.limits import SandboxLimits


@dataclass(frozen=True, slots=True)
class UnsandboxedOptions:
    """``uv_path`` is a path, or a name that is looked for on PATH and then beside this package. ``base`` is
    where the folders of runs are made; ``None`` means the system's place for temporary files."""

    uv_path: str = "uv"
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    base: Path | None = None
    ca_bundle: Path | None = None
