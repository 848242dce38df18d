"""Connections to the outside: a name is resolved once, and exactly an address that passed is connected to."""

import base64
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

import anyio
import anyio.abc
import anyio.to_thread

from python_exec_sandbox.egress.policy import Address, Policy, Refusal, read_host

RESOLVE_SECONDS = 10.0
CONNECT_SECONDS = 10.0

HEAD_START_SECONDS = 0.25
"""What one address gets before the next is tried beside it (RFC 8305)."""

MOST_ADDRESSES = 4

MOST_RESOLVED_AT_ONCE = 4
"""By one run: names whose servers don't answer must not hold up the others' runs."""

RESOLVER_THREADS = 32

_LONGEST_PROXY_HEAD = 16 * 1024

Resolve = Callable[[str, int], list[str]]
"""Addresses of a name, in the order in which they are to be tried; called in a thread. Raises ``OSError``."""


class Refused(Exception):
    """The policy forbids it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class DialFailed(Exception):
    """It is allowed, and could not be reached; the text is for the script."""

    def __init__(self, text: str, *, timed_out: bool = False) -> None:
        super().__init__(text)
        self.timed_out = timed_out


@dataclass(frozen=True, slots=True)
class Upstream:
    """A proxy that the server itself must use. ``authorization`` is the header's value, empty without one."""

    host: str
    port: int
    authorization: str = ""


def system_resolve(name: str, port: int) -> list[str]:
    """What this machine's resolver says. Blocks."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_own(address: Address) -> bool:
    """Whether ``address`` is one of this machine's: it would be its own source then. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)  # it has nothing to wait for
        try:
            probe.connect((str(address), 443))
            return ip_address(probe.getsockname()[0]) == address
        except OSError:  # no way there, so it isn't ours
            return False


def find_upstream(environment: Mapping[str, str], name: str, *, secure: bool) -> Upstream | None:
    """The proxy that the server's own variables name for ``name``, as curl and urllib read them.

    Raises:
        DialFailed: it is of a kind that isn't supported.
    """
    proxies = {
        key.lower().removesuffix("_proxy"): value
        for key, value in sorted(environment.items(), key=lambda item: item[0].islower())
        if key.lower().endswith("_proxy") and value
    }
    if _is_exempt(name, proxies.get("no", "")):
        return None
    address = proxies.get("https" if secure else "http") or proxies.get("all")
    if address is None:
        return None
    parts = urlsplit(address if "//" in address else f"http://{address}")
    if parts.scheme != "http" or not parts.hostname:
        raise DialFailed(f"the server's own proxy is of a kind that can't be used ({parts.scheme})")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Upstream(parts.hostname, parts.port or 80, authorization)


def _is_exempt(name: str, exempt: str) -> bool:
    """Whether ``NO_PROXY`` covers ``name``: it, a domain above it, or all."""
    domains = [one.strip().lower().removeprefix("*").lstrip(".") for one in exempt.split(",") if one.strip()]
    return "*" in exempt.split(",") or any(name == one or name.endswith(f".{one}") for one in domains if one)


class Dialer:
    """Connects one run to what ``policy`` allows. ``environment`` are the server's own variables; ``threads`` are
    those that all runs look up names in."""

    def __init__(
        self,
        policy: Policy,
        environment: Mapping[str, str] | None = None,
        resolve: Resolve = system_resolve,
        owns: Callable[[Address], bool] = is_own,
        threads: anyio.CapacityLimiter | None = None,
    ) -> None:
        self._policy = policy
        self._environment = environment if environment is not None else getproxies_in_force()
        self._resolve = resolve
        self._owns = owns
        self._threads = threads or anyio.CapacityLimiter(RESOLVER_THREADS)
        self._turns = anyio.Semaphore(MOST_RESOLVED_AT_ONCE)

    async def dial(self, host: str, port: int) -> anyio.abc.ByteStream:
        """A connection to ``host`` as a script named it.

        Raises:
            Refused: the policy forbids it.
            DialFailed: it could not be reached.
        """
        target = read_host(host)
        if target is None:
            raise Refused(Refusal("host", f"{host[:80]!r} is no host"))
        if (refusal := self._policy.check_port(port)) is not None:
            raise Refused(refusal)
        if not isinstance(target, str):
            if (refusal := self._policy.check_literal(target)) is not None:
                raise Refused(refusal)
            addresses = self._allowed([target])
        else:
            if (refusal := self._policy.check_name(target)) is not None:
                raise Refused(refusal)
            addresses = await self._addresses(target, port)
        upstream = find_upstream(self._environment, str(target), secure=port != 80)
        if upstream is not None and addresses:
            return await self._through(upstream, addresses[0], port)
        if upstream is not None and self._policy.domains:
            # Its own name service decides what a name means that ours doesn't know: only where a person opened it.
            return await self._through(upstream, target, port)
        if not addresses:
            raise DialFailed(f"{target}: the name could not be resolved")
        return await self._first_of(addresses, str(target), port)

    async def _addresses(self, name: str, port: int) -> list[Address]:
        """All that passed; none when the name has no address.

        Raises:
            Refused: it has addresses, and none of them passed.
        """
        async with self._turns:
            return self._allowed(await self._resolved(name, port))

    async def _resolved(self, name: str, port: int) -> list[Address]:
        found: list[str] = []
        with anyio.move_on_after(RESOLVE_SECONDS) as scope:
            try:
                # A resolver that hangs goes on in its thread until it gives up by itself; nobody waits for it.
                found = await anyio.to_thread.run_sync(
                    self._resolve, name, port, abandon_on_cancel=True, limiter=self._threads
                )
            except (OSError, UnicodeError):
                return []
        if scope.cancelled_caught:
            raise DialFailed(
                f"{name}: the name could not be resolved in {RESOLVE_SECONDS:g} s", timed_out=True
            )
        return [ip_address(text.partition("%")[0]) for text in found]

    def _allowed(self, addresses: list[Address]) -> list[Address]:
        refusals: list[Refusal] = []
        passed: list[Address] = []
        for address in addresses[: 4 * MOST_ADDRESSES]:
            refusal = self._policy.check_address(address)
            if refusal is None and self._owns(address):
                refusal = self._policy.check_own(address)
            if refusal is None:
                passed.append(address)
            else:
                refusals.append(refusal)
        if refusals and not passed:
            raise Refused(refusals[0])
        return passed[:MOST_ADDRESSES]

    async def _first_of(self, addresses: list[Address], name: str, port: int) -> anyio.abc.ByteStream:
        """The first that answers; each next one starts when the one before failed or took its head start."""
        winner: list[anyio.abc.SocketStream] = []
        causes: list[str] = []

        async def attempt(address: Address, failed: anyio.Event) -> None:
            try:
                stream = await anyio.connect_tcp(str(address), port)
            except OSError as error:
                causes.append(_cause(error))
                failed.set()
                return
            if winner:
                await stream.aclose()
                return
            winner.append(stream)
            tasks.cancel_scope.cancel()

        try:
            with anyio.move_on_after(CONNECT_SECONDS):
                async with anyio.create_task_group() as tasks:
                    for address in addresses:
                        failed = anyio.Event()
                        tasks.start_soon(attempt, address, failed)
                        with anyio.move_on_after(HEAD_START_SECONDS):
                            await failed.wait()
        except BaseException:  # nobody takes what has just come about
            for stream in winner:
                await anyio.aclose_forcefully(stream)
            raise
        if winner:
            return winner[0]
        if len(causes) < len(addresses):
            raise DialFailed(f"{name}:{port} did not answer in {CONNECT_SECONDS:g} s", timed_out=True)
        raise DialFailed(f"{name}:{port}: {causes[0]}")

    async def _through(self, upstream: Upstream, target: "str | Address", port: int) -> anyio.abc.ByteStream:
        """By the server's own proxy."""
        host = f"[{target}]" if not isinstance(target, str) and target.version == 6 else str(target)
        head = f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        if upstream.authorization:
            head += f"Proxy-Authorization: {upstream.authorization}\r\n"
        with anyio.move_on_after(CONNECT_SECONDS):
            try:
                stream = await anyio.connect_tcp(upstream.host, upstream.port)
            except OSError as error:
                raise DialFailed(f"the server's own proxy: {_cause(error)}") from error
            try:
                await stream.send(f"{head}\r\n".encode())
                answer = await _head_of(stream)
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
            status = answer.split(b" ", 2)[1:2]
            if status and status[0].startswith(b"2"):
                return stream
            await anyio.aclose_forcefully(stream)
            said = answer.partition(b"\r\n")[0].decode("ascii", "replace")[:100]
            raise DialFailed(f"{host}:{port}: the server's own proxy said: {said}")
        raise DialFailed(f"{host}:{port}: the server's own proxy did not answer", timed_out=True)


async def _head_of(stream: anyio.abc.ByteStream) -> bytes:
    """An answer's head. Nothing follows it before the other side has heard from us, in TLS and in HTTP alike."""
    head = b""
    try:
        while b"\r\n\r\n" not in head and len(head) < _LONGEST_PROXY_HEAD:
            head += await stream.receive(1)
    except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise DialFailed("the server's own proxy hung up") from error
    return head


def getproxies_in_force() -> dict[str, str]:
    """This process's own proxy variables, in the form of an environment."""
    return {f"{name}_proxy": value for name, value in getproxies_environment().items()}


def _cause(error: OSError) -> str:
    """The error of the one attempt that was made, in the system's words."""
    cause: BaseException = error
    while not (isinstance(cause, OSError) and cause.errno) and cause.__cause__ is not None:
        cause = cause.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    return os.strerror(number).lower() if number else str(cause)
