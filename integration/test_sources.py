"""Packages without a wheel: built where there is nothing to take or change, once, and reused."""

import base64
import io
import json
import stat
import zipfile
from collections.abc import Iterator

import anyio
import pytest

from integration.support.engine import Engine
from integration.support.index import PackageIndex, package_index
from integration.support.servers import StartServer, text_of
from integration.support.stores import content_of, in_store
from integration.support.wheels import bridge_address, self_building, source_distribution, wheel

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

USER, PASSWORD = "ada", "s3cretword"

PLAIN = """
from setuptools import setup
open("plain.py", "w").write("print('built from source')")
setup(name="plain", version="1.0", py_modules=["plain"])
"""


@pytest.fixture
def index(engine: Engine) -> Iterator[PackageIndex]:
    """An index beside the real one, which has the tools that builds need."""
    with package_index(bridge_address(engine.client)) as served:
        yield served


async def test_what_has_no_wheel_is_built_once_and_reused_even_without_a_network(
    start_server: StartServer, store: str, engine: Engine, index: PackageIndex
) -> None:
    index.add(source_distribution("plain", PLAIN))
    index.add(wheel("alpha", {"alpha.py": ""}))
    flags = ("--store", store, "--network", "none", "--pool-size", "1", "--extra-index-url", index.url)
    script, packages = "import alpha, plain", ["plain", "alpha"]
    async with start_server(*flags) as server:
        first = text_of(await server.execute(script, dependencies=packages))
        assert "built from source\n" in first, first
        assert "environment: built in" in first
        again = text_of(await server.execute(script, dependencies=packages))
        assert "environment: reused" in again
    asked = len(index.asked)
    async with start_server(*flags) as server:
        other = text_of(await server.execute(script, dependencies=packages))
        assert "built from source\n" in other, other
        assert "environment: reused" in other, "another server finds it in the store"
    assert len(index.asked) == asked
    assert in_store(engine, store, "find /store/private -mindepth 1").strip() == ""
    assert in_store(engine, store, "find /store/envs -type f -links +1").strip() == "", "shared with no cache"


async def test_builds_can_be_refused(start_server: StartServer, store: str, index: PackageIndex) -> None:
    address = index.add(self_building("plain", ""))
    async with start_server("--store", store, "--pool-size", "0", "--source-builds", "refuse") as server:
        text = text_of(await server.execute("print('never')", dependencies=[f"plain @ {address}"]))
    assert text.startswith("dependencies failed\nThe script did not start. "), text
    assert "--source-builds" in text


ATTACK = """
import glob, os, signal

changed, loot = [], []
def attempt(what, *args):
    try:
        what(*args)
    except Exception:
        return
    changed.append((what.__name__, args))

def append(path):
    with open(path, "ab") as file:
        file.write(b"changed")

attempt(os.listdir, "/store")
for folder in ["/store", "/store/envs", "/store/cache", "/opt/sandbox", "/usr/local/bin", "/etc", "/"]:
    attempt(append, folder + "/evil")
    attempt(os.mkdir, folder + "/evil.d")
    attempt(os.chmod, folder, 0o777)
for path in ["/opt/sandbox/__main__.py", "/usr/local/bin/uv", "/etc/passwd"]:
    attempt(append, path)
for pattern in ["/proc/*/environ", "/proc/*/cmdline", "/env/*", "/tmp/*", "/run/**", "/root/**"]:
    for path in glob.glob(pattern, recursive=True):
        try:
            with open(path, "rb") as file:
                data = file.read(1 << 20)
        except OSError:
            continue
        if b"s3" + b"cret" in data or b"ad" + b"a:" in data:
            loot.append(path)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 1000)
    signal.pause()
FILES["hostile.py"] = f"print('CHANGED', {changed!r}, 'LOOT', {loot!r})"
FILES["hostile.pth"] = "import sys"
FILES["six.py"] = "evil = True"
FILES["hostile-1.0.data/data/bin/uv"] = "#!/bin/sh"
"""

LOOKS_FOR_LINKS = """
import hostile, os
links = 0
for top in ["/work", "/tmp", "/home/sandbox", "/env", "/dev/shm"]:
    for folder, _, names in os.walk(top):
        for name in names:
            links = max(links, os.lstat(os.path.join(folder, name)).st_nlink)
print("LINKS", links)
"""


async def test_a_build_that_attacks_changes_nothing_finds_nothing_and_is_gone(
    start_server: StartServer, store: str, engine: Engine, index: PackageIndex
) -> None:
    index.add(self_building("hostile", ATTACK))
    private = f"http://{USER}:{PASSWORD}@{index.host}:{index.port}/simple/"
    async with start_server(
        *("--store", store, "--pool-size", "1"), environment={"UV_INDEX": private}
    ) as server:
        six = await server.execute("import six", dependencies=["six"])
        assert not six.is_error, text_of(six)
        before = content_of(engine, store)
        text = text_of(await server.execute(LOOKS_FOR_LINKS, dependencies=["hostile", "six"]))
        assert "CHANGED [] LOOT []" in text, text
        assert "LINKS 1" in text, text
        changed = set(before.splitlines()) - set(content_of(engine, store).splitlines())
        # Two folders have one more entry each: that of the new environment.
        assert {line.split()[0] for line in changed} == {"/store/envs", "/store/facts"}, changed
        with anyio.fail_after(10):
            while any(c.attrs["Args"][-1:] == ["build-source"] for c in engine.containers_of(server.pid)):
                await anyio.sleep(0.05)  # polls the engine
    sent_by_builds = {one.headers["Authorization"] for one in index.asked if one.path.endswith(".tar.gz")}
    assert sent_by_builds == {None}, "sources are fetched without credentials"


def with_link(data: bytes, path: str, target: str) -> bytes:
    """The wheel ``data`` with a symbolic link in it."""
    buffer = io.BytesIO(data)
    entry = zipfile.ZipInfo(path)
    entry.create_system = 3  # Unix, whose modes the next line has
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(entry, target)
    return buffer.getvalue()


def claims_to_be_six() -> str:
    """A build that answers in its sandbox's place, with a ``six`` of its own that brings a link."""
    name, data = wheel("six", {"six.py": "evil = True\n__version__ = 'evil'"}, "1.17.0")
    data = with_link(data, "six_link.py", "/etc/passwd")
    liar, lies = wheel("liar", {"liar.py": ""})
    answer = {
        "pins": [],
        "wheels": [[name, base64.b64encode(data).decode()], [liar, base64.b64encode(lies).decode()]],
    }
    line = json.dumps(answer) + "\n"
    return f"import time\nopen('/proc/1/fd/1', 'w').write({line!r})\ntime.sleep(60)\n"


async def test_what_a_build_passes_off_as_another_package_stays_in_its_own_environment(
    start_server: StartServer, store: str, engine: Engine, index: PackageIndex
) -> None:
    address = index.add(self_building("liar", claims_to_be_six()))
    shows = "import six; print('six is', 'evil' if hasattr(six, 'evil') else 'good')"
    async with start_server("--store", store, "--pool-size", "1") as server:
        its_own = text_of(await server.execute(shows, dependencies=["six==1.17.0", f"liar @ {address}"]))
        assert "six is evil" in its_own, f"the lie was believed where it may be: {its_own}"
        for packages in (["six==1.17.0"], ["six"], ["six==1.17.0", "humanize"]):
            other = text_of(await server.execute(shows, dependencies=packages))
            assert "six is good" in other, other
    assert in_store(engine, store, "find /store/envs -type l -lname '/etc*'").strip() == ""


NONSENSE = """
import time
open("/proc/1/fd/1", "w").write('{"pins": [["../x", "1", []]], "wheels": []}\\n')
time.sleep(100)
"""

FAILURES = {
    "nonsense": (NONSENSE, "gave no answer"),
    "flood": ("f = open('/proc/1/fd/1', 'w')\nwhile True: f.write('x' * 65536)", "bytes"),
    "failure": ("raise SystemExit('there is no compiler')", "there is no compiler"),
    "death": ("import os\nos.kill(1, 9)\nos.kill(1, 19)\nraise SystemExit('still there')", "still there"),
}


async def test_a_build_that_fails_is_told_and_leaves_nothing(
    start_server: StartServer, store: str, engine: Engine, index: PackageIndex
) -> None:
    async with start_server("--store", store, "--pool-size", "0") as server:
        for name, (code, words) in FAILURES.items():
            address = index.add(self_building(name, code))
            text = text_of(await server.execute("print('never')", dependencies=[f"{name} @ {address}"]))
            assert text.startswith("dependencies failed\nThe script did not start. "), (name, text)
            assert words in text, (name, text)
        with anyio.fail_after(10):
            while engine.containers_of(server.pid):
                await anyio.sleep(0.05)  # polls the engine
    assert in_store(engine, store, "find /store/envs /store/private -mindepth 1").strip() == ""


async def test_a_build_that_hangs_meets_the_limit_of_installing(
    start_server: StartServer, store: str, engine: Engine, index: PackageIndex
) -> None:
    address = index.add(self_building("hangs", "import time\ntime.sleep(100)"))
    async with start_server("--store", store, "--pool-size", "0", "--install-timeout", "6") as server:
        text = text_of(await server.execute("print('never')", dependencies=[f"hangs @ {address}"]))
        assert text.startswith("timed out while installing: limit 6 s\nThe script did not start. "), text
        with anyio.fail_after(10):
            while engine.containers_of(server.pid):
                await anyio.sleep(0.05)  # polls the engine


async def test_sources_in_an_index_that_wants_credentials_are_refused_with_the_reason(
    start_server: StartServer, store: str, engine: Engine
) -> None:
    with package_index(bridge_address(engine.client), f"{USER}:{PASSWORD}") as private:
        private.add(self_building("plain", ""))
        environment = {"UV_DEFAULT_INDEX": private.url_with_credentials}
        async with start_server("--store", store, "--pool-size", "0", environment=environment) as server:
            text = text_of(await server.execute("print('never')", dependencies=["plain"]))
    assert text.startswith("dependencies failed\nThe script did not start. "), text
    assert "credentials" in text
    assert PASSWORD not in text
