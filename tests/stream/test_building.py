import json
from typing import Any

import pytest

from python_exec_sandbox.errors import ProtocolViolation
from python_exec_sandbox.model.environment import (
    BuildFailed,
    BuildFault,
    BuildRequest,
    BuiltEnvironment,
    Package,
    Resolved,
    Trimmed,
    Warmed,
)
from python_exec_sandbox.stream.building import MAX_PACKAGES, MAX_WORDS, Progress, parse_message, request_line

BUILT: dict[str, Any] = {
    "type": "built",
    "id": "0123456789abcdef" * 2,
    "reused": True,
    "packages": [["six", "1.17.0"]],
    "fresh_seconds": 12.5,
}


def test_a_request_is_one_line_of_what_the_builder_needs() -> None:
    used = ((f"/store/envs/{BUILT['id']}", 1.5),)
    line = request_line(
        BuildRequest("3.13", ("six", "a>=1"), resolution_seconds=60.0, store_bytes=77, used=used)
    )
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "task": "build",
        "python": "3.13",
        "requirements": ["six", "a>=1"],
        "resolution_seconds": 60.0,
        "store_bytes": 77,
        "used": {BUILT["id"]: 1.5},
        "installer": {"config": "", "variables": {}, "certificates": ""},
        "from_source": False,
        "python_mirror": "",
    }


def test_what_a_builder_says_becomes_values() -> None:
    path = f"/store/envs/{BUILT['id']}"
    assert parse_message(BUILT) == BuiltEnvironment(path, (Package("six", "1.17.0"),), True, 12.5)
    pinned = parse_message(BUILT | {"fresh_seconds": None})
    assert isinstance(pinned, BuiltEnvironment)
    assert pinned.fresh_seconds is None
    failed = parse_message({"type": "failed", "cause": "installer", "text": "no"})
    assert failed == BuildFailed(BuildFault.INSTALLER, "no")
    resolved = {"type": "resolved", "packages": [["six", "1.17.0"]]}
    assert parse_message(resolved) == Resolved((Package("six", "1.17.0"),))
    assert parse_message({"type": "warmed", "package": "six", "left": 3}) == Warmed("six", 3)
    assert parse_message({"type": "trimmed", "freed": 7}) == Trimmed(7)
    assert parse_message({"type": "progress", "words": "x" * 1000}) == Progress("x" * MAX_WORDS)


def test_lone_surrogates_do_not_come_through() -> None:
    said = parse_message({"type": "failed", "cause": "fault", "text": "\udcff"})
    assert isinstance(said, BuildFailed)
    said.text.encode()


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"type": "built"},
        BUILT | {"id": "../../etc"},
        BUILT | {"id": BUILT["id"] + "\n"},
        BUILT | {"id": BUILT["id"].upper()},
        BUILT | {"reused": 1},
        BUILT | {"packages": "six"},
        BUILT | {"packages": [["six"]]},
        BUILT | {"packages": [["six", 1]]},
        BUILT | {"packages": [["x" * 257, "1"]]},
        BUILT | {"packages": [["six", "1"]] * (MAX_PACKAGES + 1)},
        BUILT | {"fresh_seconds": "soon"},
        {"type": "failed", "cause": "time", "text": ""},
        {"type": "failed", "cause": "whim", "text": ""},
        {"type": "failed", "cause": "installer", "text": None},
        {"type": "progress", "words": 1},
        {"type": "trimmed", "freed": "all"},
        {"type": "warmed", "package": "six", "left": "all"},
        {"type": "resolved", "packages": [["six", "1"]] * (MAX_PACKAGES + 1)},
        {"type": "resolved", "packages": {"six": "1"}},
    ],
)
def test_what_no_builder_says_is_a_violation(message: dict[str, Any]) -> None:
    with pytest.raises(ProtocolViolation):
        parse_message(message)
