"""The driver's side of one bubblewrap sandbox: why it ended, and its certain end."""

from collections.abc import Callable

import anyio
import anyio.to_thread

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Group
from python_exec_sandbox.drivers.bubblewrap.failure import explain
from python_exec_sandbox.drivers.bubblewrap.process import BwrapProcess
from python_exec_sandbox.drivers.socket_channel import SocketChannel
from python_exec_sandbox.errors import DriverError
from python_exec_sandbox.model.result import Loss

# Under the two seconds that the contract allows. Processes end within milliseconds of their stream.
EXPLAIN_SECONDS = 1.5

# Killed processes execute nothing any more, but the kernel may take seconds to take down what they had mapped.
REMOVE_SECONDS = 10.0


class BwrapKeeper:
    """A :class:`~python_exec_sandbox.drivers.attached.Keeper` for one outer bwrap and its control group.

    ``forget`` is called once, when nothing of the sandbox is left.
    """

    watched = False
    """Somebody may stop a runner; only a question tells."""
    halted = False

    def __init__(
        self,
        process: BwrapProcess,
        channel: SocketChannel,
        group: Group,
        threads: anyio.CapacityLimiter,
        forget: Callable[[], None],
    ) -> None:
        self._process = process
        self._channel = channel
        self._group = group
        self._threads = threads
        self._forget = forget
        self._removed = False
        self._said = ""

    async def explain_loss(self) -> tuple[Loss, str]:
        """By the kernel's counters first, then by what was said last."""
        with anyio.move_on_after(EXPLAIN_SECONDS):
            if not self._removed:
                await self._process.gone.wait()
        usage = self._group.usage()
        if usage.memory_kills:
            return Loss.MEMORY, "the sandbox's memory was used up, and the kernel ended its runner"
        if said := (self._said if self._removed else self._process.said()).strip():
            return Loss.KILLED, explain(said)
        return Loss.KILLED, "its processes were ended from outside"

    async def remove(self) -> None:
        """End everything and confirm it; again and again is fine."""
        if self._removed:
            return
        self._channel.close()
        self._process.kill()
        # All of the namespace ends with its first process, as fast as the kernel can. What the group still has then
        # is what that process's kill could not reach.
        with anyio.move_on_after(REMOVE_SECONDS) as scope:
            await self._process.gone.wait()
        if scope.cancelled_caught:
            raise DriverError(f"A sandbox's processes were not gone {REMOVE_SECONDS:g} s after SIGKILL.")
        if not self._process.knows_runner:
            await anyio.to_thread.run_sync(self._process.end_orphans, limiter=self._threads)
        await anyio.to_thread.run_sync(self._group.remove, limiter=self._threads)
        if not self._removed:  # another task may have been here meanwhile
            self._removed = True
            self._said = self._process.said()
            self._process.close()
            self._forget()
