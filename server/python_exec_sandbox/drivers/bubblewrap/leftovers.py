"""What sandboxes left on this machine: control groups of dead servers, and the packages that were installed."""

from python_exec_sandbox.drivers.bubblewrap.workshop import Workshop
from python_exec_sandbox.drivers.leftovers import Kind, Leftover

TRIM_SECONDS = 300.0
"""Removing a hundred thousand files takes some seconds; a slow disk gets more."""


def find_leftovers(workshop: Workshop, *, environments: bool) -> list[Leftover]:
    """The ``environments`` of packages among it only if asked for. Call it in a worker thread."""
    found = []
    if count := workshop.groups.left():
        found.append(Leftover(Kind.GROUPS, str(count), "their servers are dead", ()))
    if environments and workshop.store is not None:
        root = str(workshop.store.root)
        found.append(
            Leftover(Kind.FOLDER, root, "installed packages; what a running script uses stays", (root,))
        )
    return found
