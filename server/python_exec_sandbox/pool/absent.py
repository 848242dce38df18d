"""Python versions that sandboxes turned out not to have. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Absence:
    cause: str
    until: float


class AbsentPythons:
    """Remembers each for ``seconds``: so long nobody tries it again, and other versions are not affected."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._absences: dict[str, _Absence] = {}

    def add(self, python: str, cause: str, now: float) -> None:
        # Calls may ask for any number of versions: what is over is forgotten.
        self._absences = {name: absence for name, absence in self._absences.items() if now < absence.until}
        self._absences[python] = _Absence(cause, now + self._seconds)

    def discard(self, python: str) -> None:
        """It was there after all."""
        self._absences.pop(python, None)

    def clear(self) -> None:
        """The image changed: nothing is known any more."""
        self._absences.clear()

    def text(self, python: str, now: float) -> str | None:
        """Why there is no sandbox of this version at present, in words for a caller; ``None`` when one may
        be made."""
        absence = self._absences.get(python)
        if absence is None or now >= absence.until:
            return None
        return f"no sandbox with Python {python} can be made: {absence.cause}"

    def moments(self) -> list[float]:
        """The instants at which one may be tried again."""
        return [absence.until for absence in self._absences.values()]
