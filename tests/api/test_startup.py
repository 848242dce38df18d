import subprocess
import sys


def test_what_only_runs_need_is_not_imported_to_serve_and_the_protocol_not_to_run() -> None:
    def imported_by(module: str) -> set[str]:
        listing = f"import sys, {module}; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", listing], capture_output=True, check=True, timeout=30)
        return set(done.stdout.decode().split())

    serving = imported_by("python_exec_sandbox.cli, python_exec_sandbox.api.app")
    assert not {"docker", "requests", "urllib3", "tenacity", "packaging.requirements"} & serving
    assert not {"python_exec_sandbox.pool.pool", "python_exec_sandbox.drivers.docker"} & serving
    running = imported_by(
        "python_exec_sandbox.cli, python_exec_sandbox.api.once, python_exec_sandbox.api.backends"
    )
    assert not {"mcp", "mcp_types", "docker"} & running
