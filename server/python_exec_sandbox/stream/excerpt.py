"""Chooses what to show of a captured stream when there is room for a part only."""

from dataclasses import dataclass

from python_exec_sandbox.stream.capture import Captured
from python_exec_sandbox.stream.clean import clean

LINE_SLACK_CHARACTERS = 200
"""A cut moves to a line end if that costs no more than this, nor more than a quarter of the room."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A captured stream as text: ``head`` and ``tail`` with a gap between them if ``dropped_bytes``, of
    which ``dropped_lines`` lines; otherwise all of it is in ``head``."""

    head: str
    tail: str = ""
    dropped_bytes: int = 0
    dropped_lines: int = 0

    @property
    def characters(self) -> int:
        return len(self.head) + len(self.tail)


def clean_captured(captured: Captured) -> Cleaned:
    """The text of ``captured``; characters and sequences that the gap cut are left out."""
    if not captured.dropped_bytes:
        return Cleaned(head=clean(captured.head + captured.tail))
    return Cleaned(
        head=clean(captured.head, ends_inside=True),
        tail=clean(captured.tail, starts_inside=True),
        dropped_bytes=captured.dropped_bytes,
        dropped_lines=captured.dropped_lines,
    )


def fit(stream: Cleaned, characters: int) -> Cleaned:
    """``stream`` cut in its middle to at most ``characters``, at line ends where these are near.

    What is cut counts as UTF-8 bytes of the cleaned text, added to what was dropped before.
    """
    if stream.characters <= characters:
        return stream
    head_room, tail_room = _share(stream, characters)
    if stream.dropped_bytes:
        head, cut_head = _begin(stream.head, head_room)
        tail, cut_tail = _end(stream.tail, tail_room)
        cut = cut_head + cut_tail
    else:
        head, rest = _begin(stream.head, head_room)
        tail, cut = _end(rest, tail_room)
    return Cleaned(
        head=head,
        tail=tail,
        dropped_bytes=stream.dropped_bytes + len(cut.encode()),
        dropped_lines=stream.dropped_lines + cut.count("\n"),
    )


def share(first: int, second: int, room: int) -> tuple[int, int]:
    """Split ``room`` between two needs: neither gets more than it needs, nor less than half if it needs that."""
    half = room // 2
    if first <= half:
        return first, min(second, room - first)
    if second <= half:
        return min(first, room - second), second
    return half, room - half


def _share(stream: Cleaned, characters: int) -> tuple[int, int]:
    if not stream.dropped_bytes:
        return characters // 2, characters - characters // 2
    return share(len(stream.head), len(stream.tail), characters)


def _begin(text: str, room: int) -> tuple[str, str]:
    """At most ``room`` characters from the beginning, and the rest."""
    at = min(room, len(text))
    if at < len(text):
        line_end = text.rfind("\n", max(0, at - _slack(room)), at)
        at = line_end + 1 if line_end >= 0 else at
    return text[:at], text[at:]


def _end(text: str, room: int) -> tuple[str, str]:
    """At most ``room`` characters from the end, and the rest."""
    at = max(0, len(text) - room)
    if at > 0:
        line_end = text.find("\n", at - 1, at + _slack(room))
        at = line_end + 1 if 0 <= line_end < len(text) - 1 else at
    return text[at:], text[:at]


def _slack(room: int) -> int:
    return min(LINE_SLACK_CHARACTERS, room // 4)
