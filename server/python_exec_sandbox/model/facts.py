"""What a driver tells of itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """``lines`` are (name, text) pairs for a person, in their order.

    ``made_from`` identifies what sandboxes are made from at present (an image's id): what was measured in one
    holds for all that are made from the same; ``None`` when that isn't there yet or can't be told.
    ``pending`` says what must be made before the first sandbox, or is empty. ``own_processes`` is what a
    sandbox holds beside the script and its runner, and may hold on top of its limit of processes;
    ``hides_cpus`` says that the limit of processors holds although nothing inside shows it.
    """

    lines: tuple[tuple[str, str], ...] = ()
    made_from: str | None = None
    pending: str = ""
    own_processes: int = 0
    hides_cpus: bool = False
