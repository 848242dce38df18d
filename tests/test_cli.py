import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from python_exec_sandbox import __version__

COMMAND = (sys.executable, "-m", "python_exec_sandbox")


DOCKER = {"PYTHON_EXEC_SANDBOX_SANDBOX_BACKEND": "docker"}
"""What an answer is about must not depend on whether this machine has bubblewrap; a flag beats it."""


def run(
    *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        timeout=30,
        check=False,
        env={**os.environ, **DOCKER, **(environment or {})},
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--memory", "5x"],
        ["--sandbox-backend", "podman"],
        ["--sandbox-backend", "none", "--network", "none"],
        ["--no-such-flag"],
        ["--config", "/no/such/file"],
        ["run"],
        ["run", "/no/such/script.py"],
        ["run", "-", "--timeout", "soon"],
        ["run", "-", "--max-timeout", "0"],
        ["run", "-", "--timeout", "0"],
        ["run", "-", "--timeout", "900"],
        ["run", "-", "--python-version", "3.12"],
        ["--python-version", "3.12"],
    ],
)
def test_wrong_use_is_one_line_on_stderr_and_exit_code_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"python-exec-sandbox: ")


@pytest.mark.parametrize("where", ["flag", "variable", "file"])
def test_a_name_that_is_no_setting_is_one_line_and_exit_code_2_wherever_it_is_written(
    where: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("sandbox-backnd = 'none'\n")
    arguments = {"flag": ["--sandbox-backnd", "none"], "file": ["--config", str(file)]}.get(where, [])
    environment = {"PYTHON_EXEC_SANDBOX_SANDBOX_BACKND": "none"} if where == "variable" else {}
    done = run(*arguments, environment=environment)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"unknown" in done.stderr and b"did you mean" in done.stderr


def test_a_bad_variable_ends_the_server_the_same_way() -> None:
    done = run(environment={"PYTHON_EXEC_SANDBOX_POOL_SIZE": "many"})
    assert done.returncode == 2
    assert b"PYTHON_EXEC_SANDBOX_POOL_SIZE many" in done.stderr


def test_version_and_help_are_printed() -> None:
    assert run("--version").stdout.decode().strip() == f"python-exec-sandbox {__version__}"
    for argument in ("-V", "version"):
        assert run(argument).stdout == run("--version").stdout
    assert b"--pool-size NUMBER" in run("--help").stdout
    assert run("help").stdout == run("--help").stdout
    assert run("help", "run").stdout == run("run", "--help").stdout
    misspelt = run("help", "docter")
    assert misspelt.returncode == 2
    assert b"unknown command docter; did you mean doctor?" in misspelt.stderr
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


def test_flags_without_effect_are_accepted_and_told_with_the_reason() -> None:
    done = run("--base-image", "x", "--image", "y", "--uv-path", "/opt/uv")
    assert done.returncode == 0
    assert b"--base-image has no effect: --image is given, so that none is built" in done.stderr
    assert b"--uv-path has no effect: uv is part of the image" in done.stderr
    assert b"NOT sandboxed" not in done.stderr
    assert done.stdout == b""


def test_a_default_given_by_an_old_configuration_is_not_worth_a_line() -> None:
    assert b"no effect" not in run("--uv-path", "uv").stderr


def test_certificates_that_the_environment_names_and_that_are_not_there_are_told() -> None:
    done = run(environment={"SSL_CERT_FILE": "/no/such/bundle.pem"})
    assert b"SSL_CERT_FILE names /no/such/bundle.pem, which is no file" in done.stderr


def test_without_standard_descriptors_it_ends_without_a_traceback() -> None:
    for closed in ("0<&-", "1>&-", "0<&- 1>&-", "0<&- 1>&- 2>&-"):
        command = f'exec "$@" {closed}'
        if "0<&-" not in closed:
            command += " </dev/null"
        done = subprocess.run(
            ["/bin/sh", "-c", command, "sh", sys.executable, "-m", "python_exec_sandbox"],
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), (closed, done)


def test_a_server_without_sandboxes_says_so_at_its_start_with_what_has_no_effect_then() -> None:
    done = run("--sandbox-backend", "none", "--image", "a:b", "--uv-path", "/opt/uv")
    assert done.returncode == 0
    assert b"scripts are NOT sandboxed; they have all rights of this user" in done.stderr
    assert b"--image has no effect: --sandbox-backend none makes no containers" in done.stderr
    assert b"--uv-path has no effect" not in done.stderr


def test_a_time_out_that_is_too_long_is_told_by_the_flags_own_name() -> None:
    done = run("run", "-", "--timeout", "900", stdin=b"print(1)")
    assert b"--timeout 900 is above --max-timeout 300" in done.stderr


def test_a_file_that_is_no_utf8_is_named_with_the_byte_and_its_line(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_bytes(b"# caf\xe9\n")
    done = run("run", str(script))
    assert done.returncode == 2
    assert f"{script} is not UTF-8 (byte 0xe9 in line 1)".encode() in done.stderr


def test_on_a_terminal_the_bare_command_says_what_it_is() -> None:
    terminal, ours = os.openpty()
    try:
        with subprocess.Popen(
            COMMAND, stdin=ours, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as server:
            assert server.stderr is not None
            first = server.stderr.readline()
            server.terminate()
            assert server.wait(timeout=20) == 143
    finally:
        os.close(ours)
        os.close(terminal)
    assert first.startswith(
        b"This is an MCP server; a client starts it. Try: python-exec-sandbox run FILE, or --help"
    )


def test_each_command_is_in_the_help_and_has_its_own() -> None:
    overview = run("--help").stdout.decode()
    for command in ("run", "doctor", "prune"):
        assert f"python-exec-sandbox {command} " in overview
        own = run(command, "--help").stdout.decode()
        assert own.startswith(f"usage: python-exec-sandbox {command} ")
        assert "Exit codes" in own
        assert run("help", command).stdout.decode() == own
    assert all(len(line) <= 120 for line in overview.splitlines())


def test_without_an_engine_doctor_ends_with_1_and_says_what_to_do() -> None:
    done = run("doctor", "--docker-host", "unix:///no/such/engine.sock")
    assert done.returncode == 1
    assert b"/no/such/engine.sock" in done.stdout
    assert b"-> No container engine could be used." in done.stdout
    assert b"Start" in done.stdout
    assert b"\x1b" not in done.stdout
    assert b"Traceback" not in done.stderr


def test_without_an_engine_prune_ends_with_2_and_removes_nothing() -> None:
    done = run("prune", "--yes", "--docker-host", "unix:///no/such/engine.sock")
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"/no/such/engine.sock" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["docter"], "did you mean doctor?"),
        (["doctor", "now"], "now means nothing here"),
        (["prune", "--yess"], "did you mean --yes?"),
        (["doctor", "--yes"], "unknown option --yes"),
        (["doctor", "--", "x"], "arguments after -- belong to a script"),
        (["prune", "--memory", "5x"], "--memory 5x is not a size"),
    ],
)
def test_wrong_use_of_a_command_is_told_in_one_line(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_options_may_stand_before_a_command() -> None:
    done = run("--docker-host", "unix:///no/such/engine.sock", "doctor")
    assert done.returncode == 1
    assert b"/no/such/engine.sock" in done.stdout
