"""What finished runs printed, kept for a while so that it can be read later. Pure."""

from collections import OrderedDict
from dataclasses import dataclass

from python_exec_sandbox.model.result import OutputStream
from python_exec_sandbox.stream.capture import Captured

KEPT_BYTES = 16 * 1024 * 1024
"""Of all runs together: with the default ``--max-output-bytes`` of 100 KiB some eighty runs that filled both
streams, and thousands that printed little."""

KEPT_RUNS = 500
"""Runs that are remembered, those that printed nothing included."""


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """What was kept of one run."""

    stdout: Captured
    stderr: Captured

    def of(self, stream: OutputStream) -> Captured:
        return self.stdout if stream is OutputStream.STDOUT else self.stderr

    @property
    def size(self) -> int:
        return sum(len(one.head) + len(one.tail) for one in (self.stdout, self.stderr))


class OutputStore:
    """Keeps at most ``max_bytes`` of output, of at most ``max_runs`` runs; the oldest goes first.

    The latest run is kept whatever its size, which its own limit bounds: so the store holds at most the
    larger of ``max_bytes`` and one run.
    """

    def __init__(self, max_bytes: int = KEPT_BYTES, max_runs: int = KEPT_RUNS) -> None:
        self._max_bytes = max_bytes
        self._max_runs = max_runs
        self._runs: OrderedDict[str, KeptOutput] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def size(self) -> int:
        """Bytes kept at present."""
        return self._bytes

    def keep(self, run_id: str, stdout: Captured, stderr: Captured) -> None:
        """Remember a finished run, and forget the oldest ones that no longer fit."""
        self._forget(run_id)
        self._runs[run_id] = KeptOutput(stdout, stderr)
        self._bytes += self._runs[run_id].size
        while len(self._runs) > 1 and (len(self._runs) > self._max_runs or self._bytes > self._max_bytes):
            self._forget(next(iter(self._runs)))

    def find(self, run_id: str) -> KeptOutput | None:
        """What was kept of a run; ``None`` when it is not, or no longer, known."""
        return self._runs.get(run_id)

    def _forget(self, run_id: str) -> None:
        if (gone := self._runs.pop(run_id, None)) is not None:
            self._bytes -= gone.size
