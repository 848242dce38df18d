"""Settings that change nothing as the others are, and why."""

from python_exec_sandbox.setting_values import Backend, Network
from python_exec_sandbox.settings import Settings

_OF_ENGINES = ("docker_host", "runtime", "image", "base_image", "pull_policy")
"""Settings that only speak to a container engine."""


def inapplicable(settings: Settings) -> dict[str, str]:
    """Why not, by the names of those settings that don't apply; given or left alone."""
    found = {"no_warm_cache": "there is no package cache to warm"}
    if settings.sandbox_backend is Backend.DOCKER:
        found["uv_path"] = "uv is part of the image"
        if settings.image is None:
            found["pull_policy"] = "no --image is given, and the image of this package is built"
        else:
            found["base_image"] = "--image is given, so that none is built"
    else:
        found |= dict.fromkeys(_OF_ENGINES, f"--sandbox-backend {settings.sandbox_backend} uses no engine")
    if settings.network is Network.NONE:
        found["install_timeout"] = "no packages can be installed with --network none"
    if settings.pool_size == 0:
        found["idle_timeout"] = "--pool-size 0 keeps no sandbox warm"
    return found
