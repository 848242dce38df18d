"""What the user's systemd is asked for, and how its refusals are told."""

from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.cgroup import scope
from python_exec_sandbox.drivers.bubblewrap.cgroup.groups import Unavailable
from python_exec_sandbox.drivers.identity import ServerIdentity

SERVER = ServerIdentity(100, "5000", "boot/pid:[1]")


@pytest.fixture
def busctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name which comes first, and does what a test writes into it."""
    monkeypatch.setattr(scope, "_SYSTEM_PATH", str(tmp_path))
    program = tmp_path / "busctl"
    program.touch(mode=0o755)
    return program


def test_the_call_moves_the_server_to_a_delegated_scope() -> None:
    words = scope.start_scope_arguments(SERVER)
    assert words[:5] == [
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        "python-exec-sandbox-100-5000.scope",
        "fail",
        "4",
    ]
    assert words[words.index("PIDs") :][:4] == ["PIDs", "au", "1", "100"]
    assert words[words.index("Delegate") :][:3] == ["Delegate", "b", "true"]
    assert words[-1] == "0"


def test_systemd_is_called_with_the_users_bus_and_no_other_variable(busctl: Path, tmp_path: Path) -> None:
    busctl.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nenv > {tmp_path}/variables\n')
    scope.ask_user_systemd(["StartTransientUnit", "s", "name"])
    words = (tmp_path / "words").read_text(encoding="utf-8")
    assert "--user" in words
    assert words.endswith("org.freedesktop.systemd1.Manager StartTransientUnit s name\n")
    names = {line.partition("=")[0] for line in (tmp_path / "variables").read_text().splitlines()}
    assert "XDG_RUNTIME_DIR" in names
    assert names <= {"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "LC_ALL", "PWD", "SHLVL", "_"}


def test_a_refusal_is_told_in_systemds_own_words(busctl: Path) -> None:
    busctl.write_text("#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n")
    with pytest.raises(Unavailable, match="No medium found"):
        scope.ask_user_systemd([])


def test_a_bus_that_hangs_is_given_up(busctl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "_ANSWER_SECONDS", -0.9)
    busctl.write_text("#!/bin/sh\nexec sleep 30\n")
    with pytest.raises(Unavailable, match="could not be asked"):
        scope.ask_user_systemd([])


def test_without_systemd_the_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "_SYSTEM_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="busctl"):
        scope.ask_user_systemd([])
