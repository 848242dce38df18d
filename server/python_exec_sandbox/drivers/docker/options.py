"""What a person can choose about the docker driver."""

import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from python_exec_sandbox.model.limits import SandboxLimits

DEFAULT_STORE = "python-exec-sandbox-store"


class Network(StrEnum):
    """What a sandbox can reach."""

    NONE = "none"
    FILTERED = "filtered"
    """Nothing by itself; the runner hands the script's connections to the server."""
    FULL = "full"
    """A bridge of the engine on which containers don't reach each other."""


class PullPolicy(StrEnum):
    """When the image named by ``DockerOptions.image`` is pulled."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


def _new_instance_id() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerOptions:
    """Everything that is fixed for the life of a driver.

    ``image`` unset means: built from the packaged folder, over ``base_image`` if that is given.
    ``docker_host`` is an engine's address such as ``unix:///run/docker.sock``; unset means: searched.
    ``ca_bundle`` is a file of this machine that scripts shall trust beside nothing else.
    ``environment`` adds variables of the allow-list in :mod:`.spec` (``TZ`` for example).
    ``store`` is the volume that environments of packages are kept in, shared by all servers that name it.
    ``instance`` tells the containers of one server from those of another.
    """

    limits: SandboxLimits = field(default_factory=SandboxLimits)
    network: Network = Network.FULL
    image: str | None = None
    pull_policy: PullPolicy = PullPolicy.MISSING
    base_image: str | None = None
    docker_host: str | None = None
    runtime: str | None = None
    ca_bundle: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    runner_arguments: tuple[str, ...] = ()
    store: str = DEFAULT_STORE
    instance: str = field(default_factory=_new_instance_id)
