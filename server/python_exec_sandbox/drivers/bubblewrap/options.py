"""What a person can choose about the bubblewrap driver."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from python_exec_sandbox.model.limits import SandboxLimits


class Network(StrEnum):
    """What a sandbox can reach."""

    NONE = "none"
    """Its own loopback only."""
    FILTERED = "filtered"
    """Likewise; the runner hands the script's connections to the server."""
    FULL = "full"
    """All that this machine reaches, its loopback included: the network namespace is the machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapOptions:
    """Everything that is fixed for the life of a driver.

    ``uv`` is a path, or the name alone: then it is searched for. ``ca_bundle`` is a file of this machine that scripts shall trust beside nothing else. ``environment``
    adds variables of the allow-list in :mod:`.argv` (``TZ`` for example). ``store`` is where installed packages
    are kept; ``None`` for nowhere.
    """

    limits: SandboxLimits = field(default_factory=SandboxLimits)
    network: Network = Network.FULL
    uv: str = "uv"
    ca_bundle: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    store: Path | None = None
