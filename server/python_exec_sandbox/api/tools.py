"""The tools that clients see."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from python_exec_sandbox.api.arguments import input_schema, parse_call
from python_exec_sandbox.api.effective import limits_in_words
from python_exec_sandbox.api.present import Presented, meta, present
from python_exec_sandbox.api.progress import Progress
from python_exec_sandbox.api.refusals import short_refusal
from python_exec_sandbox.api.runtime import Backend, Runtime
from python_exec_sandbox.api.unsandboxed_words import fallback_words, tool_title, unsandboxed_description
from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.run.records import RunRequest, RunResult
from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings
from python_exec_sandbox.stream.clean import clean_text

logger = logging.getLogger(__name__)

TOOL_NAME = "execute_python"
META_KEY = "io.github.python-exec-sandbox/run"

# The status line, notes and facts come on top of what a script printed.
FRAME_CHARS = 4000

# Cleaning this much takes some milliseconds; more must not hold up other calls.
INLINE_OUTPUT_BYTES = 256 * 1024


class _AsSent(FuncMetadata):
    """Hands a call's arguments to the tool as the client sent them.

    The SDK's own validation answers with pydantic's text and drops unknown names; ours says what to change.
    """

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        return {"raw": arguments_to_validate}


@dataclass(frozen=True, slots=True)
class ExecutePython:
    """The tool ``execute_python``: arguments to a request, a run, its result as text."""

    settings: Settings
    runtime: Runtime
    _presenting: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    async def call(self, raw: Mapping[str, Any], context: Context[None, Any]) -> CallToolResult:
        """Answer one call; whatever the model can act on comes back as a result with ``is_error``."""
        try:
            call = parse_call(raw)
            backend = await self.runtime.backend()
            result = await _run_with_progress(backend, RunRequest(**dict(call.arguments)), context)
        except SandboxError as error:
            return _refused(f"not run: {short_refusal(error)}", error)
        except Exception as error:  # the model must learn that its script is not to blame
            logger.exception("a call failed")
            return _refused(
                f"failed: a fault of the sandbox server ({type(error).__name__}), not of the script. Run it again;"
                " if that doesn't help, the server's log on stderr says more.",
                error,
            )
        return await self._answered(replace(result, notes=(*call.notes, *result.notes)))

    async def _answered(self, result: RunResult) -> CallToolResult:
        def work() -> Presented:
            return present(
                result,
                show_chars=self.settings.show_chars,
                reader="",
                can_install=self.settings.network is not Network.NONE,
            )

        if self.settings.max_output_bytes <= INLINE_OUTPUT_BYTES:
            presented = work()
        else:
            presented = await anyio.to_thread.run_sync(work, limiter=self._presenting)
        data = meta(result)
        return CallToolResult(
            content=[TextContent(text=presented.text)],
            is_error=presented.is_error,
            structured_content={"text": presented.text, **data} if self.settings.structured_output else None,
            _meta={META_KEY: data},
        )


async def _run_with_progress(backend: Backend, request: RunRequest, context: Context[None, Any]) -> RunResult:
    """The result of a run. A client that asked for it is told of progress (for others the SDK drops what is
    reported), never after this returned.

    Raises:
        SandboxError: the run could not be carried out.
    """

    async def send(value: float, words: str) -> None:
        await context.report_progress(value, message=clean_text(words))

    progress = Progress(send, backend.activity)
    outcome: RunResult | SandboxError
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(progress.report)
        try:
            outcome = await backend.executor.run(request, progress)
        except SandboxError as error:  # out of the group it would come as an exception group
            outcome = error
        tasks.cancel_scope.cancel()
    if isinstance(outcome, SandboxError):
        raise outcome
    return outcome


def _refused(text: str, error: Exception) -> CallToolResult:
    """The answer to a call that brought no result."""
    return CallToolResult(
        content=[TextContent(text=clean_text(text))],
        is_error=True,
        _meta={META_KEY: {"error": type(error).__name__}},
    )


def execute_python_tool(settings: Settings, runtime: Runtime) -> Tool:
    """The tool with all that ``tools/list`` shows of it."""
    return Tool(
        fn=ExecutePython(settings, runtime).call,
        name=TOOL_NAME,
        title=tool_title(settings),
        description=_description(settings),
        parameters=input_schema(settings),
        fn_metadata=_AsSent(arg_model=ArgModelBase),
        is_async=True,
        context_kwarg="context",
        annotations=ToolAnnotations(
            title=tool_title(settings),
            read_only_hint=False,
            destructive_hint=settings.may_run_unsandboxed,
            idempotent_hint=False,
            open_world_hint=settings.network is not Network.NONE,
        ),
        meta={
            "anthropic/maxResultSizeChars": settings.show_chars + FRAME_CHARS,
            "anthropic/alwaysLoad": True,
        },
    )


def _description(settings: Settings) -> str:
    """At most 1,000 characters, or clients cut it."""
    if settings.is_unsandboxed:
        return unsandboxed_description(settings)
    offline = settings.network is Network.NONE
    network = "have no network" if offline else "can use the network"
    packages = (
        "Only the standard library is there: without a network no packages can be installed."
        if offline
        else "Packages beyond the standard library are installed before the run when named in dependencies or in a"
        ' "# /// script" block (PEP 723); there is no pip and no git.'
    )
    return (
        "Run a Python script in a fresh, throwaway sandbox and return how it ended and what it printed"
        " (stdout and stderr). Print what you want to know: files are lost, and nothing is kept for the next call."
        f" Output over {settings.show_chars} characters is cut in the middle."
        f" Scripts {network} and see no files of the user's machine. {packages}"
        f" Run time: {settings.default_timeout:g} s by default, at most {settings.max_timeout:g} s."
        f" Limits: {limits_in_words(settings)}."
        " A failed, stopped or timed out script is marked as an error and still returns its output."
        f"{fallback_words(settings)}"
    )
