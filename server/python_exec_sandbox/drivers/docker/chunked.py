"""HTTP's chunked coding (RFC 9112, section 7.1), a piece at a time."""

from enum import Enum

_MAX_SIZE_DIGITS = 8


class _Part(Enum):
    SIZE = "size"
    DATA = "data"
    AFTER_DATA = "after data"
    ENDED = "ended"


class ChunkDecoder:
    """Takes the coding off; any split of the same bytes gives the same content.

    Trailers after the last chunk are not looked at.
    """

    def __init__(self) -> None:
        self._part = _Part.SIZE
        self._line = bytearray()
        self._missing = 0

    @property
    def ended(self) -> bool:
        """Whether the last chunk has been seen."""
        return self._part is _Part.ENDED

    def feed(self, data: bytes) -> bytes:
        """The content in ``data``.

        Raises:
            OSError: not in the chunked coding.
        """
        content = bytearray()
        while data and not self.ended:
            if self._part is _Part.DATA:
                content += data[: self._missing]
                taken = min(self._missing, len(data))
                data, self._missing = data[taken:], self._missing - taken
                if not self._missing:
                    self._part = _Part.AFTER_DATA
            else:
                data = self._feed_line(data)
        return bytes(content)

    def _feed_line(self, data: bytes) -> bytes:
        head, newline, rest = data.partition(b"\n")
        self._line += head
        if len(self._line) > 128:  # a size and extensions that no engine sends
            raise OSError("the engine's answer is not in the chunked coding")
        if not newline:
            return b""
        line = bytes(self._line).strip()
        self._line.clear()
        if self._part is _Part.AFTER_DATA:
            self._part = _Part.SIZE
        else:
            self._begin_chunk(line.partition(b";")[0].strip())
        return rest

    def _begin_chunk(self, digits: bytes) -> None:
        if not digits or len(digits) > _MAX_SIZE_DIGITS or digits.strip(b"0123456789abcdefABCDEF"):
            raise OSError("the engine's answer is not in the chunked coding")
        self._missing = int(digits, 16)
        self._part = _Part.DATA if self._missing else _Part.ENDED
