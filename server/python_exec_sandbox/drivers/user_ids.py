"""A user of its own for each sandbox of a server."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from python_exec_sandbox.errors import CreateFailed


class UserIds:
    """Hands out ids for the sandboxes of one server, ``count`` of them from ``first`` on, none twice at a time.

    It begins at a random one and counts on, so that two servers hardly ever meet, and one that was given
    back is taken again as late as possible.
    """

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count
        self._next = secrets.randbelow(count)
        self._taken: set[int] = set()

    @property
    def taken(self) -> frozenset[int]:
        return frozenset(self._taken)

    def take(self) -> int:
        """An id that no other sandbox of this server has.

        Raises:
            CreateFailed: all are taken.
        """
        for step in range(self._count):
            uid = self._first + (self._next + step) % self._count
            if uid not in self._taken:
                self._next = uid - self._first + 1
                self._taken.add(uid)
                return uid
        raise CreateFailed(
            f"All {self._count} user ids for sandboxes are in use: lower --max-sandboxes, or restart the server."
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
