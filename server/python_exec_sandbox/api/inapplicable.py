"""Settings that change nothing as the others are, and why."""

from python_exec_sandbox.setting_values import Backend
from python_exec_sandbox.settings import Settings

_OF_CONTAINERS = (
    *("allow_unsandboxed", "docker_host", "runtime", "image", "base_image", "pull_policy"),
    *("pool_size", "idle_timeout", "settle_time", "store", "store_size", "resolution_ttl", "no_warm_cache"),
    "python_mirror",
)
"""Settings that only speak of sandboxes."""

_OF_IMAGES = ("docker_host", "runtime", "image", "base_image", "pull_policy")
"""Settings that only speak of an engine and its images."""

_OF_INSTALLS = ("index_url", "extra_index_url", "exclude_newer", "source_builds")
"""Settings of a builder; without one, uv reads its own variables and files."""


def inapplicable(settings: Settings) -> dict[str, str]:
    """Why not, by the names of those settings that don't apply; given or left alone."""
    found: dict[str, str] = {}
    if settings.sandbox_backend is Backend.DOCKER and not settings.may_run_unsandboxed:
        found["uv_path"] = "uv is part of the image"
    if settings.is_unsandboxed:
        found |= dict.fromkeys(_OF_CONTAINERS, "--sandbox-backend none makes no containers")
        found |= dict.fromkeys(_OF_INSTALLS, "--sandbox-backend none installs with uv's own settings")
    elif settings.sandbox_backend is Backend.NATIVE:
        found |= dict.fromkeys(_OF_IMAGES, "it only counts where Docker takes bubblewrap's place")
    elif settings.image is None:
        found["pull_policy"] = "no --image is given, and the image of this package is built"
    else:
        found["base_image"] = "--image is given, so that none is built"
    return found
