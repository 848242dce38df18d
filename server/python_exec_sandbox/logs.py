"""Log lines: on stderr only, because stdout carries the protocol."""

import logging
import sys

from python_exec_sandbox.api.inapplicable import inapplicable
from python_exec_sandbox.setting_values import LogLevel
from python_exec_sandbox.settings import Settings, untrusted_bundle

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


def tell_ineffective(settings: Settings) -> None:
    """Name the settings that were given and change nothing, each with the reason."""
    for name, reason in inapplicable(settings).items():
        is_given = name in settings.model_fields_set
        if is_given and getattr(settings, name) != Settings.model_fields[name].default:
            logger.warning("--%s has no effect: %s", name.replace("_", "-"), reason)
    if missing := untrusted_bundle():
        logger.warning(
            "SSL_CERT_FILE names %s, which is no file: installs and builds trust no own certificates", missing
        )
    if settings.is_unsandboxed:
        logger.warning("--sandbox-backend none: scripts are NOT sandboxed; they have all rights of this user")
