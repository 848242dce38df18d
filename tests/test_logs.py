import logging
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("level", "effective"), [("debug", logging.INFO), ("info", logging.WARNING)])
def test_libraries_that_tell_each_request_are_quieter_than_the_server(level: str, effective: int) -> None:
    code = (
        "import logging; from python_exec_sandbox.logs import configure_logging;"
        f"from python_exec_sandbox.setting_values import LogLevel; configure_logging(LogLevel({level!r}));"
        "names = ['urllib3.connectionpool', 'docker.utils', 'httpx', 'mcp.server'];"
        "print(*{logging.getLogger(name).getEffectiveLevel() for name in names})"
    )
    assert int(subprocess.check_output([sys.executable, "-c", code], timeout=30)) == effective
