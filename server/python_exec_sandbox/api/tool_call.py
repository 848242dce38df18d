"""What the tools have in common: arguments as they were sent, refusals, progress."""

import importlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from python_exec_sandbox.api.progress import Progress, Reporter
from python_exec_sandbox.run.records import RunListener
from python_exec_sandbox.stream.clean import clean_text

logger = logging.getLogger(__name__)

META_PREFIX = "io.github.python-exec-sandbox/"
META_KEY = f"{META_PREFIX}run"

T = TypeVar("T")


class AsSent(FuncMetadata):
    """Hands a call's arguments to the tool as the client sent them.

    The SDK's own validation answers with pydantic's text and drops unknown names; ours says what to change.
    """

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        return {"raw": arguments_to_validate}


async def load(*modules: str) -> None:
    """Import ``modules`` of this package in a thread: a client's first answers must not wait for what only
    some calls need, nor other calls for an import."""
    own_thread = anyio.CapacityLimiter(1)  # anyio's default limiter is the protocol's
    for module in modules:
        await anyio.to_thread.run_sync(
            importlib.import_module, f"python_exec_sandbox.{module}", limiter=own_thread
        )


async def with_progress(
    reporter: Reporter,
    context: Context[None, Any],
    activity: Callable[[], str | None],
    work: Callable[[RunListener], Awaitable[T]],
) -> T:
    """The result of ``work``, which tells its listener where it is. A client that asked for it is told of
    progress (for others the SDK drops what is reported), never after this returned.

    Raises:
        SandboxError: as ``work`` did.
    """

    async def send(value: float, words: str) -> None:
        await context.report_progress(value, message=clean_text(words))

    progress = Progress(send, activity)
    with reporter.telling_of(progress):
        return await work(progress)


def reading_tool(
    call: Callable[..., Awaitable[CallToolResult]],
    *,
    name: str,
    title: str,
    description: str,
    parameters: dict[str, Any],
    meta: dict[str, Any] | None = None,
) -> Tool:
    """A tool that runs no code of the caller's and changes nothing, with all that ``tools/list`` shows of it."""
    return Tool(
        fn=call,
        name=name,
        title=title,
        description=description,
        parameters=parameters,
        fn_metadata=AsSent(arg_model=ArgModelBase),
        is_async=True,
        context_kwarg="context",
        annotations=ToolAnnotations(
            title=title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
        meta=meta,
    )


def answer(
    text: str, data: dict[str, Any], *, is_error: bool, key: str = META_KEY, structured: bool = False
) -> CallToolResult:
    """A result whose text says all; ``data`` is the same for programs, and structured only when asked for:
    clients that get structured content hide the text."""
    return CallToolResult(
        content=[TextContent(text=text)],
        is_error=is_error,
        structured_content={"text": text, **data} if structured else None,
        _meta={key: data},
    )


def refused(text: str, error: Exception, key: str = META_KEY) -> CallToolResult:
    """The answer to a call that brought no result."""
    name = next(kind.__name__ for kind in type(error).__mro__ if not kind.__name__.startswith("_"))
    return answer(clean_text(text), {"error": name}, is_error=True, key=key)


def faulty(blameless: str, error: Exception, key: str = META_KEY) -> CallToolResult:
    """The answer when the server itself failed; the log says how."""
    logger.error("a call failed", exc_info=error)
    return refused(
        f"failed: a fault of the sandbox server ({type(error).__name__}), not of {blameless}. Run it again;"
        " if that doesn't help, the server's log on stderr says more.",
        error,
        key,
    )
