"""Which packages are to be in the store before anybody asks for them, and which are."""

import os
import re

from .files import read_record, write_record

LIST = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "warm-up.txt")

_UNREACHABLE = re.compile(
    r"error sending request|dns error|failed to lookup address|connection refused|network is unreachable"
    r"|timed out|tcp connect error|network connectivity is disabled|http status server error \(5",
    re.IGNORECASE,
)


class Warming:
    """The packages of the file ``names``; in the file ``record`` is kept which had their turn."""

    def __init__(self, record: str, names: str | None = None) -> None:
        self._record = record
        self._names = _read_names(names or LIST)

    def left(self) -> list[str]:
        """Those whose turn has not come, in the order of the list."""
        done = self._done()
        return [name for name in self._names if name not in done]

    def note(self, name: str) -> None:
        """``name`` had its turn, whatever came of it."""
        write_record(self._record, {"done": [*self._done(), name]})

    def _done(self) -> list[str]:
        match read_record(self._record):
            case {"done": [*done]}:
                return [str(name) for name in done]
        return []


def is_unreachable(text: str) -> bool:
    """Whether ``text``, said by uv, says that the index could not be reached, or has trouble of its own."""
    return bool(_UNREACHABLE.search(text))


def _read_names(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except FileNotFoundError:  # an image of somebody's own needs none
        return []
    return [line for line in lines if line]
