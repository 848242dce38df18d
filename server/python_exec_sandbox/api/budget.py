"""What all sandboxes together may take of the machine's memory."""

import logging
import os
from dataclasses import dataclass

from python_exec_sandbox.setting_values import show_bytes


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """One line for the log, and how loudly it is said."""

    level: int
    text: str


def memory_budget(sandboxes: int, sandbox_bytes: int, machine_bytes: int | None) -> MemoryBudget:
    """``sandboxes`` of ``sandbox_bytes`` each against the machine's memory, where that is known.

    Limits are no reservations: above the machine's memory all is well until scripts use what they may.
    """
    total = sandboxes * sandbox_bytes
    text = f"sandboxes may use up to {show_bytes(total)} of memory ({sandboxes} of {show_bytes(sandbox_bytes)} each)"
    if machine_bytes is None:
        return MemoryBudget(logging.INFO, text)
    if total <= machine_bytes:
        return MemoryBudget(logging.INFO, f"{text}; this machine has {show_bytes(machine_bytes)}")
    fitting = machine_bytes // sandbox_bytes
    advice = f"--max-sandboxes to {fitting} or less, or lower --memory" if fitting else "--memory"
    return MemoryBudget(
        logging.WARNING,
        f"{text}, more than the {show_bytes(machine_bytes)} this machine has; lower {advice}",
    )


def machine_memory() -> int | None:
    """This machine's memory in bytes; ``None`` where the system doesn't tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):  # a name unknown to the system is a ValueError
        return None
