"""Frames of the runner protocol: how messages and streams share one pair of pipes.

A frame is an 8-byte header, big-endian, and a payload::

    kind u8 | reserved u8 (0) | stream u16 | length u32 (0..65536) | payload

=======  ======  ==========================================================
kind     stream  payload
=======  ======  ==========================================================
CONTROL  0       one JSON object (see :mod:`.protocol`)
DATA     1..     1 to 65,536 bytes of that stream
END      1..     empty: no more DATA on that stream
CREDIT   1..     u32: how many more bytes of DATA the other side may send
=======  ======  ==========================================================

The sandbox's side is not trusted: each size is checked before anything is kept, so the decoder never
holds more than one frame beyond what it was fed.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from python_exec_sandbox.errors import ProtocolViolation

MAX_PAYLOAD_BYTES = 64 * 1024
"""Large enough for the kernel's pipe buffer, small enough that streams alternate."""

_HEADER = struct.Struct(">BBHI")
_CREDIT = struct.Struct(">I")


class Kind(IntEnum):
    CONTROL = 1
    DATA = 2
    END = 3
    CREDIT = 4


@dataclass(frozen=True, slots=True)
class Frame:
    kind: Kind
    stream: int
    payload: bytes = b""

    def credit(self) -> int:
        """The number of bytes a CREDIT frame grants."""
        granted: int = _CREDIT.unpack(self.payload)[0]
        return granted


def encode(kind: Kind, stream: int, payload: bytes = b"") -> bytes:
    """One frame as bytes. The payload must be within :data:`MAX_PAYLOAD_BYTES`."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"payload of {len(payload)} bytes, at most {MAX_PAYLOAD_BYTES}")
    return _HEADER.pack(kind, 0, stream, len(payload)) + payload


def encode_credit(stream: int, count: int) -> bytes:
    """A CREDIT frame that lets the other side send ``count`` more bytes."""
    return encode(Kind.CREDIT, stream, _CREDIT.pack(count))


def _checked(kind: int, reserved: int, stream: int, length: int) -> Kind:
    """The frame's kind, if header and size belong together.

    Raises:
        ProtocolViolation: they don't.
    """
    if reserved != 0 or kind not in Kind.__members__.values():
        raise ProtocolViolation(f"unknown frame (kind {kind}, reserved {reserved})")
    if length > MAX_PAYLOAD_BYTES:
        raise ProtocolViolation(f"frame of {length} bytes, at most {MAX_PAYLOAD_BYTES}")
    if (kind == Kind.CONTROL) != (stream == 0):
        raise ProtocolViolation(f"frame of kind {kind} on stream {stream}")
    fits = {Kind.CONTROL: length > 0, Kind.DATA: length > 0, Kind.END: length == 0, Kind.CREDIT: length == 4}
    known = Kind(kind)
    if not fits[known]:
        raise ProtocolViolation(f"{known.name} frame with {length} bytes")
    return known


class FrameDecoder:
    """Turns bytes, cut anywhere, into frames. After an error it must not be fed again."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes, in order.

        Raises:
            ProtocolViolation: the bytes are not frames; headers are checked before their payload arrives.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        start = 0
        while len(buffer) - start >= _HEADER.size:
            kind, reserved, stream, length = _HEADER.unpack_from(buffer, start)
            known = _checked(kind, reserved, stream, length)
            end = start + _HEADER.size + length
            if len(buffer) < end:
                break
            frames.append(Frame(known, stream, bytes(buffer[start + _HEADER.size : end])))
            start = end
        del buffer[:start]
        return frames
