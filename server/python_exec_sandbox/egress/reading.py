"""What a script sends on a connection, read in the pieces that a protocol wants."""

from python_exec_sandbox.drivers.base import Connection


class Broken(Exception):
    """The script does not speak the protocol, or has stopped in the middle of it."""


class Incoming:
    """Reads ahead at most as much as the connection's credit lets arrive."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._buffer = b""

    async def peek(self) -> bytes:
        """The first byte, left where it is; ``b""`` at the end."""
        if not self._buffer:
            self._buffer = await self._connection.receive()
        return self._buffer[:1]

    async def some(self) -> bytes:
        """Whatever is there next; ``b""`` at the end."""
        if not self._buffer:
            return await self._connection.receive()
        data, self._buffer = self._buffer, b""
        return data

    async def exactly(self, count: int) -> bytes:
        """Raises :class:`Broken` when the end comes before."""
        while len(self._buffer) < count:
            more = await self._connection.receive()
            if not more:
                raise Broken("ended in the middle of a request")
            self._buffer += more
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    async def drain(self) -> None:
        """Throw away all that comes, to the end: who gives up a connection with bytes unread resets it, and what
        was sent last may be lost with it."""
        while await self.some():
            pass

    def put_back(self, data: bytes) -> None:
        """What was read too much."""
        self._buffer = data + self._buffer
