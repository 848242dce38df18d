"""Starts an outer bwrap and holds what is needed to talk to it, to watch it and to end it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from python_exec_sandbox.drivers.bubblewrap.argv import Data, Source, Word
from python_exec_sandbox.drivers.bubblewrap.staging import SEARCH_PATH, MountNamespace, Stage

# What a broken start or a traceback of the runner needs.
_DIAGNOSIS_BYTES = 4 * 1024

# A quarter of the processor, beside somebody with the usual priority.
_YIELDING = 6

_INFO_BYTES = 4 * 1024
_NAMED = re.compile(rb'"child-pid": (\d+)')

# A process that waits for its parent's word dies at once.
_ORPHAN_SECONDS = 1.0
_PAUSE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Start:
    """What to start: ``program`` is bwrap, ``command`` what it executes inside. ``user`` is whom to become
    first, or ``None`` to stay who we are; ``mounts`` where the stage is set, if there is one; ``yields``: everybody else's work goes first."""

    program: str
    words: Sequence[Word]
    command: Sequence[str]
    stage: Stage
    user: int | None
    mounts: MountNamespace | None
    yields: bool = False


class BwrapProcess:
    """One outer bwrap.

    It waits for its options until :meth:`release`, so that it can be put into a control group before it has
    forked; a server that dies meanwhile leaves a bwrap without options, which ends. From then on the runner's
    input is what ends everything with the server. ``--die-with-parent`` would be no help: a bwrap that dies
    between making its child and letting it go on leaves that child waiting for ever. For the same reason it
    names the child in a file, not in a pipe, whose end would be such a death.
    """

    def __init__(self, start: Start) -> None:
        """Raises ``OSError`` when it can't be started."""
        self.gone = anyio.Event()
        self._runner_pidfd = -1
        with contextlib.ExitStack() as stack:
            self.sock, theirs = socket.socketpair()
            stack.callback(theirs.close)
            self._diagnosis = _memory(b"")
            options, self._options = os.pipe()
            stack.callback(os.close, options)
            self._info = _memory(b"")
            self._words, data = _resolve(start, ["--info-fd", str(self._info), *start.words])
            for fd in data:
                stack.callback(os.close, fd)
            command = [start.program, "--args", str(options), "--", *start.command]
            identity: dict[str, object] = {}
            if start.mounts is not None and start.user is not None:
                command = start.mounts.command(start.user, command)
            elif start.user is not None:
                identity = {"user": start.user, "group": start.user, "extra_groups": []}
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs,
                    stdout=theirs,
                    stderr=self._diagnosis,
                    pass_fds=(options, self._info, *data),
                    env={"PATH": SEARCH_PATH},
                    cwd="/",
                    start_new_session=True,
                    **identity,  # type: ignore[call-overload]  # three arguments that belong together
                )
            except OSError:
                self._close_all()
                raise
        self._pid: int = self._process.pid
        self._pidfd = _pidfd(self._pid)
        if start.yields:
            with contextlib.suppress(OSError):  # it is gone then
                os.setpriority(os.PRIO_PROCESS, self._pid, _YIELDING)

    @property
    def pid(self) -> int:
        return self._pid

    def release(self) -> None:
        """Let bwrap go on. Raises ``OSError`` when it is gone already."""
        view = memoryview(self._words)
        while view:  # as a rule it fits into the pipe at once
            view = view[os.write(self._options, view) :]
        os.close(self._options)
        self._options = -1

    @property
    def knows_runner(self) -> bool:
        """Whether it was ever seen which process is the runner."""
        return self._runner_pidfd >= 0

    def note_runner(self) -> None:
        """Take hold of the runner's own process, if bwrap has named it by now."""
        if self._runner_pidfd >= 0 or self._info < 0:
            return
        if named := _NAMED.search(os.pread(self._info, _INFO_BYTES, 0)):
            with contextlib.suppress(OSError):  # it is gone then
                self._runner_pidfd = _pidfd_of_first(int(named[1]))

    async def watch(self) -> None:
        """Set :attr:`gone` when bwrap and the runner's whole namespace have ended."""
        await anyio.wait_readable(self._pidfd)
        self.kill()  # whoever ended bwrap, nothing of its sandbox goes on
        if self._runner_pidfd >= 0:
            # Readable only after the kernel has ended everything in the runner's namespace.
            await anyio.wait_readable(self._runner_pidfd)
        self._process.poll()
        self.gone.set()

    def kill(self) -> None:
        """SIGKILL; what is inside follows. Never raises, and never meets another process of the same number.

        A child that bwrap hasn't named yet is left to :meth:`end_orphans`.
        """
        self.note_runner()
        for fd in (self._runner_pidfd, self._pidfd):
            if fd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    _kill(fd)

    def end_orphans(self) -> None:
        """End the child that a bwrap has left which died before it named it: it waits, still in bwrap's own
        session. To be called in a worker thread once bwrap is gone."""
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while (left := list(_in_session(self._pid))) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_PAUSE_SECONDS)  # in a worker thread; the kernel needs a moment

    def said(self) -> str:
        """The end of what bwrap, or the runner, wrote to its standard error."""
        size = os.fstat(self._diagnosis).st_size
        return os.pread(self._diagnosis, _DIAGNOSIS_BYTES, max(0, size - _DIAGNOSIS_BYTES)).decode(
            "utf-8", "replace"
        )

    def close(self) -> None:
        """Give back every descriptor; only once it is gone."""
        os.close(self._pidfd)
        self._close_all()

    def _close_all(self) -> None:
        for fd in (self._diagnosis, self._options, self._info, self._runner_pidfd):
            if fd >= 0:
                os.close(fd)
        self._diagnosis = self._options = self._info = self._runner_pidfd = self._pidfd = -1
        self.sock.close()


def _resolve(start: Start, words: Sequence[Word]) -> tuple[bytes, list[int]]:
    """The options as ``--args`` wants them, and the descriptors that they name."""
    resolved: list[str] = []
    descriptors: list[int] = []
    for word in words:
        match word:
            case Data(content):
                descriptors.append(_memory(content))
                resolved.append(str(descriptors[-1]))
            case Source(path):
                resolved.append(start.stage.path(path))
            case str():
                resolved.append(word)
    return "".join(f"{word}\0" for word in resolved).encode("utf-8", "surrogateescape"), descriptors


def _memory(content: bytes) -> int:
    """A file without a name that holds ``content``, to be read from its start."""
    fd = _unnamed_file()
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _unnamed_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("data")
    raise NotImplementedError


def _in_session(session: int) -> Iterator[int]:
    """Living processes in the session that ``session`` led, whose number nobody gets while there are any."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (
                (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            )
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            yield int(folder.name)


def _pidfd_of_first(pid: int) -> int:
    """A hold on ``pid``, if that is the first process of a namespace. Raises ``OSError`` when it isn't."""
    pidfd = _pidfd(pid)
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        if not re.search(r"^NSpid:.*\t1$", status, re.MULTILINE):  # the number has passed to a stranger
            raise ProcessLookupError(pid)
    except OSError:
        os.close(pidfd)
        raise
    return pidfd


def _pidfd(pid: int) -> int:
    if sys.platform == "linux":
        return os.pidfd_open(pid)
    raise NotImplementedError


def _kill(pidfd: int) -> None:
    if sys.platform == "linux":
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
