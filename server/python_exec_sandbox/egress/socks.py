"""SOCKS 5 (RFC 1928) for a script: CONNECT alone, no authentication; names are resolved by the server."""

import socket
from typing import TYPE_CHECKING

from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.egress.dial import DialFailed, Refused
from python_exec_sandbox.egress.reading import Broken, Incoming

if TYPE_CHECKING:
    from python_exec_sandbox.egress.tunnel import Tunnel

_VERSION = 5
_NO_AUTHENTICATION, _NO_METHOD = 0, 0xFF
_CONNECT = 1
_IPV4 = 1

_GRANTED = 0
_NOT_ALLOWED = 2
_UNREACHABLE = 4
_EXPIRED = 6
_NO_SUCH_COMMAND = 7
_NO_SUCH_FORM = 8


async def serve(connection: Connection, incoming: Incoming, tunnel: "Tunnel") -> None:
    """One connection, its first byte unread.

    Raises:
        Broken: the script doesn't speak SOCKS 5.
    """
    from python_exec_sandbox.egress.tunnel import relay  # noqa: PLC0415 - each needs the other

    _, count = await incoming.exactly(2)
    if _NO_AUTHENTICATION not in await incoming.exactly(count):
        await connection.send(bytes((_VERSION, _NO_METHOD)))
        await connection.send_end()
        await incoming.drain()
        return
    await connection.send(bytes((_VERSION, _NO_AUTHENTICATION)))
    version, command, _, form = await incoming.exactly(4)
    if version != _VERSION:
        raise Broken("another version in the middle")
    host = await _host(incoming, form)
    port = int.from_bytes(await incoming.exactly(2), "big")
    if host is None or command != _CONNECT:
        await _refuse(connection, incoming, _NO_SUCH_FORM if host is None else _NO_SUCH_COMMAND)
        return
    try:
        remote = await tunnel.reach(host, port)
    except Refused:
        await _refuse(connection, incoming, _NOT_ALLOWED)
        return
    except DialFailed as failure:
        await _refuse(connection, incoming, _EXPIRED if failure.timed_out else _UNREACHABLE)
        return
    try:
        await connection.send(_reply(_GRANTED))
        await relay(connection, incoming, remote)
    finally:
        await remote.close()


async def _host(incoming: Incoming, form: int) -> str | None:
    match form:
        case 1:
            return socket.inet_ntop(socket.AF_INET, await incoming.exactly(4))
        case 3:
            (length,) = await incoming.exactly(1)
            return (await incoming.exactly(length)).decode("utf-8", "replace")
        case 4:
            return socket.inet_ntop(socket.AF_INET6, await incoming.exactly(16))
        case _:
            return None


async def _refuse(connection: Connection, incoming: Incoming, code: int) -> None:
    await connection.send(_reply(code))
    await connection.send_end()
    await incoming.drain()


def _reply(code: int) -> bytes:
    """No address of ours is told: 0.0.0.0, port 0."""
    return bytes((_VERSION, code, 0, _IPV4)) + bytes(6)
