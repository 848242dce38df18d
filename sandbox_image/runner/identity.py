"""Two parties in one sandbox: the runner, and the user that scripts run as.

In a container the runner is uid 0 with no capability but SETUID, SETGID and KILL, the script another uid
with none. So a script can neither signal, trace nor limit its runner, and the runner still can end it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager


class Identity:
    """The user of the script; ``None`` when the wall between the parties is made by other means."""

    def __init__(self, uid: int | None, gid: int | None) -> None:
        self.uid = uid
        self.gid = gid

    @contextmanager
    def assumed(self) -> Iterator[None]:
        """Make files and pipes as the script's user.

        The real and saved ids stay the runner's, so the script's processes can't signal it meanwhile.
        """
        if self.uid is None or self.gid is None:
            yield
            return
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(os.getuid())
            os.setegid(os.getgid())

    def become(self) -> None:
        """Give up the runner's identity for good; called in the child before it executes anything."""
        if self.uid is None or self.gid is None:
            return
        os.setgroups([self.gid])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
