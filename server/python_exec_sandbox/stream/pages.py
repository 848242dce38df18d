"""A captured stream as text that can be read part by part."""

from dataclasses import dataclass

from python_exec_sandbox.stream.excerpt import Cleaned


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a stream's kept text. Offsets count characters of that text, from 0; ``end`` is the offset
    of what follows and ``total`` the text's length. When ``gap`` is set, something was not kept just before
    that offset, and it lies in this page."""

    text: str
    start: int
    end: int
    total: int
    gap: int | None = None

    @property
    def is_last(self) -> bool:
        return self.end >= self.total


def page(kept: Cleaned, offset: int, limit: int) -> Page:
    """At most ``limit`` characters of ``kept`` from ``offset`` on; a negative offset counts from the end.

    Raises:
        ValueError: the offset is beyond the end, or before the beginning.
    """
    total = kept.characters
    start = offset + total if offset < 0 else offset
    if not 0 <= start < max(total, 1):
        raise ValueError(f"offset {offset:,} of {total:,}")
    end = min(start + limit, total)
    boundary = len(kept.head)
    text = kept.head[start:end] + kept.tail[max(start - boundary, 0) : max(end - boundary, 0)]
    inside = start <= boundary < end or boundary == end == total
    return Page(text, start, end, total, boundary if kept.dropped_bytes and inside else None)
