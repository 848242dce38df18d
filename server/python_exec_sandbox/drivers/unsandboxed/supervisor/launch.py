"""Becomes the script: started by ``uv run`` with the interpreter and the packages the script asked for.

It tells the supervisor its process id, waits to be let go, limits itself and executes the same interpreter
with the script. So nothing of it is left in the script's process, the script's limits don't hold for uv, and
what uv says while it installs is not in the script's stderr. Runs under any Python that a script can have.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys


def main() -> None:
    """Never returns."""
    told = json.loads(sys.argv[1])
    for name, value in told["rlimits"].items():
        limit(getattr(resource, "RLIMIT_" + name, None), value)
    os.write(told["report_fd"], b"%d\n" % os.getpid())
    if not os.read(told["go_fd"], 1):
        os._exit(125)  # the supervisor is gone
    os.dup2(told["stderr_fd"], 2)
    os.closerange(3, 64)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and that would be handed down
        signal.signal(number, signal.SIG_DFL)
    environment = {name: value for name, value in os.environ.items() if name not in told["uv_only"]}
    os.execve(sys.executable, [sys.executable, *sys.argv[2:]], environment)


def limit(number: int | None, value: int) -> None:
    """Lower one limit for good; nothing where the system lacks it or has a lower one."""
    if number is None:
        return
    hard = resource.getrlimit(number)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(number, (most, most))
    except (ValueError, OSError) as error:  # macOS refuses some that it names
        sys.stderr.write(f"the limit {number} could not be set: {error}\n")


if __name__ == "__main__":
    main()
