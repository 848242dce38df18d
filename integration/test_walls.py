"""Promise ONCE beyond files and processes: what the kernel shares per user, and the network between runs."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from docker.errors import APIError, NotFound

from integration.support.engine import Engine
from integration.support.servers import StartServer, text_of
from python_exec_sandbox.drivers.attached import AttachedSandbox
from python_exec_sandbox.drivers.base import Connection
from python_exec_sandbox.drivers.docker.driver import DockerDriver
from python_exec_sandbox.drivers.docker.network import NETWORK_NAME
from python_exec_sandbox.drivers.docker.options import DockerOptions, Network
from python_exec_sandbox.drivers.docker.users import FIRST_UID, SCRIPT_GID, UID_COUNT
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits, SandboxLimits
from python_exec_sandbox.model.result import OutputStream, Phase, RunReport

pytestmark = pytest.mark.anyio

LEAVE_SECONDS = 30.0
"""For sandboxes of the tests before to leave the network."""


class Watcher:
    """Keeps what is printed; ``printed`` is set by the first line."""

    def __init__(self) -> None:
        self.text = ""
        self.printed = anyio.Event()

    async def serve(self, connection: Connection) -> None: ...

    def phase(self, phase: Phase) -> None: ...

    async def output(self, stream: OutputStream, data: bytes) -> None:
        self.text += data.decode()
        if "\n" in self.text:
            self.printed.set()


async def run(sandbox: AttachedSandbox, script: str) -> tuple[str, RunReport]:
    """What one run printed, and its report."""
    watcher = Watcher()
    job = Job("r", script.encode(), "3.13", RunLimits(60))
    report = await sandbox.run(job, watcher)
    return watcher.text, report


@pytest.fixture
async def driver(engine: Engine) -> AsyncIterator[DockerDriver]:
    del engine  # only so that a test is skipped without one
    async with DockerDriver(DockerOptions()) as made:
        yield made


@pytest.fixture
async def pair(driver: DockerDriver) -> AsyncIterator[tuple[AttachedSandbox, AttachedSandbox]]:
    """Two sandboxes side by side."""
    first, second = await driver.create("3.13"), await driver.create("3.13")
    yield first, second
    await first.destroy()
    await second.destroy()


EXHAUST = """
import ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
made = 0
while made < 10_000 and libc.inotify_init1(0) >= 0:
    made += 1
print("made", made, "errno", ctypes.get_errno(), flush=True)
signal.pause()
"""
"""Takes every inotify instance that its user may have, and keeps them."""

TAKE_ONE = "import ctypes; print('got one' if ctypes.CDLL(None).inotify_init1(0) >= 0 else 'none left')"


def take_one_as(uid: int) -> str:
    """:data:`TAKE_ONE` outside of every container, as a person's own process; as this user where we may not change."""
    drop = f"import ctypes, os\nif os.geteuid() == 0: os.setresuid({uid}, {uid}, {uid})\n"
    done = subprocess.run(
        [sys.executable, "-c", drop + TAKE_ONE], capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout.strip()


def inotify_limit() -> int:
    return int(Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="ascii"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the engine's kernel is another machine's")
async def test_a_run_that_takes_all_inotify_instances_takes_them_from_nobody_else(engine: Engine) -> None:
    del engine
    limit = inotify_limit()
    watcher = Watcher()
    async with (
        # More descriptors than instances, or the test would show nothing.
        DockerDriver(DockerOptions(limits=SandboxLimits(open_files=limit + 64))) as driver,
        anyio.create_task_group() as tasks,
    ):
        greedy, beside = await driver.create("3.13"), await driver.create("3.13")

        async def exhaust() -> None:
            await greedy.run(Job("r", EXHAUST.encode(), "3.13", RunLimits(60)), watcher)

        tasks.start_soon(exhaust)
        with anyio.fail_after(60):
            await watcher.printed.wait()
        text, _ = await run(beside, TAKE_ONE)
        mine = await anyio.to_thread.run_sync(take_one_as, 1000)
        still = watcher.text
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await greedy.destroy()
            await beside.destroy()
    assert still == f"made {limit} errno 24\n"
    assert text == "got one\n"
    assert mine == "got one"


async def test_every_run_has_a_user_of_its_own_that_has_a_name_and_owns_its_folders(
    pair: tuple[AttachedSandbox, AttachedSandbox],
) -> None:
    script = (
        "import getpass, os, pwd\n"
        "me = pwd.getpwuid(os.getuid())\n"
        "print(os.getuid(), os.getgid(), os.getgroups(), me.pw_name, me.pw_dir, getpass.getuser())\n"
        "for folder in ('/work', '/tmp', '/home/sandbox', '/env'):\n"
        "    print(folder, oct(os.stat(folder).st_mode & 0o7777), os.stat(folder).st_uid == os.getuid())\n"
    )
    told = [(await run(sandbox, script))[0] for sandbox in pair]
    uids = [int(text.split()[0]) for text in told]
    assert len(set(uids)) == 2
    assert all(FIRST_UID <= uid < FIRST_UID + UID_COUNT for uid in uids)
    for text in told:
        assert text.partition(" ")[2] == (
            f"{SCRIPT_GID} [{SCRIPT_GID}] sandbox /home/sandbox sandbox\n"
            "/work 0o700 True\n/tmp 0o1777 True\n/home/sandbox 0o700 True\n/env 0o700 True\n"
        )


LISTEN = """
import socket, sys
tcp = socket.create_server(("0.0.0.0", 7070))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("0.0.0.0", 7070)); udp.settimeout(8)
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); probe.connect(("192.0.2.1", 9))
own = probe.getsockname()[0]
print(own, flush=True)
assert socket.create_connection((own, 7070), 2)  # it does listen
try: print("heard", udp.recvfrom(100))
except TimeoutError: print("heard nothing")
"""

CALL = """
import errno, socket
try: socket.create_connection(("ADDRESS", 7070), 4); print("connected")
except OSError as error: print("not connected", type(error).__name__)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for where in ("ADDRESS", "255.255.255.255"):
    try: udp.sendto(b"x", (where, 7070))
    except OSError: pass
"""


async def test_a_listener_in_one_run_is_out_of_reach_of_another(
    pair: tuple[AttachedSandbox, AttachedSandbox],
) -> None:
    listening, calling = pair
    watcher = Watcher()
    said = ""
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            await listening.run(Job("r", LISTEN.encode(), "3.13", RunLimits(60)), watcher)

        tasks.start_soon(listen)
        with anyio.fail_after(60):
            await watcher.printed.wait()
        address = watcher.text.split()[0]
        said, _ = await run(calling, CALL.replace("ADDRESS", address))
    assert said.startswith("not connected"), said
    assert watcher.text == f"{address}\nheard nothing\n"


async def test_packages_still_come_over_the_network_of_sandboxes(start_server: StartServer) -> None:
    async with start_server() as server:
        result = await server.execute("import six; print('six', six.__version__)", dependencies=["six"])
    assert "six 1." in text_of(result)


async def test_the_network_is_the_engines_own_word_for_no_traffic_between(
    engine: Engine, driver: DockerDriver
) -> None:
    sandbox = await driver.create("3.13")
    container = engine.client.containers.get(sandbox.id)
    [(name, endpoint)] = container.attrs["NetworkSettings"]["Networks"].items()
    network = engine.client.networks.get(endpoint["NetworkID"])
    await sandbox.destroy()
    assert network.attrs["Options"]["com.docker.network.bridge.enable_icc"] == "false"
    assert NETWORK_NAME in {name, network.name}


async def remove_network(engine: Engine) -> None:
    """Remove our network, once the last sandbox of the tests before has left it."""

    def removed() -> bool:
        for network in engine.client.networks.list(names=[f"^{NETWORK_NAME}$"]):
            try:
                network.remove()
            except NotFound:
                continue
            except APIError:
                return False
        return True

    with anyio.fail_after(LEAVE_SECONDS):
        while not await anyio.to_thread.run_sync(removed):
            await anyio.sleep(0.2)  # polls the engine


async def test_two_servers_that_make_the_network_at_once_agree_on_one(engine: Engine) -> None:
    await remove_network(engine)
    found: set[str] = set()

    async def make() -> None:
        async with DockerDriver(DockerOptions()) as driver:
            sandbox = await driver.create("3.13")
            container = engine.client.containers.get(sandbox.id)
            found.update(e["NetworkID"] for e in container.attrs["NetworkSettings"]["Networks"].values())
            await sandbox.destroy()

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(make)
    assert len(found) == 1


async def test_a_network_that_was_pruned_is_made_again(engine: Engine, driver: DockerDriver) -> None:
    first = await driver.create("3.13")
    await first.destroy()
    await remove_network(engine)
    second = await driver.create("3.13")
    text, _ = await run(second, "print('alive')")
    await second.destroy()
    assert text == "alive\n"


async def test_without_a_network_a_run_has_the_loopback_alone(engine: Engine) -> None:
    del engine
    async with DockerDriver(DockerOptions(network=Network.NONE)) as driver:
        sandbox = await driver.create("3.13")
        text, _ = await run(sandbox, "import os; print(os.listdir('/sys/class/net'))")
        await sandbox.destroy()
    assert text == "['lo']\n"
