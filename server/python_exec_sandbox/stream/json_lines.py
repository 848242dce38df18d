"""Messages as JSON objects, one a line."""

import json
from collections.abc import Iterator

# An engine's event has a few hundred bytes, and some more for an image's labels.
_MAX_LINE_BYTES = 1024 * 1024


class JsonLines:
    """Cuts a stream into JSON objects, one a line; what isn't an object is passed over."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces, as one that grows would be copied with each of them
        self._rest_bytes = 0

    def feed(self, data: bytes) -> Iterator[dict[str, object]]:
        """The objects that are complete now.

        Raises:
            OSError: a line without end.
        """
        first, *more = data.split(b"\n")
        self._keep(first)
        for last in more:
            line = b"".join(self._rest)
            self._rest.clear()
            self._rest_bytes = 0
            self._keep(last)
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._rest_bytes += len(piece)
        if self._rest_bytes > _MAX_LINE_BYTES:
            raise OSError(f"a message of more than {_MAX_LINE_BYTES} bytes was sent")
