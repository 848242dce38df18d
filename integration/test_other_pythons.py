"""Pythons that the image lacks, on the real engine: fetched from a list of downloads that the test serves."""

import hashlib
import io
import json
import platform
import secrets
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from integration.support.engine import Engine, sandbox_image
from integration.support.servers import StartServer, text_of
from integration.support.stores import in_store, own_store
from integration.support.wheels import FileServer, file_server, wheel
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.options import DockerOptions
from python_exec_sandbox.environments.store import EnvironmentStore
from python_exec_sandbox.model.result import Phase, Verdict
from python_exec_sandbox.pool.config import PoolConfig
from python_exec_sandbox.pool.pool import Pool
from python_exec_sandbox.run.executor import Executor
from python_exec_sandbox.run.records import ExecutorOptions, RunRequest, SilentListener

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

PACKED = """
set -e
python=$(readlink -f "$(sed 's/.*"3.14": "\\([^"]*\\)".*/\\1/' /opt/sandbox/pythons.json)")
home=$(dirname "$(dirname "$python")")
mkdir -p /packed/python/bin /packed/python/lib
cp "$python" /packed/python/bin/python3.14
ln -s python3.14 /packed/python/bin/python3
ln -s python3.14 /packed/python/bin/python
cp -r "$home/lib/python3.14" /packed/python/lib/
find /packed -type l -lname '/*' -delete
for library in "$home"/lib/libpython3*; do [ ! -e "$library" ] || cp "$library" /packed/python/lib/; done
find /packed -name '__pycache__' -o -name 'test' -type d | xargs rm -rf
tar -C /packed -czf /packed.tar.gz python
"""
"""The image's own 3.14, in the form in which uv gets Pythons."""


@pytest.fixture
def files(engine: Engine) -> Iterator[FileServer]:
    with file_server(engine.client) as server:
        yield server


def packed_python(engine: Engine) -> bytes:
    container = engine.client.containers.create(
        sandbox_image(engine), ["-c", PACKED], entrypoint="/bin/sh", user="0:0", network_mode="none"
    )
    try:
        container.start()
        assert container.wait(timeout=100)["StatusCode"] == 0, container.logs()
        stream, _ = container.get_archive("/packed.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            member = archive.extractfile("packed.tar.gz")
            assert member is not None
            return member.read()
    finally:
        container.remove(force=True)


def serve_python(engine: Engine, files: FileServer) -> str:
    """The address of a list of downloads with one entry: Python 3.14."""
    packed = packed_python(engine)
    url = files.add(("cpython-3.14.tar.gz", packed))
    entry = {
        "name": "cpython",
        "arch": {"family": platform.machine(), "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": 3,
        "minor": 14,
        "patch": 0,
        "prerelease": "",
        "url": url,
        "sha256": hashlib.sha256(packed).hexdigest(),
        "variant": None,
        "build": "20260101",
    }
    listed = {f"cpython-3.14.0-linux-{platform.machine()}-gnu": entry}
    return files.add(("pythons.json", json.dumps(listed).encode()))


@contextmanager
def image_without_3_14(engine: Engine) -> Iterator[str]:
    """The sandbox image, but that it knows of no Python but 3.13."""
    name = f"python-exec-sandbox-test:{secrets.token_hex(4)}"
    script = 'echo "$(sed \'s/.*\\("3.13": "[^"]*"\\).*/{\\1}/\' /opt/sandbox/pythons.json)" > /opt/sandbox/pythons.json'
    container = engine.client.containers.create(
        sandbox_image(engine), ["-c", script], entrypoint="/bin/sh", user="0:0", network_mode="none"
    )
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == 0
        base = engine.client.images.get(sandbox_image(engine)).attrs["Config"]
        changes = [
            f"ENTRYPOINT {json.dumps(base['Entrypoint'])}",
            f"CMD {json.dumps(base['Cmd'])}",
            "USER 0:0",
        ]
        container.commit(*name.split(":"), changes="\n".join(changes))
        yield name
    finally:
        container.remove(force=True)
        engine.client.images.remove(name, force=True)


class Told(SilentListener):
    def __init__(self) -> None:
        self.words: list[str] = []

    def phase(self, phase: Phase, detail: str) -> None:
        self.words.append(detail)


async def test_another_python_is_fetched_on_its_first_use_and_seen_read_only(
    engine: Engine, files: FileServer
) -> None:
    mirror = serve_python(engine, files)
    package = f"small @ {files.add(wheel('small', {'small.py': 'NAME = 1'}))}"
    script = (
        "import sys, os, ssl, sqlite3\n"
        "print(sys.version_info[:2], sys.base_prefix.startswith('/store/pythons/'))\n"
        "for folder in (sys.base_prefix, sys.prefix, os.path.dirname(os.__file__)):\n"
        "    try:\n"
        "        open(folder + '/mine', 'w')\n"
        "    except OSError as error:\n"
        "        print(type(error).__name__)\n"
        "print(os.path.exists(ssl.__cached__))\n"
    )
    told = Told()
    with own_store(engine) as volume, image_without_3_14(engine) as image:
        options = ExecutorOptions(driver="docker", pythons=("3.13",), fetched_pythons=("3.14",))
        async with (
            DockerDriver(DockerOptions(store=volume, image=image)) as driver,
            EnvironmentStore(driver, 3600.0, python_mirror=mirror) as store,
            Pool(driver, PoolConfig(default_python="3.13", idle_target=1, max_total=2)) as pool,
        ):
            runs = Executor(pool, options, store)
            first = await runs.run(RunRequest(script, python_version="3.14"), told)
            shown = (first.stdout.head + first.stdout.tail).decode()
            assert first.verdict is Verdict.OK, (first.headline, first.sentence, first.stderr)
            assert shown.splitlines()[0] == "(3, 14) True"
            assert shown.splitlines()[1:] == ["OSError"] * 3 + ["True"], (
                "read-only, and its own modules are compiled"
            )
            assert "installing Python 3.14: fetching Python 3.14" in told.words
            files.files.clear()
            again = await runs.run(RunRequest(script, python_version=">=3.14"))
            assert again.environment is not None
            assert again.environment.reused
            files.add(wheel("small", {"small.py": "NAME = 1"}))
            with_package = await runs.run(
                RunRequest("import small; print(small.NAME)", dependencies=(package,), python_version="3.14")
            )
            assert with_package.verdict is Verdict.OK, with_package.sentence
        assert in_store(engine, volume, "ls /store/pythons | grep -c '^cpython-3.14.0-'").strip() == "1"
    assert files.asked.count("/cpython-3.14.tar.gz") == 1


async def test_a_python_that_can_not_be_fetched_is_said_so_in_a_line_and_what_nobody_has_at_once(
    start_server: StartServer, engine: Engine, files: FileServer
) -> None:
    with own_store(engine) as store:
        mirror = f"{files.address}/nothing-here"
        async with start_server("--store", store, "--pool-size", "1", "--python-mirror", mirror) as server:
            result = await server.execute("print('never')", python_version="3.12")
            lines = text_of(result).splitlines()
            assert lines[0] == "no such Python"
            assert lines[1].startswith("The script did not start. The sandbox lacks the Python"), lines
            assert "404" in lines[1] and "3.13, 3.14, 3.15" in lines[1], lines
            asked = len(files.asked)
            old = "# /// script\n# requires-python = '<3.9'\n# ///\n"
            refused = await server.execute(f"{old}print('never')")
            assert "Available are 3.9, 3.10, 3.11, 3.12, 3.13, 3.14, 3.15" in text_of(refused)
            assert len(files.asked) == asked
        assert in_store(engine, store, "ls /store/envs") == ""
