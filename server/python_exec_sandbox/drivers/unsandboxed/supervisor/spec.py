"""What the driver tells a supervisor on its command line. No secret: anyone can read a command line."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class SupervisorSpec:
    """``pythons`` maps a minor version to its interpreter; ``rlimits`` the name of a resource limit, without
    ``RLIMIT_``, to its value; ``uv_only`` names the variables that are uv's and not the script's.
    ``cpus`` scales the limit of processor time, ``processes`` is how many the run may add to the user's own.
    """

    uv: str
    folder: str
    pythons: Mapping[str, str]
    rlimits: Mapping[str, int]
    uv_only: tuple[str, ...]
    cpus: float
    processes: int
    control_fd: int
    lock_fd: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        values["uv_only"] = tuple(values["uv_only"])
        return cls(**values)
