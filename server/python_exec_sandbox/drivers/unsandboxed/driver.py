"""Runs scripts on the machine itself. There is no sandbox: only for those who asked for it by name."""

import contextlib
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import anyio
import anyio.abc
import anyio.to_thread

import python_exec_sandbox
from python_exec_sandbox.drivers.attached import AttachedSandbox
from python_exec_sandbox.drivers.socket_channel import SocketChannel
from python_exec_sandbox.drivers.unsandboxed import folders
from python_exec_sandbox.drivers.unsandboxed.environment import script_environment, uv_environment
from python_exec_sandbox.drivers.unsandboxed.folders import RunFolder, make_folder
from python_exec_sandbox.drivers.unsandboxed.options import UnsandboxedOptions
from python_exec_sandbox.drivers.unsandboxed.rlimits import rlimits
from python_exec_sandbox.drivers.unsandboxed.supervisor import folder as inside
from python_exec_sandbox.drivers.unsandboxed.supervisor.spec import SupervisorSpec
from python_exec_sandbox.drivers.unsandboxed.toolchain import Toolchain, find_toolchain
from python_exec_sandbox.errors import CreateFailed, DriverError, PythonUnavailable
from python_exec_sandbox.model.result import Loss

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A bare interpreter with some small modules: 50 ms, seconds on a loaded machine.
READY_SECONDS = 15.0

# The supervisor has 1.6 s for processes; the rest is for the files of a run. What is left then is ended here.
END_SECONDS = 3.0

# A script may have made its folder part of something else (a mount, as root): that must not hold a place for ever.
REMOVE_ATTEMPTS = 3

# After a failure or a cancellation, within the time a server has for its shutdown.
CLEANUP_SECONDS = 2.0

# Starting processes and looking at files, never two of one run at a time.
_THREADS = 4

_START = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from python_exec_sandbox.drivers.unsandboxed.supervisor.main import main; main()"
)


class UnsandboxedDriver:
    """A :class:`~python_exec_sandbox.drivers.base.Driver` whose sandboxes are none."""

    name = "none"

    def __init__(self, options: UnsandboxedOptions) -> None:
        self._options = options
        self._toolchain: Toolchain | None = None
        self._stack = contextlib.AsyncExitStack()
        self.activity: str | None = None

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._looking = anyio.Lock()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every stream; supervisors that the pool has left end their run and themselves."""
        self._tasks.cancel_scope.cancel()
        await self._stack.__aexit__(kind, error, trace)

    async def pythons(self) -> tuple[str, ...]:
        """Minor versions that uv finds on this machine, oldest first.

        Raises:
            ConfigurationError: there is no uv.
            CreateFailed: uv couldn't be asked.
        """
        return tuple((await self._found()).pythons)

    async def create(self, python: str) -> AttachedSandbox:
        """As the contract says. What is made is a supervisor that waits; uv starts with the run.

        Raises:
            ConfigurationError: beside the contract's errors, when there is no uv.
        """
        toolchain = await self._found()
        if python not in toolchain.pythons:
            self._toolchain = None  # it may be installed meanwhile: the next call looks again
            raise PythonUnavailable(
                f"uv finds no Python {python} on this machine, but {', '.join(toolchain.pythons) or 'none at all'}; "
                f"uv python install {python} brings it"
            )
        try:
            folder = await self._in_thread(lambda: make_folder(self._options.base))
        except OSError as error:
            raise CreateFailed(f"no folder for a run could be made: {error}") from error
        keeper = _Keeper(folder, self._threads)
        try:
            return await self._attach(toolchain, python, keeper)
        except BaseException:  # a cancellation leaves nothing behind either
            with anyio.move_on_after(CLEANUP_SECONDS, shield=True):
                await keeper.clean_up()
            raise
        finally:
            os.close(folder.lock_fd)  # the supervisor has its own

    async def sweep(self) -> int:
        return await self._in_thread(lambda: folders.sweep(self._options.base))

    async def _attach(self, toolchain: Toolchain, python: str, keeper: "_Keeper") -> AttachedSandbox:
        ours, theirs = socket.socketpair()
        channel = SocketChannel(ours)
        keeper.channel = channel
        try:
            keeper.process = await self._in_thread(lambda: self._start(toolchain, keeper.folder, theirs))
        except OSError as error:
            raise CreateFailed(f"the supervisor of a run could not be started: {error}") from error
        finally:
            theirs.close()
        sandbox = AttachedSandbox(f"none-{secrets.token_hex(8)}", python, channel, keeper)
        self._tasks.start_soon(sandbox.pump)
        await sandbox.wait_ready(READY_SECONDS)
        return sandbox

    def _start(
        self, toolchain: Toolchain, folder: RunFolder, theirs: socket.socket
    ) -> "subprocess.Popen[bytes]":
        server = dict(os.environ)
        if self._options.ca_bundle is not None:
            server["SSL_CERT_FILE"] = str(self._options.ca_bundle)
        for_script = script_environment(
            server, inside.home_path(folder.path), inside.temporary_path(folder.path)
        )
        for_uv = uv_environment(server, toolchain.cache, toolchain.config)
        spec = SupervisorSpec(
            uv=toolchain.uv,
            folder=folder.path,
            pythons=toolchain.pythons,
            rlimits=rlimits(self._options.limits),
            uv_only=tuple(sorted(for_uv)),
            cpus=self._options.limits.cpus,
            processes=self._options.limits.processes,
            control_fd=theirs.fileno(),
            lock_fd=folder.lock_fd,
        )
        packages = str(Path(python_exec_sandbox.__file__).parent.parent)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, packages, spec.to_json()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=for_script | for_uv,
            cwd="/",
            start_new_session=True,
            pass_fds=(theirs.fileno(), folder.lock_fd),
        )

    async def _found(self) -> Toolchain:
        """What the machine has, looked for once."""
        async with self._looking:
            if self._toolchain is None:
                self.activity = "looking for uv and the Pythons of this machine"
                try:
                    self._toolchain = await self._in_thread(lambda: find_toolchain(self._options.uv_path))
                finally:
                    self.activity = None
            return self._toolchain

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)


class _Keeper:
    """The driver's side of one run: its supervisor's process and its folder."""

    watched = False
    """Somebody may stop a supervisor; only a question tells."""
    halted = False

    def __init__(self, folder: RunFolder, threads: anyio.CapacityLimiter) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: SocketChannel | None = None
        self._threads = threads
        self._removed = False
        self._attempts = 0

    async def explain_loss(self) -> tuple[Loss, str]:
        code = await self._waited(1.0)
        if code is None:
            return Loss.SILENT, "its supervisor hangs"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Loss.KILLED, f"its supervisor ended with {how}"

    async def remove(self) -> None:
        """As the contract says: the supervisor ends everything; what it can't is done here."""
        await self.clean_up()
        self._attempts += 1
        if not self._removed and self._attempts >= REMOVE_ATTEMPTS:
            logger.warning("the folder %s of a run that is over is left", self.folder.path)
            return
        if not self._removed:
            raise DriverError(f"The folder {self.folder.path} of a run that is over could not be removed.")

    async def clean_up(self) -> None:
        if self._removed:
            return
        if self.channel is not None:
            self.channel.close()
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)  # the script may have stopped it
        code = await self._waited(END_SECONDS)
        if code is None and self.process is not None:
            self.process.kill()
            code = await self._waited(1.0)
        self._removed = await anyio.to_thread.run_sync(
            self._finish, self.process is not None and code != 0, limiter=self._threads
        )

    def _finish(self, failed: bool) -> bool:  # noqa: FBT001 - a thread's call takes no keywords
        """After a supervisor that was ended, or failed, its processes are ours to end."""
        if failed:
            logger.warning("the supervisor of %s was ended; ending what it left", self.folder.path)
            folders.end_strays(self.folder.path)
        return not os.path.lexists(self.folder.path) or self.folder.remove()

    async def _waited(self, seconds: float) -> int | None:
        """The supervisor's exit code within so long."""
        process = self.process
        if process is None:
            return None

        def wait() -> int | None:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None

        return await anyio.to_thread.run_sync(wait, limiter=self._threads)
