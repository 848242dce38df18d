"""Control groups of the real kernel: what they limit, count and end. Needs no engine, but root or systemd."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.no_engine, pytest.mark.quick, pytest.mark.timeout(60)]

ROOT = Path(__file__).parent.parent


def started(scenario: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "integration.support.grouped", scenario]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def answer_of(text: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(text)
    if "none" in answer:
        pytest.skip(f"control groups can't be had here: {answer['none']}")
    return answer


def play(scenario: str) -> dict[str, Any]:
    child = started(scenario)
    try:
        printed = child.communicate(timeout=45)[0]
    finally:
        child.kill()
    assert child.returncode == 0
    return answer_of(printed)


def test_a_script_that_takes_too_much_memory_is_killed_and_counted() -> None:
    seen = play("memory")
    assert (seen["printed"], seen["code"]) == (["started"], -signal.SIGKILL)
    assert seen["memory_kills"] >= 1
    assert seen["peak_memory_bytes"] is None or 20 * 2**20 < seen["peak_memory_bytes"] <= 48 * 2**20


def test_forks_beyond_the_limit_are_refused_and_counted() -> None:
    seen = play("processes")
    assert seen["refused"] == 100 - 63  # itself is the 64th
    assert seen["refused_forks"] is None or seen["refused_forks"] >= 1
    assert seen["code"] == -signal.SIGKILL


def test_a_fork_bomb_in_new_sessions_is_emptied_at_once() -> None:
    seen = play("bomb")
    assert seen["inside"] > 50
    assert seen["left"] == []
    assert seen["seconds"] < 1


def test_half_a_processor_is_half_a_processor() -> None:
    assert play("cpu")["cpu_seconds"] < 0.75


def test_a_running_process_can_be_put_in_and_goes_with_the_group() -> None:
    seen = play("added")
    assert all(seen["inside"])
    assert not any(seen["there"])
    assert seen["code"] == -signal.SIGKILL


def test_what_a_killed_server_left_is_swept_by_the_next_and_by_none_while_it_lives() -> None:
    with started("abandon") as server:
        assert server.stdout is not None
        try:
            entrances = [Path(path) for path in answer_of(server.stdout.readline())["entrances"]]
            play("sweep")
            inside = [entrance.read_text(encoding="utf-8").split() for entrance in entrances]
            assert all(len(processes) == 1 for processes in inside)
        finally:
            server.kill()
    assert play("sweep")["swept"] >= 1  # others' servers may have left something too
    assert not any(entrance.exists() for entrance in entrances)  # only empty groups can be removed
