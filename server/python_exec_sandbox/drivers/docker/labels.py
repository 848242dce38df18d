"""Names of the labels that containers and images of this project carry."""

from collections.abc import Mapping
from datetime import datetime

from python_exec_sandbox.drivers.identity import ServerIdentity
from python_exec_sandbox.stream.protocol import PROTOCOL_VERSION

PREFIX = "python-exec-sandbox."
INSTANCE = PREFIX + "instance"
PID = PREFIX + "pid"
START_TIME = PREFIX + "start-time"
BOOT_ID = PREFIX + "boot-id"
CREATED = PREFIX + "created"
PROTOCOL = PREFIX + "protocol"
SHARED = PREFIX + "shared"
"""On what all servers of an engine use together: the network, the store."""


def container_labels(instance: str, server: ServerIdentity, created: datetime) -> dict[str, str]:
    """The labels of a container made by ``server``."""
    return {
        INSTANCE: instance,
        PID: str(server.pid),
        START_TIME: server.start_time,
        BOOT_ID: server.boot_id,
        CREATED: created.isoformat(timespec="seconds"),
        PROTOCOL: str(PROTOCOL_VERSION),
    }


def owner_of(labels: Mapping[str, str]) -> ServerIdentity | None:
    """The server that made a container with these labels; ``None`` when they don't say."""
    pid = labels.get(PID, "")
    start_time, boot_id = labels.get(START_TIME, ""), labels.get(BOOT_ID, "")
    if not (pid.isascii() and pid.isdigit() and len(pid) < 12 and start_time and boot_id):
        return None
    return ServerIdentity(pid=int(pid), start_time=start_time, boot_id=boot_id)
