"""What a run gets from the store."""

from dataclasses import dataclass

from python_exec_sandbox.model.environment import Package


@dataclass(frozen=True, slots=True)
class Environment:
    """A whole environment at ``path``.

    ``reused`` tells whether it was there before it was asked for; ``seconds`` is how long the asking took.
    """

    path: str
    packages: tuple[Package, ...]
    reused: bool
    seconds: float
