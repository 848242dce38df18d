"""Living and dead servers, told apart by process id, start time and boot."""

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from python_exec_sandbox.drivers import identity
from python_exec_sandbox.drivers.docker.labels import container_labels, owner_of
from python_exec_sandbox.drivers.identity import Life, ServerIdentity, life_of, own_identity
from python_exec_sandbox.stream.protocol import PROTOCOL_VERSION


def test_this_process_is_alive() -> None:
    assert life_of(own_identity()) is Life.ALIVE


def test_a_process_id_that_was_given_to_another_process_is_a_dead_server() -> None:
    assert life_of(replace(own_identity(), start_time="long ago")) is Life.DEAD


def test_a_process_that_ended_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = identity.start_time(child.pid)
    assert started is not None
    server = replace(own_identity(), pid=child.pid, start_time=started)
    assert life_of(server) is Life.ALIVE
    child.kill()
    if sys.platform == "linux":
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert life_of(server) is Life.DEAD  # still a zombie, as long as nobody has asked for its status
    child.communicate()
    assert life_of(server) is Life.DEAD


@pytest.mark.parametrize("change", [{"boot_id": "other"}, {"boot_id": "unknown"}, {"start_time": "unknown"}])
def test_of_another_machine_or_boot_nothing_is_known(change: dict[str, str]) -> None:
    assert life_of(replace(own_identity(), pid=2**22 + 1, **change)) is Life.UNKNOWN


def test_where_the_system_tells_no_boot_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = own_identity()
    monkeypatch.setattr(identity, "boot_id", lambda: None)
    assert life_of(mine) is Life.UNKNOWN
    assert own_identity().boot_id == "unknown"


def test_labels_carry_the_owner_there_and_back() -> None:
    server = ServerIdentity(pid=4711, start_time="815", boot_id="b/pid:[1]")
    labels = container_labels("a1", server, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert owner_of(labels) == server
    assert labels["python-exec-sandbox.created"] == "2026-01-02T03:04:05+00:00"
    assert labels["python-exec-sandbox.protocol"] == str(PROTOCOL_VERSION)


@pytest.mark.parametrize("pid", ["", "x", "-1", "9" * 30, "²"])
def test_labels_that_name_no_process_have_no_owner(pid: str) -> None:
    labels = {"python-exec-sandbox.pid": pid, "python-exec-sandbox.start-time": "1"}
    assert owner_of(labels | {"python-exec-sandbox.boot-id": "b"}) is None
