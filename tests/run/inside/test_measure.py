import json
import subprocess
import sys

from python_exec_sandbox.run.inside import measure
from python_exec_sandbox.run.measuring import Measured


def test_it_runs_anywhere_and_says_nothing_of_what_it_can_not_see() -> None:
    done = subprocess.run(
        [sys.executable, "-I", measure.__file__],
        capture_output=True,
        timeout=50,
        check=True,
        env={"PATH": "/nonexistent"},
    )
    measured = Measured.model_validate_json(done.stdout)
    assert measured.uv is None
    assert measured.pythons == ()
    assert measured.uid >= 0
    assert measured.open_files


def test_values_of_variables_are_not_told() -> None:
    done = subprocess.run(
        [sys.executable, "-I", measure.__file__],
        capture_output=True,
        timeout=50,
        check=True,
        env={"PATH": "/nonexistent", "TOKEN": "hunter2"},
    )
    assert b"hunter2" not in done.stdout
    assert "TOKEN" in json.loads(done.stdout)["variables"]
