"""The tools and commands through a real client on the real engine.

The ids are those of the reports that the cases were collected from: C are cases, W are faults.
"""

import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import docker
import pytest
from mcp.types import CallToolResult

from integration.support.engine import Engine
from integration.support.own_engine import OwnEngine, own_engine, why_not
from integration.support.servers import DOCKER, RunningServer, StartServer, running_server, text_of
from integration.support.stores import in_store, own_store
from python_exec_sandbox.drivers.docker.context import packaged_context, read_context
from python_exec_sandbox.settings import Settings

pytestmark = pytest.mark.anyio

COMMAND = (sys.executable, "-m", "python_exec_sandbox")

COMMAND_SECONDS = 120


@pytest.fixture
async def server(start_server: StartServer) -> AsyncIterator[RunningServer]:
    async with start_server("--pool-size", "1") as started:
        yield started


async def tool(server: RunningServer, name: str, **arguments: object) -> CallToolResult:
    return await server.client.call_tool(name, arguments)


def data_of(result: CallToolResult) -> dict[str, Any]:
    """What a result carries for programs, under our own key."""
    assert result.meta is not None
    [data] = [value for key, value in result.meta.items() if key.startswith("io.github.python-exec-sandbox/")]
    assert isinstance(data, dict)
    return data


def command(
    *arguments: str, env: Mapping[str, str] = os.environ, **options: Any
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        env={**env, **DOCKER},
        **options,
    )


# -- read_output -------------------------------------------------------------------------------------


async def test_all_that_was_kept_of_a_long_output_can_be_read(stdio_client: StartServer) -> None:
    async with stdio_client("--pool-size", "1", "--show-chars", "2000") as server:
        shown = text_of(await server.execute("for n in range(9000): print('line %05d' % n)"))
        run_id = shown.partition('run_id="')[2].partition('"')[0]
        text = ""
        offset: int | None = 0
        while offset is not None:
            result = await tool(server, "read_output", run_id=run_id, offset=offset, limit=30_000)
            assert not result.is_error
            text += text_of(result).partition("--- stdout ---\n")[2]
            offset = data_of(result)["next_offset"]
        assert text == "".join(f"line {n:05}\n" for n in range(9000))
        assert (await tool(server, "read_output", run_id="0123456789ab")).is_error


# -- validate_script ---------------------------------------------------------------------------------

BROKEN = """\
# /// script
# dependencies = ["not valid!"]
# ///
import os
open("/tmp/ran", "w")
if os
    pass
"""


async def test_a_broken_script_has_all_its_problems_with_their_lines(stdio_client: StartServer) -> None:
    async with stdio_client("--pool-size", "1") as server:
        result = await tool(server, "validate_script", script=BROKEN, dependencies=["--index-url=x"])
        shown = text_of(result)
        assert result.is_error
        assert shown.startswith("not valid: 3 problems")
        assert "line 2 of the script" in shown
        assert "--index-url" in shown
        assert "Line 6, column 6: SyntaxError: expected ':'" in shown
        assert "      if os\n           ^" in shown


@pytest.mark.parametrize(("python", "is_valid"), [("3.13", False), ("3.14", True)])
async def test_the_syntax_is_judged_by_the_very_python_that_would_run_it(
    server: RunningServer, python: str, is_valid: bool
) -> None:
    script = "try: pass\nexcept ValueError, TypeError: pass\n"  # without parentheses since 3.14
    result = await tool(server, "validate_script", script=script, python_version=python)
    assert result.is_error is not is_valid
    data = data_of(result)
    assert data["compiled_with"].startswith(f"{python}.")
    by_block = f'# /// script\n# requires-python = "=={python}.*"\n# ///\n{script}'
    assert (await tool(server, "validate_script", script=by_block)).is_error is not is_valid


async def test_versions_are_resolved_without_installing_and_what_keeps_them_is_said_as_in_a_run(
    start_server: StartServer, engine: Engine
) -> None:
    with own_store(engine) as store:
        async with start_server("--store", store, "--pool-size", "1", "--network", "none") as server:
            script = "import humanize"
            found = await tool(
                server, "validate_script", script=script, dependencies=["humanize"], resolve=True
            )
            assert not found.is_error, text_of(found)
            versions = data_of(found)["versions"]
            assert re.fullmatch(r"[\d.]+", versions["humanize"])
            assert f"Versions that would be installed: humanize {versions['humanize']}" in text_of(found)
            assert in_store(engine, store, "ls /store/envs") == ""
            run = await server.execute(
                "import importlib.metadata as m; print(m.version('humanize'))", dependencies=["humanize"]
            )
            assert versions["humanize"] in text_of(run)
            none = await tool(
                server,
                "validate_script",
                script=script,
                dependencies=["zz-surely-not-there-0815"],
                resolve=True,
            )
            assert none.is_error
            assert "There is no package zz-surely-not-there-0815" in text_of(none)


async def test_warnings_and_missing_packages_are_hints(server: RunningServer) -> None:
    script = "import numpy, yaml, json\nx = '\\d'\nif x is 'a': pass\n"
    result = await tool(server, "validate_script", script=script, dependencies=["numpy"])
    shown = text_of(result)
    assert not result.is_error
    assert "Warning: Line 2: SyntaxWarning" in shown
    assert "Warning: Line 3: SyntaxWarning" in shown
    assert "yaml (line 1)" in shown and '"pyyaml"' in shown
    assert "numpy (line" not in shown and "json (line" not in shown


HOSTILE = {
    "executes": ("import os\nprint('EXECUTED')\nos._exit(0)\n", "valid:"),
    "coding": ("# -*- coding: utf-8 -*-\n__import__('os')._exit(0)", "valid:"),
    "other coding": ("# -*- coding: utf-7 -*-\n+AGkAbQBwAG8AcgB0-", "not valid:"),
    "parentheses": ("(" * 100_000 + ")" * 100_000, "not valid:"),
    "minus": ("-" * 200_000 + "1", "not valid:"),
    "brackets": ("x = " + "[" * 150 + "]" * 150, "valid:"),
    "attributes": ("a" + ".b" * 100_000, "not valid:"),
    "lambdas": ("lambda: " * 20_000 + "0", "not valid:"),
    "numbers": ("x = " + "9" * 100_000, "not valid:"),
    "f-strings": ("f'{" * 200 + "1" + "}'" * 200, "not valid:"),
    "folding": ("x = ((('a' * 4000) * 4000) * 4000) * 4000\n" * 50, "valid:"),
    "separators": ("x = '\u2028'\x0c\ny = 1\n", "valid:"),
    "many lines": ("x = 1\n" * 500_000, ""),
}
"""Scripts, and how the answer begins; empty where that depends on the memory that a compiler takes."""


@pytest.mark.timeout(240)
async def test_no_script_makes_the_checker_run_it_or_hurts_the_server(server: RunningServer) -> None:
    for name, (script, verdict) in HOSTILE.items():
        began = time.monotonic()
        result = await tool(server, "validate_script", script=script)
        shown = text_of(result)
        verdicts = (verdict,) if verdict else ("valid:", "not valid:")
        assert shown.startswith(verdicts), (name, shown[:200])
        assert "EXECUTED" not in shown, name
        assert time.monotonic() - began < 30, name
        assert len(shown) < 4000, name
    assert text_of(await server.execute("print('still well')")).startswith("exit 0")


async def test_a_check_takes_no_place_from_runs_and_leaves_nothing_to_read(server: RunningServer) -> None:
    result = await tool(server, "validate_script", script="print(1)")
    assert "run_id" not in data_of(result)
    assert text_of(result) == (
        f"valid: Python {data_of(result)['compiled_with']} compiles the script\n"
        "[python 3.13; requirements: none; nothing was executed]"
    )


# -- check_environment and doctor --------------------------------------------------------------------


async def test_what_holds_in_a_sandbox_is_measured_there(stdio_client: StartServer) -> None:
    async with stdio_client("--pool-size", "1", "--network", "none", "--pids", "77") as server:
        first = await tool(server, "check_environment")
        assert not first.is_error
        shown, data = text_of(first), data_of(first)
        assert not [line for line in shown.splitlines() if line.startswith("! ")], shown
        measured = data["measured"]
        assert measured["uid"] >= 58000
        assert (measured["effective_capabilities"], measured["no_new_privileges"]) == ("0", 1)
        assert (measured["seccomp"], measured["devices"]) == (2, ["lo"])
        assert (measured["processes"], measured["root_is_read_only"]) == (77, True)
        assert [version[:4] for version in measured["pythons"]] == ["3.13", "3.14", "3.15"]
        await server.execute("print(1)")
        second = await tool(server, "check_environment")
        assert "measured earlier" in text_of(second)
        assert data_of(second)["pool"]["granted"] == data["pool"]["granted"] + 1


SETTINGS: dict[str, tuple[str, str, object]] = {
    "memory": ("--memory=640MiB", "memory_bytes", 640 << 20),
    "cpus": ("--cpus=0.5", "cpus", 0.5),
    "pids": ("--pids=99", "processes", 99),
    "python_version": ("--python-version=3.14", "python", "3.14"),
}


@pytest.mark.parametrize("name", SETTINGS)
async def test_w27_each_limit_changes_what_is_measured(start_server: StartServer, name: str) -> None:
    flag, key, wanted = SETTINGS[name]
    async with start_server("--pool-size", "0", flag) as server:
        found = data_of(await tool(server, "check_environment"))["measured"][key]
        assert str(found).startswith(wanted) if isinstance(wanted, str) else found == wanted


async def test_w27_the_disk_is_split_as_the_settings_say(start_server: StartServer) -> None:
    async with start_server("--pool-size", "0", "--disk", "64MiB", "--memory", "256MiB") as server:
        measured = data_of(await tool(server, "check_environment"))["measured"]
    shares = Settings(memory=256 << 20, disk=64 << 20, ca_bundle=None).sandbox_limits()
    sizes = {folder["path"]: folder["bytes"] for folder in measured["folders"]}
    for path in ("/work", "/tmp", "/dev/shm", "/home/sandbox"):
        assert sizes[path] == shares.disk_shares().of(path)
    assert sizes["/env"] == shares.environment_bytes


@pytest.mark.no_engine
@pytest.mark.parametrize("state", ["absent", "hung"])
async def test_with_a_sick_engine_each_tool_answers_within_seconds(state: str, tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        if state == "hung":  # it accepts, and never answers
            listener.bind(str(path))
            listener.listen(16)
        async with running_server(tmp_path, "--docker-host", f"unix://{path}") as server:
            began = time.monotonic()
            result = await tool(server, "check_environment")
            assert time.monotonic() - began < 10
            assert result.is_error
            assert str(path) in text_of(result) or "did not answer within" in text_of(result)
            assert "--docker-host" in text_of(result)
            checked = await tool(server, "validate_script", script=BROKEN)
            assert checked.is_error
            assert "line 2 of the script" in text_of(checked)
            assert "Syntax not checked:" in text_of(checked)
            read = await tool(server, "read_output", run_id="x")
            assert read.is_error


def test_doctor_shows_the_same_and_ends_with_0(engine: Engine) -> None:
    done = command("doctor")
    assert done.returncode == 0, done.stderr
    assert "  ✓ can run                  yes: one ran in a sandbox\n" in done.stdout
    assert "  ✓ memory                   512 MiB\n" in done.stdout
    assert "\x1b" not in done.stdout
    plain = command("doctor", env={"PATH": os.defpath, "PYTHONIOENCODING": "ascii"})
    assert plain.returncode == 0
    assert "  + can run                  yes" in plain.stdout


@pytest.mark.no_engine
async def test_without_a_sandbox_each_answer_says_so(tmp_path: Path) -> None:
    here = "{}.{}".format(*sys.version_info)
    flags = ("--sandbox-backend", "none", "--python-version", here)
    async with running_server(tmp_path, *flags) as server:
        environment = await tool(server, "check_environment")
        assert not environment.is_error, text_of(environment)
        assert "! can run: yes, but NOT sandboxed" in text_of(environment)
        assert "size of a file: 256 MiB" in text_of(environment)
        target = tmp_path / "ran"
        checked = await tool(server, "validate_script", script=f"open({str(target)!r}, 'w')")
        assert not checked.is_error
        assert "not sandboxed" in text_of(checked)
        assert not target.exists()
    done = await anyio.to_thread.run_sync(lambda: command("doctor", *flags))
    assert done.returncode == 0
    assert "  ! can run                  yes, but NOT sandboxed\n" in done.stdout


# -- prune -------------------------------------------------------------------------------------------


@pytest.fixture
def guest(engine: Engine) -> Iterator[OwnEngine]:
    """An engine of our own with the sandbox image on it: what is removed there is nobody else's."""
    if reason := why_not():
        pytest.skip(reason)
    with own_engine() as own:
        own.load(read_context(packaged_context(), None).tag, engine)
        yield own


@pytest.mark.timeout(300)
async def test_prune_removes_what_nobody_uses_and_leaves_a_living_server_alone(
    guest: OwnEngine, tmp_path: Path
) -> None:
    current = read_context(packaged_context(), None).tag
    with contextlib.closing(docker.DockerClient(base_url=guest.address)) as client:
        for number in ("1", "2"):
            client.api.commit(
                client.api.create_container(current)["Id"],
                repository="python-exec-sandbox",
                tag=f"old-{number}",
            )
        client.images.get(current).tag("my-own", "1")
        for container in client.containers.list(all=True):
            container.remove(force=True)
        client.networks.create("python-exec-sandbox", driver="bridge")
        flags = ("--docker-host", guest.address, "--network", "none", "--pool-size", "1")
        async with running_server(tmp_path, *flags) as server:
            assert not (await server.execute("print(1)")).is_error
            listed = await anyio.to_thread.run_sync(lambda: command("prune", *flags[:2]))
            assert listed.returncode == 0, listed.stderr
            assert (
                "python-exec-sandbox:old-1" in listed.stdout and "python-exec-sandbox:old-2" in listed.stdout
            )
            assert "Nothing was removed" in listed.stdout
            assert _tags(client) >= {current, "python-exec-sandbox:old-1", "my-own:1"}
            done = await anyio.to_thread.run_sync(lambda: command("prune", "--yes", *flags[:2]))
            assert done.returncode == 0, done.stdout + done.stderr
            assert _tags(client) == {current, "my-own:1"}
            assert "python-exec-sandbox" not in {network.name for network in client.networks.list()}
            assert not (await server.execute("print(1)")).is_error
        again = await anyio.to_thread.run_sync(lambda: command("prune", "--yes", *flags[:2]))
        assert "Nothing to remove" in again.stdout


def _tags(client: docker.DockerClient) -> set[str]:
    return {tag for image in client.images.list() for tag in image.tags}


# -- cases that concern the arguments and the text of a script ---------------------------------------

FOUND = "import importlib.util as u\nprint(bool(u.find_spec('humanize')), bool(u.find_spec('six')))"


@pytest.mark.parametrize(
    ("dependencies", "found"),
    [
        (["humanize"], "True False"),
        ('["humanize"]', "True False"),
        ("humanize", "True False"),
        ("humanize, six", "True True"),
        ("", "False False"),
        (None, "False False"),
        ([], "False False"),
    ],
)
async def test_c10_dependencies_in_the_shapes_that_clients_send(
    server: RunningServer, dependencies: object, found: str
) -> None:
    shown = text_of(await server.execute(FOUND, dependencies=dependencies, timeout_ms=1))
    assert f"--- stdout ---\n{found}\n" in shown
    assert "Ignored unknown argument 'timeout_ms'" in shown
    checked = await tool(server, "validate_script", script=FOUND, dependencies=dependencies, timeout_ms=1)
    assert not checked.is_error
    assert "Ignored unknown argument 'timeout_ms'" in text_of(checked)


@pytest.mark.parametrize("name", ["execute_python", "validate_script"])
async def test_c10_what_is_no_list_of_texts_is_refused_by_its_name(server: RunningServer, name: str) -> None:
    for wrong, place in (
        (["humanize", 3], "dependencies[1]: a number"),
        ({"a": 1}, "dependencies: an object"),
    ):
        result = await tool(server, name, script=FOUND, dependencies=wrong)
        assert result.is_error
        assert f"{place} is not accepted. Accepted: a list of texts" in text_of(result)


async def test_c10_the_schema_of_each_tool_is_one_flat_object(stdio_client: StartServer) -> None:
    async with stdio_client("--pool-size", "0") as server:
        tools = (await server.client.list_tools()).tools
        assert len(tools) == 4
        for one in tools:
            assert one.input_schema["type"] == "object"
            assert "properties" in one.input_schema
            assert not {"anyOf", "oneOf", "allOf", "$ref"} & one.input_schema.keys()


@pytest.mark.timeout(240)
async def test_c13_progress_comes_at_least_every_20_seconds_and_never_after_the_result(
    server: RunningServer,
) -> None:
    told: list[tuple[float, float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((time.monotonic(), progress, message))

    script = "import time\nfor i in range(5):\n    print('tick', i, flush=True); time.sleep(10)"
    began = time.monotonic()
    result = await server.client.call_tool(
        "execute_python", {"script": script, "timeout_seconds": 120}, progress_callback=note
    )
    ended = time.monotonic()
    moments = [began, *(moment for moment, _, _ in told), ended]
    assert max(later - earlier for earlier, later in itertools.pairwise(moments)) < 20
    values = [value for _, value, _ in told]
    assert values == sorted(set(values))
    assert all("tick " + str(n) in text_of(result) for n in range(5))
    count = len(told)
    await server.execute("import time; time.sleep(2)")
    assert len(told) == count


BLOCK = (
    '# /// script\n# dependencies = ["humanize"]\n# ///\nimport humanize; print(humanize.intcomma(12345))\n'
)

WELL_FORMED = {
    "byte order mark": "\ufeff" + BLOCK,
    "CRLF": BLOCK.replace("\n", "\r\n"),
    "lone CR": BLOCK.replace("\n", "\r"),
    "all before": "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n'''doc'''\n" + BLOCK,
}

MALFORMED = {
    "blank after the opener": (BLOCK.replace("# /// script", "# /// script "), "Line 1 "),
    "no blank": (BLOCK.replace("# dep", "#dep"), "line 2: after the '#'"),
    "empty line inside": (BLOCK.replace("# dep", "\n# dep"), "ine "),
    "two blocks": (BLOCK + BLOCK, "lines 1 and 5"),
    "unclosed list": (BLOCK.replace('"]', '"'), "ine "),
}


@pytest.mark.parametrize("variant", WELL_FORMED)
async def test_c14_w17_a_block_is_found_however_its_lines_end(server: RunningServer, variant: str) -> None:
    assert "--- stdout ---\n12,345\n" in text_of(await server.execute(WELL_FORMED[variant]))
    checked = await tool(server, "validate_script", script=WELL_FORMED[variant])
    assert "requirements: humanize;" in text_of(checked), text_of(checked)


@pytest.mark.parametrize("variant", MALFORMED)
async def test_c14_w17_a_malformed_block_is_one_error_with_its_line_and_nothing_runs(
    server: RunningServer, variant: str
) -> None:
    script, words = MALFORMED[variant]
    for name in ("execute_python", "validate_script"):
        result = await tool(server, name, script=script)
        assert result.is_error
        assert words in text_of(result), text_of(result)
        assert "--- stdout ---" not in text_of(result)


LINES = '''\
#!/usr/bin/env python3
"""doc"""
from __future__ import annotations
import sys, pathlib, six
print(__doc__, pathlib.Path(__file__).suffix, sys.argv[1:], __name__)
def f(): raise RuntimeError("raised on line 6")
f()  # called on line 7
'''


@pytest.mark.parametrize("given", ["argument", "block"])
async def test_c16_w16_lines_are_those_that_were_sent(server: RunningServer, given: str) -> None:
    block = '# /// script\n# dependencies = ["six"]\n# ///\n'
    script, shift = (
        (LINES, 0) if given == "argument" else (LINES.replace('"""doc"""\n', f'"""doc"""\n{block}'), 3)
    )
    arguments: dict[str, object] = {"dependencies": ["six"]} if given == "argument" else {}
    shown = text_of(await server.execute(script, args=["a b", "ü"], **arguments))
    assert "doc .py ['a b', 'ü'] __main__" in shown
    called, raised = shown.index(f"line {7 + shift}, in <module>"), shown.index(f"line {6 + shift}, in f")
    assert called < raised
    assert "f()  # called on line 7" in shown
    assert str(Path.home()) not in shown or str(Path.home()) == "/"
    assert "SyntaxError" not in shown


async def test_w18_markers_and_extras_of_both_are_kept_and_options_refused(server: RunningServer) -> None:
    script = '# /// script\n# dependencies = ["requests[socks]; python_version >= \'3\'"]\n# ///\nimport socks, six, requests; print("both")\n'
    shown = text_of(await server.execute(script, dependencies=["six; sys_platform == 'linux'"]))
    assert "--- stdout ---\nboth\n" in shown, shown
    checked = data_of(await tool(server, "validate_script", script=script, dependencies=["requests>=2"]))
    assert len(checked["requirements"]) == 2
    for name in ("execute_python", "validate_script"):
        refused = await tool(server, name, script=FOUND, dependencies=["--index-url=http://x"])
        assert refused.is_error and "--index-url" in text_of(refused)


@pytest.mark.parametrize(
    ("script", "first", "printed"),
    [
        (
            "import signal, os\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_DFL)\n    except OSError: pass\nos._exit(7)",
            "exit 7",
            "",
        ),
        ("import sys\nsys.exit('m')", "exit 1", "m"),
        ("import os\nos.system('echo hi')", "exit 0", "hi"),
        (
            "import signal, time\nsignal.alarm(0); signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on', flush=True)\ntime.sleep(60)",
            "timed out after 2 s",
            "on",
        ),
    ],
    ids=["signals", "exit text", "system", "ignores"],
)
async def test_w22_the_end_of_a_script_is_its_own(
    server: RunningServer, script: str, first: str, printed: str
) -> None:
    shown = text_of(await server.execute(script, timeout_seconds=2))
    assert shown.startswith(first), shown
    assert printed in shown


async def test_w28_nothing_of_the_servers_environment_is_in_a_scripts(start_server: StartServer) -> None:
    secrets = {"API_TOKEN": "hunter2-token", "PYTHON_EXEC_SANDBOX_LOG_LEVEL": "warning"}
    script = (
        "import glob, os\nseen = [str(dict(os.environ))]\n"
        "for path in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline'):\n"
        "    try: seen.append(open(path, 'rb').read().decode(errors='replace'))\n"
        "    except OSError: pass\n"
        "print('\\n'.join(seen).replace('\\0', '\\n'))"
    )
    async with start_server("--pool-size", "1", environment=secrets) as server:
        shown = text_of(await server.execute(script))
        assert "UV=" in shown or "'UV'" in shown
        assert "hunter2" not in shown and "API_TOKEN" not in shown and "LOG_LEVEL" not in shown
        environment = await tool(server, "check_environment")
        raw = json.dumps(environment.model_dump(mode="json", by_alias=True))
        assert "hunter2" not in raw and "API_TOKEN" not in raw
        assert "hunter2" not in server.log.read_text()
