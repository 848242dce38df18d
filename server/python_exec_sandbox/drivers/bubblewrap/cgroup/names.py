"""Names of groups: they say which server made them, so that a later one can tell whether it is dead."""

import re
from urllib.parse import quote, unquote

from python_exec_sandbox.drivers.identity import ServerIdentity

BASE = "python-exec-sandbox"
"""The folder in which the groups of all servers lie, and the start of the name of a server's own scope."""

HOLDER = "holder"
"""The group of a server's own process where groups that are divided may hold none themselves (version 2)."""

_NAME = re.compile(r"sandbox_(\d{1,12})_([^_]+)_([^_]+)_(\d+)", re.ASCII)


def group_name(server: ServerIdentity, serial: int) -> str:
    """One folder's name for the ``serial``-th sandbox of ``server``."""
    start_time, boot_id = _encoded(server.start_time), _encoded(server.boot_id)
    return f"sandbox_{server.pid}_{start_time}_{boot_id}_{serial}"


def maker_of(name: str) -> ServerIdentity | None:
    """The server that made a group of this name; ``None`` if it isn't one of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return ServerIdentity(pid=int(match[1]), start_time=unquote(match[2]), boot_id=unquote(match[3]))


def scope_name(server: ServerIdentity) -> str:
    """The unit that the user's systemd makes for ``server``."""
    return f"{BASE}-{server.pid}-{server.start_time}.scope"


def is_scope(name: str) -> bool:
    return name.startswith(f"{BASE}-") and name.endswith(".scope")


def _encoded(text: str) -> str:
    return quote(text, safe="").replace("_", "%5F")
