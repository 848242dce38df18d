"""Keeps the beginning and the end of a stream of any length in bounded memory."""

from dataclasses import dataclass

_NEWLINE = b"\n"


@dataclass(frozen=True, slots=True)
class Captured:
    """What was kept of a stream, and how much was not.

    ``head`` is its beginning and ``tail`` its end; between them ``dropped_bytes`` are missing, with
    ``dropped_lines`` line feeds among them. When nothing is missing ``head + tail`` is the whole stream.
    """

    head: bytes = b""
    tail: bytes = b""
    total_bytes: int = 0
    dropped_bytes: int = 0
    dropped_lines: int = 0


class Capture:
    """Takes a stream bit by bit and keeps at most ``limit_bytes`` of it.

    Half of the limit is the head's, the rest a ring that holds the latest bytes. However the stream is
    cut into writes, the result is the same.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes < 0:
            raise ValueError(f"limit_bytes must not be negative: {limit_bytes}")
        self._head_size = limit_bytes // 2
        self._ring_size = limit_bytes - self._head_size
        self._head = bytearray()
        self._ring = bytearray()
        self._oldest = 0  # index in a full ring that is overwritten next
        self._total = 0
        self._dropped = 0
        self._dropped_lines = 0

    def write(self, data: bytes) -> None:
        """Take the next bytes; costs time proportional to their number."""
        self._total += len(data)
        if room := self._head_size - len(self._head):
            self._head += data[:room]
            data = data[room:]
        if room := self._ring_size - len(self._ring):
            self._ring += data[:room]
            data = data[room:]
        if data:
            self._overwrite(data)

    def captured(self) -> Captured:
        """What is kept so far; later writes don't change it."""
        return Captured(
            head=bytes(self._head),
            tail=bytes(self._ring[self._oldest :] + self._ring[: self._oldest]),
            total_bytes=self._total,
            dropped_bytes=self._dropped,
            dropped_lines=self._dropped_lines,
        )

    def _overwrite(self, data: bytes) -> None:
        """Put ``data`` over the oldest bytes of the full ring."""
        self._dropped += len(data)
        if (skipped := len(data) - self._ring_size) >= 0:
            self._dropped_lines += self._ring.count(_NEWLINE) + data.count(_NEWLINE, 0, skipped)
            self._ring[:] = data[skipped:]
            self._oldest = 0
            return
        upper = data[: self._ring_size - self._oldest]
        self._replace(self._oldest, upper)
        self._replace(0, data[len(upper) :])
        self._oldest = (self._oldest + len(data)) % self._ring_size

    def _replace(self, start: int, data: bytes) -> None:
        end = start + len(data)
        self._dropped_lines += self._ring.count(_NEWLINE, start, end)
        self._ring[start:end] = data
