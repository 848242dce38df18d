"""HTTP for a script: a proxy for CONNECT and for plain requests with the whole address. Framing is h11's."""

import itertools
from collections.abc import Iterable
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import h11

from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.egress.dial import DialFailed, Refused
from python_exec_sandbox.egress.reading import Broken, Incoming
from python_exec_sandbox.egress.tunnel import Remote, Tunnel, relay, together

_LONGEST_HEAD = 64 * 1024
_LONGEST_REASON = 200

# Between two neighbours only (RFC 9110, 7.6.1); how a body is framed is h11's business on either side.
_BETWEEN_NEIGHBOURS = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"upgrade"}
    | {b"proxy-authenticate", b"proxy-authorization"}
)

# A message means another thing without them, whatever its Connection says.
_NEVER_BETWEEN_NEIGHBOURS = frozenset({b"host", b"content-length", b"transfer-encoding"})

_EVENTS_AT_ONCE = 64
"""So many parts of an answer are read without a turn for anybody else."""

_Headers = Iterable[tuple[bytes, bytes]]
_BodyEvent = h11.Data | h11.EndOfMessage


class _Answered(Exception):
    """The script got an answer of ours; the connection ends."""


async def serve(connection: Connection, incoming: Incoming, tunnel: Tunnel) -> None:
    """One connection, with any number of plain requests or one CONNECT."""
    talk = h11.Connection(h11.SERVER, max_incomplete_event_size=_LONGEST_HEAD)
    try:
        while True:
            request = await _next(talk, incoming)
            if not isinstance(request, h11.Request):
                break
            if request.method == b"CONNECT":
                await _connect(connection, incoming, talk, request, tunnel)
                return
            await _forward(connection, incoming, talk, request, tunnel)
            if talk.our_state is not h11.DONE or talk.their_state is not h11.DONE:
                break
            talk.start_next_cycle()
    except h11.RemoteProtocolError as error:
        await _answer_broken(connection, talk, error)
    except h11.LocalProtocolError as error:
        raise Broken(str(error)) from error
    except _Answered:
        pass
    await connection.send_end()
    await incoming.drain()


async def _connect(
    connection: Connection, incoming: Incoming, talk: h11.Connection, request: h11.Request, tunnel: Tunnel
) -> None:
    host, port = _authority(request.target.decode("ascii", "replace"))
    try:
        remote = await _reach(connection, talk, request, tunnel, host, port)
    except _Answered:
        await connection.send_end()
        await incoming.drain()
        return
    try:
        await _next(talk, incoming)  # the end of the request; from here on it is no HTTP of ours
        incoming.put_back(talk.trailing_data[0])
        await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await relay(connection, incoming, remote)
    finally:
        await remote.close()


async def _forward(
    connection: Connection, incoming: Incoming, talk: h11.Connection, request: h11.Request, tunnel: Tunnel
) -> None:
    try:
        parts = urlsplit(request.target.decode("ascii", "replace"))
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "http" or not parts.netloc:
        text = "This is a proxy: ask it for http://host/path, or CONNECT host:port"
        await _answer(connection, talk, request, 400, "Bad request", "request", text)
    host, port = _authority(parts.netloc, 80)
    remote = await _reach(connection, talk, request, tunnel, host, port)
    far = h11.Connection(h11.CLIENT)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # The host is the one that was checked, whatever the script calls it beside.
        headers = [(b"Host", parts.netloc.encode()), *_passed_on(request.headers, b"host")]
        headers.append((b"Connection", b"close"))
        await _send_far(remote, far, h11.Request(method=request.method, target=target, headers=headers))
        await together(
            lambda: _carry_body(incoming, talk, remote, far),
            lambda: _carry_answer(connection, talk, remote, far),
        )
    except h11.RemoteProtocolError as error:
        if talk.our_state is not h11.SEND_RESPONSE:
            raise Broken("the answer broke off") from error
        await _answer(
            connection, talk, request, 502, "Bad gateway", "answer", f"{host} does not speak HTTP: {error}"
        )
    finally:
        await remote.close()


async def _carry_body(incoming: Incoming, talk: h11.Connection, remote: Remote, far: h11.Connection) -> None:
    """What follows the request's head, to its end, or until the other side has had enough."""
    while True:
        try:
            event = await _next(talk, incoming)
        except h11.RemoteProtocolError as error:
            raise Broken(str(error)) from error
        if not isinstance(event, _BodyEvent):
            return
        try:
            await _send_far(remote, far, event)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it may well have answered
        if isinstance(event, h11.EndOfMessage):
            return


async def _carry_answer(
    connection: Connection, talk: h11.Connection, remote: Remote, far: h11.Connection
) -> None:
    """All that one read brings goes on in one piece: an answer may come in chunks of a byte."""
    ready = bytearray()
    for count in itertools.count(1):
        event = far.next_event()
        if event is h11.NEED_DATA:
            if ready:
                await connection.send(bytes(ready))
                ready.clear()
            far.receive_data(await remote.receive())
            continue
        if event is h11.PAUSED:
            raise Broken("an answer to nothing")
        if isinstance(event, h11.ConnectionClosed):
            break
        near = _near_response(event) if isinstance(event, h11.Response) else event
        ready += talk.send(near) or b""  # type: ignore[arg-type]  # an event, as what is none was dealt with
        if isinstance(event, h11.EndOfMessage):
            break
        if count % _EVENTS_AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
    if ready:
        await connection.send(bytes(ready))


def _authority(text: str, port: int = 443) -> tuple[str, int]:
    """Host and port of ``host:port``; port -1, which nothing allows, where it is none. Names and passwords
    in front of the host stay part of it: what hides a host behind them is no host."""
    host, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text, port
    return host, int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else -1


async def _reach(
    connection: Connection, talk: h11.Connection, request: h11.Request, tunnel: Tunnel, host: str, port: int
) -> Remote:
    """Raises :class:`_Answered` when the script was told why not."""
    try:
        return await tunnel.reach(host, port)
    except Refused as refused:
        reason = f"Refused by the sandbox ({refused.refusal.rule}): {refused.refusal.text}"
        await _answer(connection, talk, request, 403, reason, refused.refusal.rule, refused.refusal.text)
    except DialFailed as failure:
        status = 504 if failure.timed_out else 502
        await _answer(
            connection, talk, request, status, f"No connection: {failure}", "unreachable", str(failure)
        )
    raise AssertionError("answered")


async def _answer(
    connection: Connection,
    talk: h11.Connection,
    request: h11.Request | None,
    status: int,
    reason: str,
    rule: str,
    text: str,
) -> None:
    """An answer of ours. The reason is in the first line too, which is all that most libraries show."""
    body = f"{text}\n".encode()
    headers = [
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"Content-Length", str(len(body)).encode()),
        (b"X-Sandbox-Network", rule.encode()),
        (b"Connection", b"close"),
    ]
    printable = "".join(c if c.isascii() and c.isprintable() else "?" for c in reason)[:_LONGEST_REASON]
    await _send_near(
        connection, talk, h11.Response(status_code=status, reason=printable.encode(), headers=headers)
    )
    if request is None or request.method != b"HEAD":
        await _send_near(connection, talk, h11.Data(data=body))
    await _send_near(connection, talk, h11.EndOfMessage())
    raise _Answered


async def _answer_broken(
    connection: Connection, talk: h11.Connection, error: h11.RemoteProtocolError
) -> None:
    if talk.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        raise Broken(str(error)) from error
    try:
        await _answer(connection, talk, None, error.error_status_hint, "Bad request", "request", str(error))
    except _Answered:
        return


async def _next(talk: h11.Connection, incoming: Incoming) -> "h11.Event | type[h11.PAUSED]":
    """What the script says next."""
    while True:
        event = talk.next_event()
        if event is not h11.NEED_DATA:
            return event  # type: ignore[return-value]  # h11's sentinels are classes to mypy
        talk.receive_data(await incoming.some())


async def _send_near(connection: Connection, talk: h11.Connection, event: h11.Event) -> None:
    if data := talk.send(event):
        await connection.send(data)


async def _send_far(remote: Remote, far: h11.Connection, event: h11.Event) -> None:
    if data := far.send(event):
        await remote.send(data)


def _near_response(response: h11.Response) -> h11.Response:
    return h11.Response(
        status_code=response.status_code,
        reason=response.reason,
        headers=_passed_on(response.headers),
    )


def _passed_on(headers: _Headers, *dropped: bytes) -> list[tuple[bytes, bytes]]:
    headers = list(headers)
    named = {
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    }
    left_out = _BETWEEN_NEIGHBOURS | (named - _NEVER_BETWEEN_NEIGHBOURS) | set(dropped)
    return [(name, value) for name, value in headers if name not in left_out]
