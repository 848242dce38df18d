"""The composition root: what the settings say, put together."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

import anyio
import anyio.to_thread
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer

from python_exec_sandbox import __version__
from python_exec_sandbox.api.effective import limits_in_words
from python_exec_sandbox.api.network_words import reach_in_words
from python_exec_sandbox.api.runtime import Backend, OpenBackend, Runtime
from python_exec_sandbox.api.stdio import serve
from python_exec_sandbox.api.toolset import all_tools
from python_exec_sandbox.api.unsandboxed_words import fallback_words, unsandboxed_instructions
from python_exec_sandbox.api.wire import StdioServer
from python_exec_sandbox.collector import permanent
from python_exec_sandbox.setting_values import Backend as BackendKind
from python_exec_sandbox.settings import Settings

SERVER_NAME = "python-exec-sandbox"


@dataclass(frozen=True, slots=True)
class Application:
    """The server and what it stands on, for one connection."""

    server: MCPServer[None]
    runtime: Runtime


def build(settings: Settings, open_backend: OpenBackend | None = None) -> Application:
    """The application for ``settings``; nothing is opened before it is served.

    Not for an event loop: the SDK's constructor imports modules and reads files."""
    runtime = Runtime(open_backend or partial(open_chosen, settings))

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        async with runtime.opened():
            yield

    async def warm_after_listing(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "tools/list":
            runtime.want_soon()
        return result

    server = StdioServer(
        SERVER_NAME,
        title="Python sandbox",
        version=__version__,
        instructions=instructions(settings),
        tools=all_tools(settings, runtime),
        lifespan=lifespan,
        log_level="WARNING",  # the root logger is set up already; this only keeps the SDK from more
        middleware=[warm_after_listing],
    )
    return Application(server, runtime)


def instructions(settings: Settings) -> str:
    """What a client tells its model about this server; at most 2,000 characters, or clients cut it."""
    if settings.is_unsandboxed:
        return unsandboxed_instructions(settings)
    packages = (
        "There is no pip and no git: name packages in dependencies."
        if settings.can_install
        else "No packages can be installed."
    )
    network = f"Scripts {reach_in_words(settings)}. {packages}"
    return (
        "Runs Python scripts in throwaway sandboxes on this machine. Each call starts from nothing: a fresh"
        " process, empty folders, no packages but the standard library and those named in dependencies; nothing"
        " is kept between calls, files neither, so one script must do the whole job and print what you want to know."
        f" Of output over {settings.show_chars} characters only the beginning and the end are shown; read_output"
        " has the rest."
        f" {network} Scripts see none of the user's files: pass data in the script, in args or in stdin."
        f" Limits: {limits_in_words(settings)},"
        f" {settings.default_timeout:g} s run time unless timeout_seconds says otherwise"
        f" (at most {settings.max_timeout:g} s)."
        " The first line of an answer says how the script ended; a traceback carries the line numbers of the"
        " script as you sent it."
        f"{fallback_words(settings)}"
    )


@asynccontextmanager
async def open_chosen(settings: Settings) -> AsyncIterator[Backend]:
    """The backend for ``settings``, imported only now, off the event loop: it takes a tenth of the time in
    which ``initialize`` must be answered."""
    own_thread = anyio.CapacityLimiter(1)  # anyio's default limiter is the protocol's
    backends = await anyio.to_thread.run_sync(_import_backends, settings.sandbox_backend, limiter=own_thread)
    async with backends.open_backend(settings) as backend:
        yield backend


def _import_backends(chosen: BackendKind) -> ModuleType:
    with permanent():
        if chosen is BackendKind.NATIVE:
            importlib.import_module("python_exec_sandbox.api.native")
        return importlib.import_module("python_exec_sandbox.api.backends")


def serve_stdio(application: Application, parent: int) -> NoReturn:
    """Serve on stdin and stdout until the client or its signals end it; never returns.

    ``parent`` is the id of the process that started this one.
    """
    anyio.run(serve, application.server, application.runtime, parent)
    raise AssertionError("serving ends the process")
