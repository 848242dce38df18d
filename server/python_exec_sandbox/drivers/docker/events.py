"""What the engine tells about our containers, and what follows from it.

With automatic removal a container can't be inspected once it has ended, and its exit code is 137 for a
memory kill and for ``docker kill`` alike. The order of the engine's events tells them apart: ``oom, die``
against ``kill, die``.
"""

import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio

from python_exec_sandbox.drivers.docker.channel import close_socket, receive_some
from python_exec_sandbox.drivers.docker.chunked import ChunkDecoder
from python_exec_sandbox.drivers.docker.facts import EventStream
from python_exec_sandbox.drivers.docker.failure import quote
from python_exec_sandbox.errors import DriverError
from python_exec_sandbox.model.result import Loss
from python_exec_sandbox.stream.json_lines import JsonLines

logger = logging.getLogger(__name__)

# An engine that is being restarted is back in a few seconds; asking more often helps nobody.
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0

# Of what an event says; a signal is a number or a short name.
_WORD_CHARS = 20

SIGKILL_EXIT_CODE = 137


@dataclass(slots=True)
class Fate:
    """What is known of one container's end. ``cause`` is the last of ``oom`` and ``kill`` before it died;
    ``on_pause`` is called at each pause, if there is somebody to call."""

    cause: str | None = None
    signal: str | None = None
    exit_code: int | None = None
    paused: bool = False
    on_pause: Callable[[], None] | None = None
    died: anyio.Event = field(default_factory=anyio.Event)
    destroyed: anyio.Event = field(default_factory=anyio.Event)

    def note(self, action: str, attributes: Mapping[str, object]) -> None:
        """Take in one event; its attributes may be anything."""
        match action:
            case "oom":
                # The engine may tell of the memory after the death it caused.
                self.cause = self.cause if self.cause == "kill" and self.died.is_set() else "oom"
            case "kill" if not self.died.is_set():
                self.cause, self.signal = "kill", quote(str(attributes.get("signal") or ""), _WORD_CHARS)
            case "pause" | "unpause":
                self.paused = action == "pause"
                if self.paused and self.on_pause is not None:
                    self.on_pause()
            case "die":
                code = str(attributes.get("exitCode"))
                self.exit_code = int(code) if re.fullmatch("[0-9]{1,3}", code) else None
                self.died.set()
            case "destroy":
                self.died.set()
                self.destroyed.set()

    @property
    def is_clear(self) -> bool:
        """Whether waiting longer can't change :meth:`explain`."""
        if self.destroyed.is_set():
            return True
        return self.died.is_set() and (
            self.cause is not None or self.exit_code not in {SIGKILL_EXIT_CODE, None}
        )

    def explain(self, diagnosis: str) -> tuple[Loss, str]:
        """Why the container ended, as far as is known; ``diagnosis`` is what its runner had to say.

        The text is what can be added to "the sandbox was ended from outside" or "failed"; it repeats neither.
        """
        said = f"; it said: {diagnosis}" if diagnosis else ""
        killed = self.exit_code in {SIGKILL_EXIT_CODE, None}
        if not self.died.is_set():
            if self.paused:
                return Loss.KILLED, f"paused through the engine{said}"
            return Loss.FAULT, f"its connection ended, and the engine doesn't say why{said}"
        if self.cause == "oom" and killed:
            return Loss.MEMORY, "the kernel's memory killer took its runner"
        if self.cause == "kill":
            name = f" with signal {self.signal}" if self.signal else ""
            return Loss.KILLED, f"killed through the engine{name}"
        if killed:
            return Loss.KILLED, f"killed, and the engine doesn't say by whom{said}"
        return Loss.FAULT, f"its runner ended by itself with exit code {self.exit_code}{said}"


class EventFeed:
    """Follows the engine's events for one server and sorts them by container.

    Events of containers that nobody watches are dropped, so that nothing grows.
    """

    def __init__(self) -> None:
        self._fates: dict[str, Fate] = {}
        self.listening = anyio.Event()
        """Set while there is a subscription that the engine has accepted."""
        self.interrupted = anyio.Event()
        """Set while there is none any more; what happened to containers meanwhile is never told."""
        self._subscriptions = 0

    @property
    def subscription(self) -> int | None:
        """The number of the present subscription; ``None`` while there is none."""
        return self._subscriptions if self.listening.is_set() else None

    def watch(self, container: str) -> Fate:
        """What becomes of a container; begin before it is started."""
        return self._fates.setdefault(container, Fate())

    def forget(self, container: str) -> None:
        self._fates.pop(container, None)

    async def follow(self, subscribe: Callable[[], Awaitable[EventStream]]) -> None:
        """Listen until cancelled; subscribes again, with growing pauses, whenever the engine goes away."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                stream = await subscribe()
            except DriverError as error:
                logger.debug("no events from the engine for now: %s", error)
            else:
                pause = _FIRST_PAUSE_SECONDS
                await self._listen(stream)
                logger.info("the engine ended its events; subscribing again")
            # Jitter keeps the servers of one person from asking a starting engine all at once.
            await anyio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _listen(self, stream: EventStream) -> None:
        sock = stream.raw.sock
        sock.setblocking(False)
        chunks = ChunkDecoder() if stream.chunked else None
        lines = JsonLines()
        data = stream.raw.early
        self.interrupted = anyio.Event()
        self._subscriptions += 1
        self.listening.set()
        try:
            while chunks is None or not chunks.ended:
                for event in lines.feed(chunks.feed(data) if chunks is not None else data):
                    self._sort(event)
                if not (data := await receive_some(sock)):
                    return
        except OSError as error:
            logger.debug("the engine's events broke off: %s", error)
        finally:
            close_socket(sock)
            self.listening = anyio.Event()
            self.interrupted.set()

    def _sort(self, event: dict[str, object]) -> None:
        actor = event.get("Actor")
        if not isinstance(actor, dict):
            return
        fate = self._fates.get(str(actor.get("ID")))
        attributes = actor.get("Attributes")
        if fate is not None:
            fate.note(str(event.get("Action")), attributes if isinstance(attributes, dict) else {})
