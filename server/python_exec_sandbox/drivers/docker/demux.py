"""The engine's framing of an attached stream without a terminal.

Each frame has a header of eight bytes: the stream (0 stdin, 1 stdout, 2 stderr, 3 the engine's own
errors), three zeros, and the length of what follows as a big-endian 32-bit number (Engine API,
"Attach to a container").
"""

from collections.abc import Iterator
from enum import IntEnum

_HEADER_BYTES = 8


class Source(IntEnum):
    """Who wrote a piece of an attached stream."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ENGINE = 3


class MalformedStream(OSError):
    """The attached stream isn't framed as it must be: it broke, or something else answered."""


class Demultiplexer:
    """Tells the streams apart, piece by piece.

    Any split of the same bytes gives the same bytes per stream. Nothing but an unfinished header
    is kept between calls, so that no length in a header can claim memory.
    """

    def __init__(self) -> None:
        self._header = bytearray()
        self._source = Source.STDIN
        self._missing = 0

    @property
    def between_frames(self) -> bool:
        """Whether the stream may end here without anything being lost."""
        return not self._missing and not self._header

    def feed(self, data: bytes) -> Iterator[tuple[Source, bytes]]:
        """The pieces that ``data`` holds, in order; none is empty. Use up the iterator before the next call.

        Raises:
            MalformedStream: a header that no engine sends.
        """
        view = memoryview(data)
        while view:
            if self._missing:
                piece = bytes(view[: self._missing])
                self._missing -= len(piece)
                view = view[len(piece) :]
                yield self._source, piece
            else:
                wanted = _HEADER_BYTES - len(self._header)
                self._header += view[:wanted]
                view = view[wanted:]
                if len(self._header) == _HEADER_BYTES:
                    self._begin_frame()

    def _begin_frame(self) -> None:
        header = bytes(self._header)
        self._header.clear()
        if header[0] > Source.ENGINE or header[1:4] != bytes(3):
            raise MalformedStream(f"the engine sent {header.hex()} where a frame's header was due")
        self._source = Source(header[0])
        self._missing = int.from_bytes(header[4:], "big")
