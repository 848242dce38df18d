"""Log lines: on stderr only, because stdout carries the protocol."""

import logging
import sys

from python_exec_sandbox.setting_values import LogLevel
from python_exec_sandbox.settings import Settings

logger = logging.getLogger(__name__)

# Libraries that tell each request, and at debug level each header: that is nothing about this server.
CHATTY = ("asyncio", "docker", "httpcore", "httpcore2", "httpx", "httpx2", "mcp", "urllib3")


def configure_logging(level: LogLevel) -> None:
    """Send log lines of ``level`` and above to stderr; called before the SDK sets up its own logging."""
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
        force=True,
    )
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.INFO if level is LogLevel.DEBUG else logging.WARNING)


OF_CONTAINERS = (
    *("allow_unsandboxed", "docker_host", "runtime", "image", "base_image", "pull_policy"),
    *("pool_size", "idle_timeout", "settle_time"),
)


def tell_ineffective(settings: Settings) -> None:
    """Name the settings that were given and change nothing, each with the reason."""
    reasons = {"no_warm_cache": "has no effect yet; it is accepted for compatibility"}
    if not settings.may_run_unsandboxed:
        reasons["uv_path"] = "has no effect: the sandbox image has its own uv"
    if settings.is_unsandboxed:
        reasons |= dict.fromkeys(OF_CONTAINERS, "has no effect with --sandbox-backend none")
    for name, reason in reasons.items():
        if name in settings.model_fields_set:
            logger.warning("--%s %s", name.replace("_", "-"), reason)
    if settings.is_unsandboxed:
        logger.warning("--sandbox-backend none: scripts are NOT sandboxed; they have all rights of this user")
