"""A user of its own for each sandbox.

The kernel counts inotify instances, pipe pages, message queues, pending signals and keys per user id, across
all containers. Two scripts under one id could take them from each other, and under a person's own id (1000,
mostly) from that person's desktop.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from python_exec_sandbox.errors import CreateFailed

# Nobody's: below the 65,536 ids that a rootless engine has, above those of people and services, below systemd's
# ranges (61184 on). The image names all of them; it and the runner's default must agree with these.
FIRST_UID = 58000
UID_COUNT = 1024

SCRIPT_GID = 1000
"""Nothing is counted per group, so that one does for all."""


class UserIds:
    """Hands out the ids of one server, none of them twice at a time.

    It begins at a random one and counts on, so that two servers hardly ever meet, and one that was given
    back is taken again as late as possible.
    """

    def __init__(self) -> None:
        self._next = secrets.randbelow(UID_COUNT)
        self._taken: set[int] = set()

    @property
    def taken(self) -> frozenset[int]:
        return frozenset(self._taken)

    def take(self) -> int:
        """An id that no other sandbox of this server has.

        Raises:
            CreateFailed: all are taken.
        """
        for step in range(UID_COUNT):
            uid = FIRST_UID + (self._next + step) % UID_COUNT
            if uid not in self._taken:
                self._next = uid - FIRST_UID + 1
                self._taken.add(uid)
                return uid
        raise CreateFailed(
            f"All {UID_COUNT} user ids for sandboxes are in use: lower --max-sandboxes, or restart the server."
        )

    def give_back(self, uid: int) -> None:
        """To be called once the sandbox is gone; a second time does nothing."""
        self._taken.discard(uid)

    @contextmanager
    def lent(self) -> Iterator[int]:
        """:meth:`take`, and :meth:`give_back` if the body fails."""
        uid = self.take()
        try:
            yield uid
        except BaseException:
            self.give_back(uid)
            raise
