"""A user of its own for each sandbox, where the server is root.

Started by root, even a sandbox in a user namespace without capabilities can write what belongs to root in
``/proc/sys``; so another user starts it. The kernel also counts things (inotify, pipes, keys) per user.
"""

import secrets

from python_exec_sandbox.errors import CreateFailed

# Nobody's: above those of people and services, below the docker driver's and systemd's ranges.
FIRST_UID = 56_000
UID_COUNT = 1024

# Who owns the store of packages and fills it, where the server is root; no script is ever this one.
BUILDER_UID = FIRST_UID - 1


class UserIds:
    """Hands out the ids of one server, none twice at a time; it starts at a random one, so that two servers
    hardly ever meet."""

    def __init__(self) -> None:
        self._next = secrets.randbelow(UID_COUNT)
        self._taken: set[int] = set()

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
        raise CreateFailed(f"All {UID_COUNT} user ids for sandboxes are in use: lower --max-sandboxes.")

    def give_back(self, uid: int) -> None:
        """To be called once the sandbox is gone; a second time does nothing."""
        self._taken.discard(uid)
