import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from python_exec_sandbox import __version__

COMMAND = (sys.executable, "-m", "python_exec_sandbox")


def run(
    *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        timeout=30,
        check=False,
        env={**os.environ, **(environment or {})},
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--memory", "5x"],
        ["--sandbox-backend", "native"],
        ["--sandbox-backend", "none"],
        ["--no-such-flag"],
        ["--config", "/no/such/file"],
        ["run"],
        ["run", "/no/such/script.py"],
        ["run", "-", "--timeout", "soon"],
        ["run", "-", "--max-timeout", "0"],
    ],
)
def test_wrong_use_is_one_line_on_stderr_and_exit_code_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"python-exec-sandbox: ")


def test_a_bad_variable_ends_the_server_the_same_way() -> None:
    done = run(environment={"PYTHON_EXEC_SANDBOX_POOL_SIZE": "many"})
    assert done.returncode == 2
    assert b"PYTHON_EXEC_SANDBOX_POOL_SIZE many" in done.stderr


def test_version_and_help_are_printed() -> None:
    assert run("--version").stdout.decode().strip() == f"python-exec-sandbox {__version__}"
    assert b"--pool-size NUMBER" in run("--help").stdout
    assert b"Exit codes" in run("run", "--help").stdout


def test_without_an_engine_run_ends_with_2_and_says_what_to_do() -> None:
    done = run("run", "-", stdin=b"print(1)", environment={"DOCKER_HOST": "unix:///no/such/engine.sock"})
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"/no/such/engine.sock" in done.stderr
    assert b"Start" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("script", [b"", b"\xff\xfe\xfa"])
def test_a_script_that_cannot_be_run_ends_with_2_without_an_engine(script: bytes) -> None:
    done = run("run", "-", stdin=script, environment={"DOCKER_HOST": "unix:///no/such/engine.sock"})
    assert done.returncode == 2
    assert b"script" in done.stderr
    assert b"Traceback" not in done.stderr


def test_flags_without_effect_are_accepted_and_told() -> None:
    done = run("--no-warm-cache", "--uv-path", "/opt/uv")
    assert done.returncode == 0
    assert b"--no-warm-cache has no effect yet" in done.stderr
    assert b"--uv-path has no effect yet" in done.stderr
    assert done.stdout == b""
