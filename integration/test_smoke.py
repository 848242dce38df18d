"""The quick part: a real client, the real server, a real container, in both protocol eras."""

import subprocess
import sys

import pytest

from integration.support.servers import StartServer, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.quick]


async def test_a_script_runs_in_a_container_and_comes_back_with_what_it_printed(
    stdio_client: StartServer, era: str
) -> None:
    async with stdio_client() as server:
        result = await server.execute("import os\nprint('six times seven is', 6 * 7, 'uid', os.getuid())")
        assert (server.client.protocol_version >= "2026") == (era == "auto")
    assert not result.is_error
    text = text_of(result)
    assert text.startswith("exit 0")
    assert "six times seven is 42 uid " in text
    assert "uid 0" not in text


def test_the_run_command_passes_output_and_exit_code_through() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "python_exec_sandbox", "--sandbox-backend", "docker", "run", "-", "--", "a b"],
        input="import sys; print(sys.argv[1:]); print('oh', file=sys.stderr); sys.exit(7)",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "['a b']\n")
    assert "oh\n" in done.stderr
