"""The real server over stdio on bubblewrap, with every engine out of reach."""

import os
import re
import signal
import socket
from pathlib import Path

import anyio
import pytest

from integration.support.native import (
    ORDINARY,
    any_python,
    as_ordinary_user,
    copy_python,
    why_no_bubblewrap,
)
from integration.support.native_servers import all_gone, family_of, native_server
from integration.support.servers import text_of
from python_exec_sandbox.drivers.bubblewrap.host import look

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.no_engine,
    pytest.mark.skipif(why_no_bubblewrap() is not None, reason=why_no_bubblewrap() or ""),
]

GONE_SECONDS = 2.0
"""The bound of promise KILL."""

READY_SECONDS = 30.0


async def test_a_script_runs_in_bubblewrap_and_no_engine_is_asked(tmp_path: Path) -> None:
    async with native_server(tmp_path) as server:
        result = await server.execute(
            "import os, sys\nprint('six times seven is', 6 * 7, os.getuid(), sys.prefix)"
        )
        text = text_of(result)
        assert not result.is_error, text
        assert text.startswith("exit 0")
        assert "six times seven is 42 1000 " in text
        assert "/home" not in text and "/root" not in text
        assert result.meta is not None and "bubblewrap" in str(result.meta)
        assert "sandbox bubblewrap" in text


@pytest.mark.parametrize("stage", ["warm", "running", "being made"])
async def test_nothing_is_left_of_a_server_that_was_killed(tmp_path: Path, stage: str) -> None:
    async with native_server(tmp_path, "--pool-size", "1") as server:
        if stage != "being made":
            await server.execute("print('first')")
        async with anyio.create_task_group() as tasks:
            if stage == "running":

                async def run() -> None:
                    with pytest.raises(Exception):  # noqa: B017 - whatever a client makes of a dead server
                        await server.execute(
                            "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
                            "    if os.fork(): os._exit(0)\nprint('up', flush=True)\ntime.sleep(60)"
                        )

                tasks.start_soon(run)
            with anyio.fail_after(READY_SECONDS):
                while len(family := family_of(server.pid)) < (8 if stage == "running" else 3):
                    await anyio.sleep(0.02)
            os.kill(server.pid, signal.SIGKILL)
            left = await all_gone(family, GONE_SECONDS)
            tasks.cancel_scope.cancel()
        assert not left


async def test_one_server_runs_every_python_of_the_machine_again_and_again(tmp_path: Path) -> None:
    versions = [python.version for python in look(dict(os.environ), Path.home()).pythons]
    script = "import sys; print('it is', '%d.%d' % sys.version_info[:2])"
    async with native_server(tmp_path, "--pool-size", "1") as server:
        for version in [*versions, *versions]:
            text = text_of(await server.execute(script, python_version=version))
            assert f"it is {version}" in text, text


READS_BESIDE_PYTHON = """
import os, sys
names = [os.path.join(folder, name) for folder, _, names in os.walk(sys.base_prefix) for name in names]
print(len(names) > 100, [name for name in names if "token" in name and "token" == os.path.basename(name)])
print(sys.base_prefix, os.listdir(sys.base_prefix))
"""


async def test_of_a_python_in_a_persons_own_folder_nothing_else_of_it_is_shown(tmp_path: Path) -> None:
    python, prefix = any_python()
    home = tmp_path / "home"
    copy_python(python, prefix, home / ".local")
    for folder in (home / ".local/share", home / ".local/lib", home / ".local/bin"):
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text("secret")
    own = {"HOME": str(home), "PATH": f"{home}/.local/bin:/usr/bin:/bin", "PYENV_ROOT": "/nonexistent"}
    async with native_server(tmp_path, "--python-version", python.version, **own) as server:
        text = text_of(await server.execute(READS_BESIDE_PYTHON))
    assert "True []\n/opt/python/" in text, text
    assert "share" not in text


async def test_a_killed_server_takes_nothing_of_its_sibling(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with native_server(tmp_path / "two") as sibling:
        await sibling.execute("print('warm')")
        async with native_server(tmp_path / "one") as server:
            await server.execute("print('warm')")
            os.kill(server.pid, signal.SIGKILL)
            assert not await all_gone({server.pid}, GONE_SECONDS)
        result = await sibling.execute("print('still here')")
        assert "still here" in text_of(result)


@pytest.mark.parametrize(
    ("attack", "network"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', PORT), 2); print('REACHED')", "none"),
        ("import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0NAME'); print('REACHED')", "none"),
        ("open('/proc/sys/kernel/core_pattern', 'w').write('x'); print('REACHED')", "full"),
        (
            "import os; assert os.listdir('/home') != ['sandbox'] or os.path.exists('/var'); print('REACHED')",
            "full",
        ),
        ("open('/dev/x', 'w'); print('REACHED')", "full"),
        *(
            (
                f"f = open('{folder}/f', 'wb')\nfor _ in range(140): f.write(bytes(1 << 20))\nprint('REACHED')",
                "full",
            )
            for folder in ("/tmp", "/dev/shm", "/home/sandbox", "/work")
        ),
        ("open('/x', 'w').write('x'); print('REACHED')", "full"),
        ("import os; os.unshare(os.CLONE_NEWUSER); print('REACHED')", "full"),
    ],
)
async def test_a_way_out_is_closed(tmp_path: Path, attack: str, network: str) -> None:
    name = f"of-a-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{name}")
        unix.listen()
        script = attack.replace("PORT", str(tcp.getsockname()[1])).replace("NAME", name)
        async with native_server(tmp_path, "--network", network) as server:
            text = text_of(await server.execute(script))
    assert "exit 1" in text.splitlines()[0], text
    assert not re.search(r"^REACHED", text, re.MULTILINE), text


async def test_no_process_shows_the_servers_environment(tmp_path: Path) -> None:
    script = (
        "import os\nseen = b''\nfor p in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for name in ('environ', 'cmdline'):\n"
        "        try: seen += open(f'/proc/{p}/{name}', 'rb').read()\n        except OSError: pass\n"
        "print(b'OF_THE_SERVER' in seen, sorted(filter(str.isdigit, os.listdir('/proc')), key=int)[0])"
    )
    async with native_server(tmp_path, SECRET="OF_THE_SERVER") as server:
        assert "False 1\n" in text_of(await server.execute(script)) + "\n"


async def test_without_bubblewrap_and_without_an_engine_the_answer_is_the_fix(tmp_path: Path) -> None:
    wrong = tmp_path / "uv"
    async with native_server(tmp_path, "--uv-path", str(wrong)) as server:
        result = await server.execute("print('REACHED')")
    text = text_of(result)
    assert result.is_error
    assert "uv was not found: install it" in text and "nothing was run" in text
    assert "REACHED" not in text


@pytest.mark.timeout(600)
def test_an_ordinary_user_sees_the_same() -> None:
    if ORDINARY in os.environ:
        return  # that is who runs this one
    done = as_ordinary_user(["-m", "pytest", __file__, "-q", "-p", "no:cacheprovider"])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
