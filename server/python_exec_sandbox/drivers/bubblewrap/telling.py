"""What this machine makes sandboxes from, in words for a person."""

from collections.abc import Iterator, Sequence

from python_exec_sandbox.drivers.bubblewrap.argv import OWN_PROCESSES
from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Limit, LimitState, Means
from python_exec_sandbox.drivers.bubblewrap.host import Host
from python_exec_sandbox.drivers.bubblewrap.pythons import HostPython
from python_exec_sandbox.model.facts import DriverFacts


def driver_facts(host: Host, kind: str, limits: Sequence[LimitState]) -> DriverFacts:
    """The lines to show. ``kind`` says what keeps the limits.

    Nothing identifies what sandboxes are made from: the machine's own files may be others a moment later.
    """
    version = ".".join(map(str, host.bwrap.version))
    lines = [
        ("bubblewrap", f"{version} at {host.bwrap.path}"),
        ("limits kept by", kind),
        *_limits(limits),
        ("this machine's Pythons", ", ".join(map(_python, host.pythons))),
        ("this machine's uv", str(host.uv)),
    ]
    by_group = {state.limit for state in limits if state.means is Means.GROUP}
    return DriverFacts(
        tuple(lines),
        own_processes=OWN_PROCESSES if Limit.PROCESSES in by_group else 0,
        hides_cpus=Limit.CPUS in by_group,
    )


def _limits(limits: Sequence[LimitState]) -> Iterator[tuple[str, str]]:
    """Those that hold as they should on one line, each other one with the reason."""
    if whole := [str(state.limit) for state in limits if not state.reason]:
        yield "limits of a sandbox", ", ".join(whole)
    for state in limits:
        if state.reason:
            yield f"{state.limit} warning", state.reason


def _python(python: HostPython) -> str:
    return f"{python.version} ({python.prefix or python.executable})"
