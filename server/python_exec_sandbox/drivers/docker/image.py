"""The sandbox image: found, built or pulled, once, and with words for a person who waits."""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.to_thread

from python_exec_sandbox.drivers.docker.context import BuildContext, packaged_context, read_context
from python_exec_sandbox.drivers.docker.facts import BuildRequest, Labelled
from python_exec_sandbox.drivers.docker.failure import EngineRefused, advice_for, quote
from python_exec_sandbox.drivers.docker.labels import PROTOCOL
from python_exec_sandbox.drivers.docker.options import DockerOptions, PullPolicy
from python_exec_sandbox.errors import DriverError, EngineUnreachable, ImageUnavailable
from python_exec_sandbox.stream.protocol import PROTOCOL_VERSION

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.gateway import Gateway

logger = logging.getLogger(__name__)

_STEP = re.compile(r"step (\d+)/(\d+)\s*:", re.IGNORECASE)

# The end of a build's log tells why it failed; the rest is noise.
_LOG_LINES = 12
_LOG_LINE_CHARS = 300

_MB = 1_000_000


class _Flight:
    """One search for the image that any number of waiters share."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.image: str | None = None
        self.error: DriverError | None = None


class ImageKeeper:
    """Knows the id of the sandbox image, and makes it when it is missing.

    At most one build or pull runs at a time. It goes on when a waiter is cancelled, as the next one
    needs it too.
    """

    def __init__(
        self, options: DockerOptions, tasks: anyio.abc.TaskGroup, threads: anyio.CapacityLimiter
    ) -> None:
        self._options = options
        self._tasks = tasks
        self._threads = threads
        self._flight: _Flight | None = None
        self._id: str | None = None
        self.activity: str | None = None
        """What is being done right now, such as ``"building the sandbox image: step 3/9"``."""

    def forget(self) -> None:
        """Look for the image again next time: it has gone, or the engine may be another one."""
        self._id = None

    async def ensure(self, gateway: "Gateway") -> str:
        """The id of an image that is on the engine.

        Raises:
            ImageUnavailable: it could not be built or pulled, or it isn't fit for this server.
            EngineUnreachable: the engine went away meanwhile.
        """
        if self._id is not None:
            return self._id
        if self._flight is None:
            self._flight = _Flight()
            self._tasks.start_soon(self._fly, self._flight, gateway)
        flight = self._flight
        await flight.done.wait()
        if flight.error is not None:
            # A new one for each waiter: a shared one would collect the tracebacks of all.
            raise type(flight.error)(str(flight.error)) from flight.error
        assert flight.image is not None
        return flight.image

    async def look(self, gateway: "Gateway") -> tuple[str, Labelled | None]:
        """The name of the image that sandboxes are made from, and the image itself if the engine has it.

        Raises:
            DriverError: the engine could not be asked.
        """
        reference = self._options.image
        if reference is None:
            reference = (await anyio.to_thread.run_sync(self._read_context, limiter=self._threads)).tag
        return reference, await gateway.image(reference)

    async def _fly(self, flight: _Flight, gateway: "Gateway") -> None:
        try:
            flight.image = self._id = await self._find(gateway)
        except (ImageUnavailable, EngineUnreachable) as error:
            flight.error = error
        except DriverError as error:
            flight.error = ImageUnavailable(str(error))
        finally:
            self.activity = None
            self._flight = None
            if flight.image is None and flight.error is None:
                flight.error = ImageUnavailable("The driver was closed while the image was being made.")
            flight.done.set()

    async def _find(self, gateway: "Gateway") -> str:
        if self._options.image is not None:
            image = await self._pulled(gateway, self._options.image)
            return _fitting(image, self._options.image).id
        context = await anyio.to_thread.run_sync(self._read_context, limiter=self._threads)
        image = await gateway.image(context.tag) or await self._built(gateway, context)
        return _fitting(image, context.tag).id

    def _read_context(self) -> BuildContext:
        return read_context(packaged_context(), self._options.base_image)

    async def _built(self, gateway: "Gateway", context: BuildContext) -> Labelled:
        self.activity = "building the sandbox image"
        logger.info("building the sandbox image %s; this happens once", context.tag)
        log = _BuildLog(self._say)
        request = BuildRequest(
            tag=context.tag,
            context=context.archive(),
            arguments=context.arguments,
            anonymous=self._options.base_image is None,
        )
        try:
            await gateway.build(request, log.note)
        except EngineRefused as refusal:
            named = self._options.base_image
            base = "its base images" if named is None else f"the image {named} (--base-image)"
            raise ImageUnavailable(
                f"The sandbox image {context.tag} could not be built{log.place}: {refusal.said}{log.tail} "
                f"{advice_for(refusal.said)}\nThe build needs {base} and uv from a registry, once. "
                f"Elsewhere made, it can be loaded here (`docker save {context.tag} | gzip > image.tar.gz` there, "
                "`docker load -i image.tar.gz` here); or name an image of your own with --image."
            ) from refusal
        image = await gateway.image(context.tag)
        if image is None:
            raise ImageUnavailable(f"The engine built the sandbox image {context.tag} but doesn't have it.")
        return image

    async def _pulled(self, gateway: "Gateway", reference: str) -> Labelled:
        policy = self._options.pull_policy
        image = None if policy is PullPolicy.ALWAYS else await gateway.image(reference)
        if image is not None:
            return image
        if policy is PullPolicy.NEVER:
            raise ImageUnavailable(
                f"The sandbox image {reference} is not on the engine, and --pull-policy never forbids to pull it. "
                f"Load it (`docker load -i FILE`), pull it (`docker pull {reference}`), or leave --image unset "
                "to have it built."
            )
        self.activity = f"pulling {reference}"
        logger.info("pulling the sandbox image %s", reference)
        progress = _PullProgress(reference, self._say)
        try:
            await gateway.pull(reference, progress.note)
        except EngineRefused as refusal:
            raise ImageUnavailable(
                f"The sandbox image {reference} could not be pulled: {refusal.said} {advice_for(refusal.said)}\n"
                f"Check its name and the network, log in (`docker login`), load it from a file "
                "(`docker load -i FILE`), or leave --image unset to have it built."
            ) from refusal
        image = await gateway.image(reference)
        if image is None:
            raise ImageUnavailable(f"The engine pulled the sandbox image {reference} but doesn't have it.")
        return image

    def _say(self, activity: str) -> None:
        self.activity = activity


class _BuildLog:
    """Reads the engine's messages of a build; called in a worker thread."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._step = ""

    def note(self, message: Mapping[str, Any]) -> None:
        text = str(message.get("stream") or "").strip()
        if not text:
            return
        if step := _STEP.match(text):
            self._step = f"step {step[1]}/{step[2]}"
            self._say(f"building the sandbox image: {self._step}")
        self._lines.extend(line[:_LOG_LINE_CHARS] for line in text.splitlines())

    @property
    def place(self) -> str:
        return f" (stopped at {self._step})" if self._step else ""

    @property
    def tail(self) -> str:
        return "".join(f"\n  | {line}" for line in self._lines) + ("\n" if self._lines else "")


class _PullProgress:
    """Adds up the layers of a pull; called in a worker thread."""

    def __init__(self, reference: str, say: Callable[[str], None]) -> None:
        self._reference = reference
        self._say = say
        self._layers: dict[str, tuple[int, int]] = {}

    def note(self, message: Mapping[str, Any]) -> None:
        detail = message.get("progressDetail")
        if message.get("status") != "Downloading" or not isinstance(detail, Mapping):
            return
        current, total = int(detail.get("current") or 0), int(detail.get("total") or 0)
        self._layers[str(message.get("id"))] = (current, max(current, total))
        got, wanted = (sum(part) for part in zip(*self._layers.values(), strict=True))
        self._say(f"pulling {self._reference}: {got // _MB} of {wanted // _MB} MB")


def _fitting(image: Labelled, name: str) -> Labelled:
    """The image itself, if its runner and this server understand each other.

    Raises:
        ImageUnavailable: they don't, or it has no runner.
    """
    spoken = image.labels.get(PROTOCOL)
    if spoken == str(PROTOCOL_VERSION):
        return image
    what = (
        f"speaks runner protocol {quote(spoken)}"
        if spoken
        else "is no sandbox image (it lacks the label of one)"
    )
    raise ImageUnavailable(
        f"The image {name} {what}; this server speaks runner protocol {PROTOCOL_VERSION}. "
        f"Use the image that belongs to this version, or leave --image unset to have it built."
    )
