"""What a person is told of the machine that makes the sandboxes."""

from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Limit, LimitState, Means
from python_exec_sandbox.drivers.bubblewrap.host import Bwrap, Host
from python_exec_sandbox.drivers.bubblewrap.pythons import HostPython
from python_exec_sandbox.drivers.bubblewrap.telling import driver_facts

HOST = Host(
    bwrap=Bwrap(Path("/usr/bin/bwrap"), (0, 11, 0)),
    uv=Path("/usr/bin/uv"),
    pythons=(
        HostPython("3.12", "/usr/bin/python3.12"),
        HostPython("3.13", "/opt/python/3.13/bin/python3.13", Path("/somewhere/cpython-3.13")),
    ),
    system=(),
    resolver="",
)


def test_the_tools_and_every_python_are_named_with_their_places_on_this_machine() -> None:
    facts = driver_facts(HOST, "cgroup v2", ())
    assert dict(facts.lines) == {
        "bubblewrap": "0.11.0 at /usr/bin/bwrap",
        "limits kept by": "cgroup v2",
        "this machine's Pythons": "3.12 (/usr/bin/python3.12), 3.13 (/somewhere/cpython-3.13)",
        "this machine's uv": "/usr/bin/uv",
    }
    assert (facts.made_from, facts.pending) == (None, "")
    assert (facts.own_processes, facts.hides_cpus) == (0, False)


def test_a_limit_that_does_not_hold_for_the_whole_sandbox_is_a_warning_with_its_reason() -> None:
    states = (
        LimitState(Limit.MEMORY, Means.RLIMIT, "no group: be root."),
        LimitState(Limit.SWAP, Means.NOTHING, "no accounting."),
        LimitState(Limit.PROCESSES, Means.GROUP),
        LimitState(Limit.CPUS, Means.GROUP),
    )
    facts = driver_facts(HOST, "cgroup v1", states)
    lines = dict(facts.lines)
    assert lines["limits of a sandbox"] == "processes, cpus"
    assert lines["memory warning"] == "no group: be root."
    assert lines["swap warning"] == "no accounting."
    assert (facts.own_processes, facts.hides_cpus) == (3, True)
