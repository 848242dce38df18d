"""An engine of a test's own, to be stopped and started: a second ``dockerd`` beside the machine's.

It has its own data, sockets and containerd under one folder, and a network namespace of its own: without
a bridge it would otherwise delete the machine's. Its containers therefore have no network either.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
from docker.errors import DockerException

from integration.support.engine import Engine, processes_of

START_SECONDS = 60.0
"""A start takes half a second, and many times that beside a machine's other work."""

STOP_SECONDS = 40.0
"""The engine gives containers 15 s to end before it leaves them."""

GONE_SECONDS = 10.0
"""For what is killed."""

LOAD_SECONDS = 150
"""The image's 400 MB through a pipe and onto the disk: 10 s on an idle machine."""

POLL_SECONDS = 0.05
"""Between two looks at another program, which sends no event."""

_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


class OwnEngine:
    """A ``dockerd`` under ``folder``, not running until :meth:`start`. All calls block within their bounds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / "engine.sock"
        self._log = folder / "engine.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"unix://{self._socket}"

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._process is not None

    def start(self) -> None:
        """Return once it answers."""
        assert self._process is None, "it runs already"
        self._socket.unlink(missing_ok=True)  # as a killed engine left it
        command = [
            *("unshare", "--net", "dockerd", "--bridge", "none", "--iptables=false"),
            *("--host", self.address, "--pidfile", str(self._folder / "pid")),
            # A control group of its own, for whose end no service manager is needed.
            *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{self._folder.name}"),
            *("--data-root", str(self._folder / "data"), "--exec-root", str(self._folder / "exec")),
        ]
        with self._log.open("ab") as log:
            # A session of its own: a Ctrl-C at the tests is not for it, they stop it themselves.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": _PATH},
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"it ended at once: {self._last_words()}"
            assert time.monotonic() < deadline, f"no answer after {START_SECONDS:g} s: {self._last_words()}"
            time.sleep(POLL_SECONDS)  # polls another program

    def stop(self) -> None:
        """As its service manager stops it: it ends its containers and leaves."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """It vanishes in the middle of whatever it does, with its containerd."""
        self._end(signal.SIGKILL)
        self._kill_rest()
        # Where nobody buries orphans it would be taken for alive.
        (self._folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def load(self, image: str, source: Engine) -> None:
        """Copy ``image`` from another engine."""
        with _client(self.address, LOAD_SECONDS) as client:
            data = source.client.images.get(image).save(named=image)
            client.images.load(data)  # type: ignore[arg-type]  # the SDK streams it; its types know only files

    def containers(self) -> list[str]:
        """Ids of all its containers, running or not; the engine must run."""
        with _client(self.address) as client:
            return [str(container.id) for container in client.containers.list(all=True, ignore_removed=True)]

    def runs(self, word: str) -> bool:
        """Whether a process with ``word`` in its command line is in any container; the engine must run."""
        with _client(self.address) as client:
            return any(word in processes_of(container) for container in client.containers.list())

    def close(self) -> None:
        """Stop it, and leave nothing: no process of it, no control group, no mount."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
        self._kill_rest()
        for group in self._groups():
            group.rmdir()
        for mount in sorted(self._mounts(), reverse=True):  # the inner ones first
            subprocess.run(["umount", mount], check=True, timeout=GONE_SECONDS, env={"PATH": _PATH})

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "it doesn't run"
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait(GONE_SECONDS)
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as probe:  # the SDK leaves its own open where nobody listens
                probe.connect(str(self._socket))
            with _client(self.address) as client:
                return bool(client.ping())
        except (DockerException, OSError):
            return False

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def _kill_rest(self) -> None:
        """Its containerd and what that started outlive an engine that was killed, containers too."""
        deadline = time.monotonic() + GONE_SECONDS
        while pids := self._pids():
            assert time.monotonic() < deadline, f"still there: {pids}"
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_SECONDS)  # polls another program

    def _pids(self) -> list[int]:
        """Processes of the engine, which were started with a path of ours, and of its containers."""
        procs = [group / "cgroup.procs" for group in self._groups()]
        found = [int(pid) for path in procs for pid in path.read_text().split()]
        needle = f"{self._folder}/".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    program = (entry / "exe").resolve().name
                    if (
                        program.startswith(("dockerd", "containerd"))
                        and needle in (entry / "cmdline").read_bytes()
                    ):
                        found.append(int(entry.name))
        return found

    def _groups(self) -> list[Path]:
        """Its control groups in each hierarchy, the inner ones first."""
        root = Path("/sys/fs/cgroup")
        own = [root / self._folder.name, *root.glob(f"*/{self._folder.name}")]
        inner = [path for group in own for path in group.rglob("*") if path.is_dir()]
        return sorted([*inner, *(group for group in own if group.is_dir())], reverse=True)

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [path for line in lines if (path := line.split()[4]).startswith(f"{self._folder}/")]


def why_not() -> str | None:
    """Why there can be no engine of a test's own here; ``None`` when there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "an engine of the test's own needs Linux and root"
    missing = [name for name in ("dockerd", "unshare", "umount") if shutil.which(name, path=_PATH) is None]
    return f"an engine of the test's own needs {' and '.join(missing)}" if missing else None


@contextlib.contextmanager
def own_engine() -> Iterator[OwnEngine]:
    """An engine that runs, without images; afterwards nothing of it is left."""
    # Not pytest's folder: the sockets' paths would be too long there.
    with tempfile.TemporaryDirectory(prefix="own-engine-") as folder:
        engine = OwnEngine(Path(folder))
        try:
            engine.start()
            yield engine
        finally:
            engine.close()


@contextlib.contextmanager
def _client(address: str, seconds: float = GONE_SECONDS) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=address, timeout=int(seconds))
    try:
        yield client
    finally:
        client.close()
