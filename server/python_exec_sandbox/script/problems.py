"""Gathers all that is wrong with one request, so that its caller can mend everything at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from python_exec_sandbox.errors import RequestError

SHOWN_PROBLEMS = 10
"""More would fill an answer without telling more."""


class Problems:
    """A list of sentences that becomes one :class:`RequestError`."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """What was noted, in order."""
        return tuple(self._texts)

    def add(self, text: str) -> None:
        """Note ``text``, a whole sentence that says what is wrong and what to do."""
        self._texts[text] = None

    def add_all(self, error: RequestError) -> None:
        """Note all that ``error`` says."""
        for text in error.args:
            self.add(str(text))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Turn a :class:`RequestError` raised inside into a noted problem, and go on after the block."""
        try:
            yield
        except RequestError as error:
            self.add_all(error)

    def raise_any(self) -> None:
        """Return when nothing was noted.

        Raises:
            RequestError: with each problem as one of its arguments; its text lists them.
        """
        if self._texts:
            raise _Gathered(*self._texts)


class _Gathered(RequestError):
    """Keeps its problems apart in ``args``, so that gathering can be nested."""

    def __str__(self) -> str:
        texts = [str(text) for text in self.args]
        if len(texts) == 1:
            return texts[0]
        lines = [f"{len(texts)} problems:", *(f"- {text}" for text in texts[:SHOWN_PROBLEMS])]
        if len(texts) > SHOWN_PROBLEMS:
            lines.append(f"- and {len(texts) - SHOWN_PROBLEMS} more")
        return "\n".join(lines)
