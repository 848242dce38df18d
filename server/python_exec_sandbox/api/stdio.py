"""Serving one client on stdin and stdout, and ending in time whatever happens.

The SDK alone is not enough here: signals kill it without cleanup or leave it in a blocked read, and a broken
stdout cancels unshielded cleanup. So signals arrive on the event loop and cancel the serving task; cleanup
happens in a shielded, bounded scope; and the process ends by ``os._exit``, because a thread that sits in
``read(2)`` on stdin can't be told to leave.
"""

import logging
import os
import signal
import sys
from dataclasses import dataclass, field
from typing import NoReturn

import anyio
import anyio.abc
from mcp.server.mcpserver import MCPServer

from python_exec_sandbox.api.ending import SIGNAL_BASE, ending_signals, leave
from python_exec_sandbox.api.runtime import CLOSE_SECONDS, Runtime

logger = logging.getLogger(__name__)

EXIT_EOF = 0

# Calls being cancelled, then the backend's own bound, then this process: 5 s in all.
END_SECONDS = CLOSE_SECONDS + 0.4

# The last answer may still be on its way to a client that closed its end after asking.
FLUSH_SECONDS = 0.3

# A person who presses Ctrl-C again after this means it; sooner it is the terminal or the client doubling up.
PATIENCE_SECONDS = 1.0

PARENT_CHECK_SECONDS = 0.5

# The parent of what was started by init itself (a container's first process) never changes.
INIT_PID = 1


@dataclass(slots=True, eq=False)
class _Ending:
    """Why serving ends; the first cause counts. ``forced``: the connection itself is still whole."""

    begun: anyio.Event = field(default_factory=anyio.Event)
    code: int = EXIT_EOF
    forced: bool = False

    def begin(self, why: str, code: int = EXIT_EOF, *, forced: bool = False) -> None:
        if not self.begun.is_set():
            logger.info("ending: %s", why)
            self.code = code
            self.forced = forced
            self.begun.set()


async def serve(server: MCPServer[None], runtime: Runtime, parent: int) -> NoReturn:
    """Serve until stdin ends, stdout breaks, a signal comes or the process ``parent`` is gone; then end this
    process within 5 s: code 0, for a signal 128 plus its number."""
    if hasattr(sys.stdout, "reconfigure"):  # an unflushed print would drain into the wire at the end
        sys.stdout.reconfigure(line_buffering=True)
    ending = _Ending()
    served = anyio.Event()
    serving = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, ending)
        tasks.start_soon(_watch_parent, ending, parent)
        tasks.start_soon(_serve_once, server, serving, served, ending)
        tasks.start_soon(_watch_runtime, runtime, ending)
        await ending.begun.wait()
        await _wind_up(ending, serving, served, runtime)
        leave(ending.code)
    raise AssertionError("the process has ended")


async def _serve_once(
    server: MCPServer[None], serving: anyio.CancelScope, served: anyio.Event, ending: _Ending
) -> None:
    try:
        with serving:
            await server.run_stdio_async()
    except Exception:  # whatever broke the connection, what was opened must still be closed in order
        logger.warning("the connection broke", exc_info=logger.isEnabledFor(logging.DEBUG))
    finally:
        served.set()
        ending.begin("stdin was closed")


async def _watch_runtime(runtime: Runtime, ending: _Ending) -> None:
    """When stdin ends, or stdout breaks, the SDK leaves the lifespan first; after a broken stdout it then
    stays in its blocked read."""
    await runtime.stopping.wait()
    ending.begin("the connection was closed")


async def _wind_up(
    ending: _Ending, serving: anyio.CancelScope, served: anyio.Event, runtime: Runtime
) -> None:
    if ending.forced:
        serving.cancel()
    with anyio.move_on_after(END_SECONDS, shield=True):
        if runtime.entered:
            await runtime.closed.wait()
    if not ending.forced:
        with anyio.move_on_after(FLUSH_SECONDS, shield=True):
            await served.wait()


async def _watch_signals(ending: _Ending, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """The first signal ends the server; a different one after it changes nothing, the same one again after
    ``PATIENCE_SECONDS`` ends the process at once."""
    first: tuple[signal.Signals, float] | None = None
    with anyio.open_signal_receiver(*ending_signals()) as received:
        task_status.started()
        async for number in received:
            now = anyio.current_time()
            if first is None:
                first = (number, now)
                ending.begin(f"got {number.name}", SIGNAL_BASE + number, forced=True)
            elif number is first[0] and now - first[1] > PATIENCE_SECONDS:
                leave(SIGNAL_BASE + number)


async def _watch_parent(ending: _Ending, parent: int) -> None:
    """A client that was killed may leave our stdin open in other hands: then only the parent's end shows."""
    if parent == INIT_PID:
        return
    while True:
        await anyio.sleep(PARENT_CHECK_SECONDS)  # no portable event tells of a parent's end
        if os.getppid() != parent:
            break
    ending.begin("the parent process ended", forced=True)
