"""Carries one request to a builder and its answer back, over whatever channel a driver has to it."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from python_exec_sandbox.drivers.attached import ByteChannel
from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, BuildOutcome, BuildRequest
from python_exec_sandbox.stream.building import Progress, parse_message, request_line
from python_exec_sandbox.stream.json_lines import JsonLines

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""All that a builder may say. The longest honest answer has some hundred kilobytes."""

MAX_BUILT_BYTES = 64 * 1024 * 1024
"""All that a build sandbox may say, which is the wheels it made; the builder that gets them would take some more."""

Feed = Callable[[ByteChannel], Awaitable[bool]]
"""Sends a builder what it gets beside its request; whether that came to its end."""


async def follow(
    channel: ByteChannel, request: BuildRequest, progress: Callable[[str], None], feed: Feed | None = None
) -> BuildOutcome | None:
    """What the builder says within ``request.install_seconds``; ``None`` when it ended without a word."""
    with anyio.move_on_after(request.install_seconds):
        try:
            await channel.send(request_line(request))
            if feed is not None and not await feed(channel):
                return None
            return await _last_message(channel, progress)
        except ProtocolViolation as error:
            return BuildFailed(BuildFault.FAULT, str(error))
        except OSError as error:
            logger.debug("a builder's stream broke: %s", error)
            return None
    return BuildFailed(BuildFault.TIME)


async def _last_message(channel: ByteChannel, progress: Callable[[str], None]) -> BuildOutcome | None:
    lines = JsonLines()
    received = 0
    while data := await channel.receive():
        received += len(data)
        if received > MAX_ANSWER_BYTES:
            raise ProtocolViolation(f"the builder sent more than {MAX_ANSWER_BYTES} bytes")
        for message in lines.feed(data):
            said = parse_message(message)
            if not isinstance(said, Progress):
                return said
            progress(said.words)
    return None


async def first_bytes(channel: ByteChannel, request: BuildRequest) -> bytes:
    """What a build sandbox says first, which is when it is done; nothing if it ended."""
    try:
        await channel.send(request_line(request))
        return await channel.receive()
    except OSError as error:
        logger.debug("a build sandbox's stream broke: %s", error)
        return b""


class Carry:
    """A ``Feed`` of one line from a build sandbox, of which ``first`` has come already; ``on_whole`` is called when
    all of it has."""

    def __init__(self, source: ByteChannel, first: bytes, on_whole: Callable[[], object]) -> None:
        self._source = source
        self._data = first
        self._on_whole = on_whole
        self.is_cut = False
        """The build sandbox ended before its line did."""

    async def __call__(self, channel: ByteChannel) -> bool:
        """Carry it to ``channel`` as it comes.

        Raises:
            ProtocolViolation: it is longer than it may be.
        """
        left = MAX_BUILT_BYTES
        while self._data:
            line, newline, _ = self._data.partition(b"\n")
            left -= len(line)
            if left < 0:
                raise ProtocolViolation(
                    f"the packages built from source have more than {MAX_BUILT_BYTES} bytes"
                )
            if newline:
                self._on_whole()
            await channel.send(line + newline)
            if newline:
                return True
            self._data = await self._source.receive()
        self.is_cut = True
        return False
