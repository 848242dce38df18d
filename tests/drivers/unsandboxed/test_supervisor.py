"""The supervisor's parts; with a real script it is tested under integration/."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import python_exec_sandbox
from python_exec_sandbox.drivers.unsandboxed.differences import known_differences
from python_exec_sandbox.drivers.unsandboxed.folders import make_folder
from python_exec_sandbox.drivers.unsandboxed.rlimits import rlimits
from python_exec_sandbox.drivers.unsandboxed.supervisor import launch, loop, tree
from python_exec_sandbox.drivers.unsandboxed.supervisor.spec import SupervisorSpec
from python_exec_sandbox.model.limits import MIB, SandboxLimits
from python_exec_sandbox.stream import protocol

PACKAGES = str(Path(python_exec_sandbox.__file__).parent.parent)

linux_only = pytest.mark.skipif(not tree.HAS_PROC, reason="reaping of orphans and /proc are Linux's")


def bare(code: str, timeout: float = 20) -> subprocess.CompletedProcess[str]:
    """Run ``code`` as the driver runs a supervisor: no site-packages, nothing of the environment."""
    setup = f"import sys; sys.path.append({PACKAGES!r});"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", setup + code],
        env={},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_a_bare_interpreter_has_all_that_the_supervisor_imports() -> None:
    done = bare(
        "import python_exec_sandbox.drivers.unsandboxed.supervisor.main as m;"
        "print(sorted(n for n in ('anyio', 'pydantic', 'mcp', 'docker', 'asyncio', 'ctypes') if n in sys.modules))"
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_its_words_of_the_protocol_are_the_servers() -> None:
    ours = (loop.PROTOCOL_VERSION, loop.WINDOW_BYTES, loop.STDIN, loop.STDOUT, loop.STDERR, loop.SCRIPT)
    assert ours == (
        protocol.PROTOCOL_VERSION,
        protocol.WINDOW_BYTES,
        protocol.STDIN,
        protocol.STDOUT,
        protocol.STDERR,
        protocol.SCRIPT,
    )


def test_what_it_is_told_survives_its_command_line() -> None:
    spec = SupervisorSpec("/uv", "/f ü", {"3.13": "/p"}, {"CORE": 0}, ("A", "B"), 1.5, 128, 3, 4)
    assert SupervisorSpec.from_json(spec.to_json()) == spec


def test_limits_are_those_of_the_settings() -> None:
    limits = SandboxLimits(memory_bytes=300 * MIB, disk_bytes=64 * MIB, open_files=99)
    assert rlimits(limits) == {"DATA": 300 * MIB, "FSIZE": 64 * MIB, "NOFILE": 99, "CORE": 0}


def test_each_system_is_told_what_does_not_hold_on_it() -> None:
    linux, macos = known_differences("linux"), known_differences("darwin")
    assert set(linux) & set(macos)
    assert any("root" in text for text in set(linux) - set(macos))
    assert any("process group outlives" in text for text in set(macos) - set(linux))


def test_the_launcher_becomes_the_script_with_its_limits_and_without_uvs_variables(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text(
        "import os, resource, sys\nsys.stderr.write('its own stderr')\n"
        "print(sys.argv[1:], os.getpid(), resource.getrlimit(resource.RLIMIT_NOFILE), sorted(os.environ))\n"
    )
    report_out, report_in = os.pipe()
    go_out, go_in = os.pipe()
    err_out, err_in = os.pipe()
    told = (
        f'{{"report_fd": {report_in}, "go_fd": {go_out}, "stderr_fd": {err_in}, "uv_only": ["SECRET"],'
        ' "rlimits": {"NOFILE": 50, "NO_SUCH": 1}}'
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(launch.__file__), told, str(script), "a b"],
        env={"SECRET": "x", "LANG": "C.UTF-8"},
        pass_fds=(report_in, go_out, err_in),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        pid = int(os.read(report_out, 64))
        os.write(go_in, b"g")
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0
    os.close(err_in)
    assert (out, err) == (f"['a b'] {pid} (50, 50) ['LANG']\n", "")
    assert os.read(err_out, 100) == b"its own stderr"
    assert pid == process.pid
    for fd in (report_out, report_in, go_out, go_in, err_out):
        os.close(fd)


@linux_only
def test_orphans_in_sessions_of_their_own_are_the_reapers_and_end_with_the_rest() -> None:
    done = bare(
        "import os, signal, time\n"
        "from python_exec_sandbox.drivers.unsandboxed.supervisor import tree\n"
        "tree.become_reaper()\n"
        "r, w = os.pipe()\n"
        "first = os.fork()\n"
        "if first == 0:\n"
        "    os.setsid()\n"
        "    for _ in range(5):\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n"
        "            os.write(w, b'x')\n"
        "            time.sleep(60)\n"
        "    os._exit(3)\n"
        "seen = b''\n"
        "while len(seen) < 5: seen += os.read(r, 5)\n"
        "children = tree.Children(); children.watch(first)\n"
        "children.wait_for(first, 5)\n"
        "print(os.waitstatus_to_exitcode(children.status(first)), len(tree.descendants(os.getpid())))\n"
        "print(children.end_all(first), len(tree.descendants(os.getpid())))\n"
    )
    assert (done.stdout, done.stderr) == ("3 5\nTrue 0\n", "")


@linux_only
def test_a_supervisor_whose_server_is_gone_leaves_neither_process_nor_folder(tmp_path: Path) -> None:
    made = make_folder(tmp_path)
    ours, theirs = socket.socketpair()
    spec = SupervisorSpec("/uv", made.path, {}, {}, (), 1.0, 8, theirs.fileno(), made.lock_fd)
    start = (
        f"import sys; sys.path.append({PACKAGES!r});"
        "from python_exec_sandbox.drivers.unsandboxed.supervisor.main import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", start, spec.to_json()], pass_fds=(theirs.fileno(), made.lock_fd)
    ) as process:
        theirs.close()
        os.close(made.lock_fd)
        assert b'"hello"' in ours.recv(4096)
        began = time.monotonic()
        ours.close()
        assert process.wait(timeout=10) == 0
        assert time.monotonic() - began < 2
    assert not list(tmp_path.iterdir())
