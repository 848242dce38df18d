"""Carries one request to a builder and its answer back, over whatever channel a driver has to it."""

import logging
from collections.abc import Callable

import anyio

from python_exec_sandbox.drivers.attached import ByteChannel
from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.model.environment import BuildFailed, BuildFault, BuildOutcome, BuildRequest
from python_exec_sandbox.stream.building import Progress, parse_message, request_line
from python_exec_sandbox.stream.json_lines import JsonLines

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""All that a builder may say. The longest honest answer has some hundred kilobytes."""


async def follow(
    channel: ByteChannel, request: BuildRequest, progress: Callable[[str], None]
) -> BuildOutcome | None:
    """What the builder says within ``request.install_seconds``; ``None`` when it ended without a word."""
    with anyio.move_on_after(request.install_seconds):
        try:
            await channel.send(request_line(request))
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
