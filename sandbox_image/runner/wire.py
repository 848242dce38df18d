"""Frames, the runner's side. The format is that of the server's ``stream/frames.py``."""

import struct

PROTOCOL_VERSION = 3
MAX_PAYLOAD_BYTES = 64 * 1024
WINDOW_BYTES = 512 * 1024

CONTROL, DATA, END, CREDIT = 1, 2, 3, 4
STDIN, STDOUT, STDERR, SCRIPT = 1, 2, 3, 4

FIRST_CONNECTION = 16
"""From this id on streams are connections of the script to the outside."""

CONNECTION_WINDOW_BYTES = 128 * 1024
MAX_OPEN_CONNECTIONS = 64
MAX_CONNECTIONS = 10_000

_HEADER = struct.Struct(">BBHI")
_CREDIT = struct.Struct(">I")


def encode(kind: int, stream: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(kind, 0, stream, len(payload)) + payload


def encode_credit(stream: int, count: int) -> bytes:
    return encode(CREDIT, stream, _CREDIT.pack(count))


def decode_credit(payload: bytes) -> int:
    count: int = _CREDIT.unpack(payload)[0]
    return count


class Decoder:
    """Turns bytes, cut anywhere, into ``(kind, stream, payload)``."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Raises ``ValueError`` on a frame that is too long."""
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= _HEADER.size:
            kind, _, stream, length = _HEADER.unpack_from(buffer, start)
            if length > MAX_PAYLOAD_BYTES:
                raise ValueError(f"frame of {length} bytes")
            end = start + _HEADER.size + length
            if len(buffer) < end:
                break
            frames.append((kind, stream, bytes(buffer[start + _HEADER.size : end])))
            start = end
        del buffer[:start]
        return frames
