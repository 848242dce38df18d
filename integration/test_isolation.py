"""Promise ONCE through a real client: no run sees anything of another, before or beside it."""

import re
from collections.abc import AsyncIterator

import anyio
import pytest

from integration.support.servers import RunningServer, StartServer, text_of

pytestmark = pytest.mark.anyio

PAIRS = 200
AT_ONCE = 4

LEAVE_AND_LOOK = """
import glob, os, pathlib, sys, sysconfig, tempfile
purelib = sysconfig.get_paths()["purelib"]
places = ["/tmp", "/dev/shm", "/var/tmp", "/run", "/home/sandbox", "/env", "/opt", ".", tempfile.gettempdir(), purelib,
          os.path.expanduser("~/.local/lib"), os.path.expanduser("~/.cache"), os.path.dirname(sys.executable)]
found = sorted({path for place in places for path in glob.glob(place + "/**/*left_by*", recursive=True, include_hidden=True)})
found += [p for p in os.listdir("/proc") if p.isdigit() and b"left_by" in open(f"/proc/{p}/cmdline", "rb").read()]
import json
print("found", found, "left_by" in (json.__doc__ or ""), "usercustomize" in sys.modules and hasattr(sys.modules["usercustomize"], "left_by"))
wrote = 0
for place in places:
    for name in ("left_by", "left_by.pth", "usercustomize.py", "sitecustomize.py", "json.py", "left_by.py"):
        try:
            pathlib.Path(place).mkdir(parents=True, exist_ok=True)
            pathlib.Path(place, name).write_text("'left_by'\\nleft_by = 1\\n")
            wrote += 1
        except OSError:
            pass
if os.fork() == 0:
    os.setsid()
    os.execvp("sleep", ["left_by", "600"])
print("wrote", wrote > 10)
"""
"""Each run is the successor of some runs and the predecessor of others: it looks first, then leaves all it can."""


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server(start_server: StartServer, era: str) -> AsyncIterator[RunningServer]:
    async with start_server(
        "--pool-size", "4", "--max-sandboxes", "8", "--max-waiting", "300", mode=era
    ) as started:
        yield started


async def text(server: RunningServer, script: str, **arguments: object) -> str:
    return text_of(await server.execute(script, **arguments))


@pytest.mark.timeout(900)
async def test_w2_two_hundred_pairs_leave_nothing_to_each_other(start_server: StartServer) -> None:
    flags = ("--pool-size", "4", "--max-sandboxes", "8")
    async with start_server(*flags) as server:
        limiter = anyio.CapacityLimiter(AT_ONCE)
        wrong: list[str] = []

        async def one() -> None:
            async with limiter:
                shown = await text(server, LEAVE_AND_LOOK)
            if "found [] False False\nwrote True\n" not in shown:
                wrong.append(shown)

        async with anyio.create_task_group() as tasks:
            for _ in range(PAIRS + 1):
                tasks.start_soon(one)
    assert not wrong, wrong[0]


async def test_c4_the_second_run_sees_nothing_of_the_first(server: RunningServer) -> None:
    first = (
        "import os, pathlib, subprocess, sys, sysconfig\n"
        'for d in ["/tmp", str(pathlib.Path.home()), ".", "/dev/shm", "/var/tmp"]:\n'
        '    try: (pathlib.Path(d)/"left_by_a").write_text("x")\n    except OSError: pass\n'
        'try: pathlib.Path(sysconfig.get_paths()["purelib"], "usercustomize.py").write_text("print(\'A was here\')")\n'
        "except OSError: pass\n"
        'subprocess.Popen([sys.executable,"-c","import time; time.sleep(600)"], start_new_session=True)'
    )
    second = (
        "import pathlib, os\n"
        'print([p for r in ("/tmp","/dev/shm","/var/tmp",str(pathlib.Path.home()),".") for p in map(str,pathlib.Path(r).glob("*left_by_a*"))])\n'
        'print([p for p in os.listdir("/proc") if p.isdigit() and b"sleep(600)" in open(f"/proc/{p}/cmdline","rb").read()])'
    )
    with anyio.fail_after(30):  # A's child sleeps for ten minutes
        assert (await text(server, first)).startswith("exit 0")
    assert "--- stdout ---\n[]\n[]\n[" in await text(server, second)


async def test_c7_multiprocessing_and_shared_memory_work_under_the_hardened_defaults(
    server: RunningServer,
) -> None:
    script = (
        "import multiprocessing as mp\nfrom multiprocessing import shared_memory\ndef f(x): return x * x\n"
        'if __name__ == "__main__":\n'
        '    for kind in ("spawn", "fork", "forkserver"):\n'
        "        with mp.get_context(kind).Pool(2) as p: print(p.map(f, range(5)))\n"
        '    s = shared_memory.SharedMemory(create=True, size=8 << 20); s.buf[:4] = b"abcd"; print(bytes(s.buf[:4])); s.close(); s.unlink()\n'
        "    print(mp.Lock())\n"
        '    try: open("/usr/written", "w")\n    except OSError as e: print(e.strerror)'
    )
    shown = await text(server, script)
    squares = "[0, 1, 4, 9, 16]\n"
    assert re.search(
        r"--- stdout ---\n"
        + re.escape(squares * 3 + "b'abcd'\n")
        + r"<Lock\(.*\)>\nRead-only file system\n\[",
        shown,
    )
    assert "--- stderr ---" not in shown
    assert shown.startswith("exit 0")


async def test_two_runs_at_the_same_time_do_not_meet(server: RunningServer) -> None:
    script = (
        "import os, socket, time\nname = '\\0pes-meeting'\ns = socket.socket(socket.AF_UNIX)\n"
        "try: s.bind(name); s.listen(); print('bound')\nexcept OSError: print('taken')\n"
        "open('/dev/shm/meeting', 'x').close(); open('/tmp/meeting', 'x').close()\ntime.sleep(2)\n"
        "print(len([p for p in os.listdir('/proc') if p.isdigit() and b'script.py' in open(f'/proc/{p}/cmdline', 'rb').read()]))"
    )
    shown: list[str] = []

    async def one() -> None:
        shown.append(await text(server, script))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    assert all("--- stdout ---\nbound\n1\n[" in one for one in shown), shown
