"""The one door to the engine: every call of the docker SDK is made, bounded and translated here.

Importing this module imports the SDK, which takes a while: do that in a worker thread.

Calls run in worker threads of a limiter of our own; anyio's default one belongs to others (MCP's stdio
lives on it). A thread is never abandoned. A call whose caller was cancelled gets a moment to finish, then
its sockets are shut down where they are Unix sockets, which ends it: a hung engine holds up no shutdown.
"""

import contextlib
import io
import itertools
import logging
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import anyio
import docker
import docker.credentials
import docker.utils
import requests
import requests.adapters
import tenacity
import urllib3
import urllib3.connection
import urllib3.connectionpool
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool

from python_exec_sandbox.drivers.docker.calls import Call
from python_exec_sandbox.drivers.docker.channel import RawStream
from python_exec_sandbox.drivers.docker.discovery import Candidate
from python_exec_sandbox.drivers.docker.facts import (
    AboutEngine,
    BuildRequest,
    CreatedContainer,
    EventStream,
    FoundImage,
    FoundNetwork,
    Labelled,
)
from python_exec_sandbox.drivers.docker.failure import EngineRefused, connect_advice, quote
from python_exec_sandbox.drivers.docker.labels import SHARED
from python_exec_sandbox.drivers.docker.meter import (
    LONG_ANSWER_BYTES,
    SHORT_ANSWER_BYTES,
    AnswerTooLong,
    Meter,
    MeteredSocket,
    metered,
)
from python_exec_sandbox.drivers.docker.takeover import take_over
from python_exec_sandbox.drivers.docker.telling import about_engine
from python_exec_sandbox.drivers.docker.versions import OLDEST_API, negotiate, text_of
from python_exec_sandbox.errors import DriverError, EngineUnreachable
from python_exec_sandbox.model.limits import MIB
from python_exec_sandbox.stream.json_lines import JsonLines

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Calls at the same time: enough to make a few sandboxes while others are removed, few enough that a hung
# engine holds only these threads.
CALLS = 6

# Builds and pulls have threads of their own, or they would starve the short calls.
LONG_CALLS = 2

# For one wait on the socket. An engine that is well answers in tens of milliseconds, a start in half a second.
CALL_SECONDS = 10

# A step of a build may print nothing for minutes (a download).
LONG_CALL_SECONDS = 600

# A whole call, with every wait in it: an answer that comes in drops would otherwise never end.
WHOLE_CALL_SECONDS = 60

_ATTEMPTS = 3

_MOST_WARNINGS = 10

# Engines use up to 64 hexadecimal digits, some with "sha256:" before them.
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

_UNIX = "unix://"

# What the SDK raises, here and there, when a credential helper is missing or fails.
_NO_CREDENTIALS = (docker.errors.DockerException, docker.credentials.StoreError)


class _Connection(UnixHTTPConnection):
    """Tells its adapter about its socket, so that a call can be ended from outside."""

    adapter: "_Adapter"

    def connect(self) -> None:
        sock = MeteredSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.meter = self.adapter.meter
        try:
            sock.settimeout(CALL_SECONDS)
            sock.connect(self.unix_socket)
        except OSError:
            sock.close()  # the SDK's own leaves it to the garbage collector
            raise
        self.sock = sock
        self.adapter.opened(sock)


class _Pool(UnixHTTPConnectionPool):
    adapter: "_Adapter"

    def _new_conn(self) -> _Connection:  # type: ignore[override]  # the stubs of urllib3 know a protocol only
        connection = _Connection(self.base_url, self.socket_path, CALL_SECONDS)
        connection.adapter = self.adapter
        return connection


class _Adapter(UnixHTTPAdapter):
    """The SDK's adapter for Unix sockets with one pool for all addresses and a way to end everything.

    The SDK's own keeps an idle connection for each address ever asked, that is for each container.
    """

    def __init__(self, address: str, meter: Meter) -> None:
        self.meter = meter
        self._open: list[socket.socket] = []
        self._cut = False
        super().__init__(address.replace(_UNIX, "http+unix://"), CALL_SECONDS)
        self._pool = _Pool("http+docker://localhost", self.socket_path, CALL_SECONDS, 1)
        self._pool.adapter = self

    def get_connection(self, url: bytes | str, proxies: Any = None) -> UnixHTTPConnectionPool:
        return self._pool

    def opened(self, sock: socket.socket) -> None:
        self._open = [known for known in self._open if known.fileno() != -1]
        self._open.append(sock)
        if self._cut:
            sock.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self._cut = True
        for sock in self._open:
            with contextlib.suppress(OSError):  # closed already
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._pool.close()
        super().close()


class _TcpConnection(urllib3.connection.HTTPConnection):
    """A connection whose answers are bounded too."""

    meter: Meter

    def _new_conn(self) -> socket.socket:
        return metered(super()._new_conn(), self.meter)


class _TcpAdapter(requests.adapters.HTTPAdapter):
    """Requests' own adapter over :class:`_TcpConnection`."""

    def __init__(self, meter: Meter) -> None:
        class Connection(_TcpConnection):  # urllib3 is told of a class, not of a maker
            pass

        Connection.meter = meter

        class Pool(urllib3.connectionpool.HTTPConnectionPool):
            ConnectionCls = Connection

        super().__init__()
        self.poolmanager.pool_classes_by_scheme = {"http": Pool}


class _Client(docker.APIClient):
    """The SDK's client with bounded waits, no proxy, and credential helpers that can't break a build."""

    def __init__(self, address: str, version: str, seconds: int, answer_bytes: int) -> None:
        super().__init__(base_url=address, version=version, timeout=seconds)
        self.trust_env = False  # the engine is never behind the proxy that this process may be told of
        self.anonymous = True
        self._tracking: _Adapter | None = None
        self._latest: requests.Response | None = None
        self._meter = Meter(answer_bytes)
        if address.startswith(_UNIX):
            self._tracking = _Adapter(address, self._meter)
            self.mount("http+docker://", self._tracking)
        else:
            self.mount("http://", _TcpAdapter(self._meter))

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Some of the SDK's calls ask for no time-out at all."""
        kwargs["timeout"] = kwargs.get("timeout") or self.timeout
        self._meter.begin()
        self._latest = super().send(request, **kwargs)
        return self._latest

    def close(self) -> None:
        """Everything, an answer that was not read to its end included."""
        self.cut()
        if self._latest is not None:
            self._latest.close()
        super().close()

    def cut(self) -> None:
        if self._tracking is not None:
            self._tracking.cut()

    def url(self, path: str) -> str:
        return f"{self.base_url}/v{self.api_version}{path}"

    def _set_auth_headers(self, headers: dict[str, Any]) -> None:
        if self.anonymous:
            return
        try:
            super()._set_auth_headers(headers)  # type: ignore[misc]  # missing in the stubs
        except _NO_CREDENTIALS as error:
            logger.warning("building without credentials, as the credential helper failed: %s", error)


class Gateway:
    """An engine that has answered, at one address and API version.

    Every method raises :class:`~.failure.EngineRefused` when the engine says no and
    :class:`~python_exec_sandbox.errors.EngineUnreachable` when it doesn't answer. A cancelled call ends
    soon (see :mod:`.calls`), and the engine may have done what it was asked.
    """

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self._version = text_of(OLDEST_API)
        self._limiter = anyio.CapacityLimiter(CALLS)
        self._long_limiter = anyio.CapacityLimiter(LONG_CALLS)
        self._idle: list[_Client] = []

    @property
    def address(self) -> str:
        return self.candidate.address

    @classmethod
    async def connect(cls, candidate: Candidate) -> "Gateway":
        """The engine at ``candidate``, once it has told its version."""
        gateway = cls(candidate)
        try:
            newest, oldest = await gateway._call("tell its version", _versions)
            gateway._version = negotiate(newest, oldest, candidate)
        finally:
            gateway.close()  # clients so far were made for a guessed version
        return gateway

    def close(self) -> None:
        """Close idle connections; calls that are under way are not touched."""
        while self._idle:
            self._idle.pop().close()

    async def create(self, name: str, body: Mapping[str, Any]) -> CreatedContainer:
        def create(client: _Client) -> CreatedContainer:
            answer = client.create_container_from_config(dict(body), name)  # type: ignore[no-untyped-call]  # stubs
            warnings = list(answer.get("Warnings") or ())[:_MOST_WARNINGS]
            return CreatedContainer(_id(answer), tuple(quote(str(warning)) for warning in warnings))

        return await self._call("create a container", create)

    async def attach(self, container: str) -> RawStream:
        """Both directions of a container's standard streams, from now on; do this before the start."""

        def attach(client: _Client) -> RawStream:
            wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            response = client.post(
                client.url(f"/containers/{container}/attach"),
                params=wanted,
                headers={"Connection": "Upgrade", "Upgrade": "tcp"},
                stream=True,
            )
            return take_over(response, "attach to a container")

        return await self._taking_over("attach to a container", attach)

    async def events(self, label: str) -> EventStream:
        """The engine's events about containers with ``label``, from now on."""
        chunked = False

        def subscribe(client: _Client) -> RawStream:
            nonlocal chunked
            filters = {"type": ["container"], "label": [label]}
            response = client.get(
                client.url("/events"), params={"filters": docker.utils.convert_filters(filters)}, stream=True
            )
            chunked = "chunked" in response.headers.get("Transfer-Encoding", "")
            return take_over(response, "tell its events")

        raw = await self._taking_over("tell its events", subscribe)
        return EventStream(raw, chunked)

    async def start(self, container: str) -> None:
        await self._call("start a container", lambda client: client.start(container))

    async def kill(self, container: str) -> None:
        await self._call("kill a container", lambda client: client.kill(container))

    async def remove(self, container: str) -> None:
        """Kill and remove, with its anonymous volumes; by name or id."""
        await self._call(
            "remove a container", lambda client: client.remove_container(container, v=True, force=True)
        )

    async def exists(self, container: str) -> bool:
        """Whether the engine still knows the container; by name or id."""
        try:
            await self._retried("inspect a container", lambda client: client.inspect_container(container))
        except EngineRefused as refusal:
            if refusal.is_missing:
                return False
            raise
        return True

    async def containers(self, label: str) -> list[Labelled]:
        """All containers with ``label``, whatever their state."""
        return await self._retried(
            "list containers",
            lambda client: [
                Labelled(_id(item), _texts(item.get("Labels")))
                for item in _list(client.containers(all=True, filters={"label": [label]}))
            ],
        )

    async def networks(self, name: str) -> list[FoundNetwork]:
        """All networks with ``name`` in their names."""
        return await self._retried(
            "list networks",
            lambda client: [
                FoundNetwork(
                    id=_id(item),
                    name=str(item.get("Name")),
                    created=str(item.get("Created")),
                    driver=str(item.get("Driver")),
                    options=_texts(item.get("Options")),
                )
                for item in _list(client.networks(names=[name]))
            ],
        )

    async def create_network(self, name: str, driver: str, options: Mapping[str, str]) -> None:
        """Make a network with our label, unless there is one of that name (not certain on old engines)."""
        await self._call(
            "make a network",
            lambda client: client.create_network(
                name,
                driver=driver,
                options=dict(options),
                labels={SHARED: "true"},
                check_duplicate=True,
            ),
        )

    async def remove_network(self, network: str) -> None:
        """Refused by the engine while a container is on it."""
        await self._call("remove a network", lambda client: client.remove_network(network))

    async def volume(self, name: str) -> Mapping[str, str] | None:
        """The labels of a volume; ``None`` when there is none of that name."""

        def inspect(client: _Client) -> Mapping[str, str]:
            return _texts(client.inspect_volume(name).get("Labels"))

        try:
            return await self._retried("inspect a volume", inspect)
        except EngineRefused as refusal:
            if refusal.is_missing:
                return None
            raise

    async def remove_volume(self, name: str) -> None:
        """Refused by the engine while a container has it."""
        await self._call("remove a volume", lambda client: client.remove_volume(name))

    async def answers(self) -> bool:
        """Whether the engine is still there, whatever it says."""
        try:
            await self._call("give a sign of life", lambda client: client.ping())
        except EngineUnreachable:
            return False
        except EngineRefused:
            return True
        return True

    async def image(self, reference: str) -> Labelled | None:
        """A local image by name or id; ``None`` when there is none."""

        def inspect(client: _Client) -> Labelled:
            facts = client.inspect_image(reference)  # type: ignore[no-untyped-call]  # stubs
            return Labelled(_id(facts), _texts((facts.get("Config") or {}).get("Labels")))

        try:
            return await self._retried("inspect an image", inspect)
        except EngineRefused as refusal:
            if refusal.is_missing:
                return None
            raise

    async def images(self, label: str) -> list[FoundImage]:
        """All images with ``label`` that are no mere steps of a build."""
        return await self._retried(
            "list images",
            lambda client: [
                FoundImage(_id(item), _words(item.get("RepoTags")), int(item.get("Size") or 0))
                for item in _list(client.images(filters={"label": [label]}))
            ],
        )

    async def remove_image(self, image: str) -> None:
        """By id or tag. Refused by the engine while a container or another image needs it."""
        await self._call("remove an image", lambda client: client.remove_image(image))

    async def images_in_use(self) -> set[str]:
        """Ids of the images of all containers, whatever their state."""
        return await self._retried(
            "list containers",
            lambda client: {str(item.get("ImageID")) for item in _list(client.containers(all=True))},
        )

    async def network_is_used(self, network: str) -> bool:
        """Whether a container is on it."""
        facts = await self._retried("inspect a network", lambda client: client.inspect_network(network))
        return bool(facts.get("Containers"))

    async def about(self) -> AboutEngine:
        """What the engine says of itself; takes longer than other calls, as it looks around for it."""

        def ask(client: _Client) -> AboutEngine:
            version = client.version(api_version=False)
            return about_engine(version, client.info(), client.api_version)

        return await self._call("tell about itself", ask)

    async def build(self, request: BuildRequest, progress: Callable[[Mapping[str, Any]], None]) -> None:
        """Build an image; ``progress`` gets the engine's messages in a worker thread."""

        def build(client: _Client) -> None:
            client.anonymous = request.anonymous
            _follow("build an image", progress, client.build(
                fileobj=io.BytesIO(request.context), custom_context=True, tag=request.tag, rm=True,
                forcerm=True, buildargs=dict(request.arguments), timeout=LONG_CALL_SECONDS,
            ))  # fmt: skip

        await self._call("build an image", build, long=True)

    async def pull(self, reference: str, progress: Callable[[Mapping[str, Any]], None]) -> None:
        """Pull an image, anonymously when a credential helper fails; ``progress`` as in :meth:`build`."""
        doing = f"pull {reference}"

        def pull(client: _Client) -> None:
            repository, tag = docker.utils.parse_repository_tag(reference)
            arguments: dict[str, Any] = {"tag": tag or "latest", "stream": True}
            try:
                messages = client.pull(repository, **arguments)
            except docker.errors.APIError:
                raise
            except _NO_CREDENTIALS as error:
                logger.warning(
                    "pulling %s without credentials, as they could not be read: %s", reference, error
                )
                messages = client.pull(repository, **arguments, auth_config={})
            _follow(doing, progress, messages)

        await self._retried(doing, pull, long=True)

    async def _retried(self, doing: str, work: Callable[[_Client], T], *, long: bool = False) -> T:
        """For calls that may be made again: a moment's fault of the engine or a registry doesn't show."""
        async for attempt in tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_exponential(multiplier=0.2, max=5.0) + tenacity.wait_random(0.0, 0.2),
            retry=tenacity.retry_if_exception(_is_transient),
            sleep=anyio.sleep,
            reraise=True,
        ):
            with attempt:
                return await self._call(doing, work, long=long)
        raise AssertionError("the last attempt either returns or raises")

    async def _taking_over(self, doing: str, work: Callable[[_Client], RawStream]) -> RawStream:
        """As :meth:`_call`, but a stream that nobody gets any more is closed."""
        taken: list[RawStream] = []
        try:
            await self._call(doing, lambda client: taken.append(work(client)))
        except BaseException:
            for stream in taken:
                stream.sock.close()
            raise
        return taken.pop()

    async def _call(self, doing: str, work: Callable[[_Client], T], *, long: bool = False) -> T:
        """Do ``work`` in a thread, with a client that no other call uses meanwhile."""
        call = Call(self, doing, work, long=long)
        if long:
            return await call.run(self._long_limiter)
        with anyio.move_on_after(WHOLE_CALL_SECONDS):
            return await call.run(self._limiter)
        raise EngineUnreachable(
            f"The container engine at {self.address} did not come to the end of its answer within "
            f"{WHOLE_CALL_SECONDS} s when asked to {doing}. Restart it if it stays like this."
        )

    def lend(self, *, long: bool) -> _Client:
        """A client for one call; in the call's thread, as making one reads files."""
        if not long:
            with contextlib.suppress(IndexError):
                return self._idle.pop()
        seconds, size = (LONG_CALL_SECONDS, LONG_ANSWER_BYTES) if long else (CALL_SECONDS, SHORT_ANSWER_BYTES)
        try:
            return _Client(self.candidate.address, self._version, seconds, size)
        except Exception as error:  # the SDK reads the file as if it were always well formed
            raise EngineUnreachable(
                f"The docker client's configuration (config.json in ~/.docker or DOCKER_CONFIG) can't be used: "
                f"{quote(str(error))}. Mend or remove it."
            ) from error

    def take_back(self, client: _Client) -> None:
        if len(self._idle) < CALLS:
            self._idle.append(client)
        else:
            client.close()

    def translate(self, error: Exception, doing: str) -> DriverError:
        """The one place where errors of the SDK and of what is below it become ours."""
        where = f"The container engine at {self.candidate.address}"
        match error:
            case DriverError():
                return error
            case docker.errors.APIError():
                return EngineRefused(doing, error.status_code or 0, _explanation(error))
            case AnswerTooLong():
                return EngineUnreachable(
                    f"{where} gave an answer of more than {error.limit // MIB} MiB when asked to {doing}. No engine "
                    "does that: see what listens there, or name another address with --docker-host."
                )
            case requests.Timeout() | urllib3.exceptions.ReadTimeoutError():
                return EngineUnreachable(
                    f"{where} did not answer in time when asked to {doing}. Restart it if it stays like this."
                )
            case OSError():
                return EngineUnreachable(f"{where} can't be reached: {connect_advice(error)}.")
            case _:
                return EngineUnreachable(
                    f"{where} gave an answer that can't be used when asked to {doing}: "
                    f"{type(error).__name__}: {quote(str(error))}"
                )


def _versions(client: _Client) -> tuple[str, str]:
    """The newest and the oldest API version that the engine knows."""
    facts = client.version(api_version=False)
    return str(facts.get("ApiVersion")), str(facts.get("MinAPIVersion"))


def _id(facts: Mapping[str, Any]) -> str:
    """The id in an answer, safe to be part of an address.

    Raises:
        ValueError: there is none.
    """
    found = facts["Id"]
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise ValueError(f"no id but {str(found)[:100]!r}")
    return found


def _list(found: object) -> list[Mapping[str, Any]]:
    """An answer that is a list of objects.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise ValueError("no list of objects")  # what the engine sent, not what a caller passed
    return found


def _words(found: object) -> tuple[str, ...]:
    """A list of names; the engine writes ``<none>:<none>``, or nothing, for none."""
    names = [str(item) for item in found] if isinstance(found, list) else []
    return tuple(name for name in names if "<none>" not in name)


def _texts(found: object) -> dict[str, str]:
    """Labels or options, whatever the engine sent in their place."""
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, Mapping) else {}


def _explanation(error: docker.errors.APIError) -> str:
    """The engine's own words; only the beginning of what is none."""
    said = str(error.explanation or error)
    is_text = error.response is not None and said.lstrip()[:100] == error.response.text.lstrip()[:100]
    return quote(said) if is_text else said


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, EngineRefused) and error.is_transient


def _follow(doing: str, progress: Callable[[Mapping[str, Any]], None], answer: Iterable[bytes | str]) -> None:
    """Read a build's or pull's messages to the end; an error in one of them is raised."""
    # Taken apart here: the SDK's own decoder has no bound for a message, and copies what is unfinished each time.
    lines = JsonLines()
    for data in itertools.chain(answer, [b"\n"]):
        for message in lines.feed(data if isinstance(data, bytes) else data.encode()):
            if "error" in message:
                raise EngineRefused(doing, 500, str(message["error"]))
            progress(message)
