"""When two runs want the same environment, as far as the server can tell."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A Python and requirements in no order. The store itself goes further: by what they resolve to."""

    python: str
    requirements: tuple[str, ...]
    exclude_newer: str = ""

    @classmethod
    def of(cls, python: str, requirements: Iterable[str], exclude_newer: str = "") -> "Key":
        """The key of canonical PEP 508 lines, and a cutoff of the script's own."""
        return cls(python, tuple(sorted(set(requirements))), exclude_newer)
