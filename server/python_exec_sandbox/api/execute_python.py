"""The tool ``execute_python``."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
from mcp_types import CallToolResult, ToolAnnotations

from python_exec_sandbox.api.arguments import input_schema, parse_call
from python_exec_sandbox.api.effective import limits_in_words
from python_exec_sandbox.api.network_words import reach_in_words
from python_exec_sandbox.api.present import Presented, meta, present
from python_exec_sandbox.api.refusals import short_refusal
from python_exec_sandbox.api.runtime import Runtime
from python_exec_sandbox.api.tool_call import AsSent, answer, faulty, refused, with_progress
from python_exec_sandbox.api.unsandboxed_words import fallback_words, tool_title, unsandboxed_description
from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.run.outputs import OutputStore
from python_exec_sandbox.run.records import RunRequest, RunResult
from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings

TOOL_NAME = "execute_python"

# The status line, notes and facts come on top of what a script printed.
FRAME_CHARS = 4000

# Cleaning this much takes some milliseconds; more must not hold up other calls.
INLINE_OUTPUT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ExecutePython:
    """The tool ``execute_python``: arguments to a request, a run, its result as text.

    What the run printed goes into ``outputs``, where ``read_output`` finds it.
    """

    settings: Settings
    runtime: Runtime
    outputs: OutputStore
    _presenting: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    async def call(self, raw: Mapping[str, Any], context: Context[None, Any]) -> CallToolResult:
        """Answer one call; whatever the model can act on comes back as a result with ``is_error``."""
        try:
            call = parse_call(raw)
            backend = await self.runtime.backend()
            request = RunRequest(**dict(call.arguments))
            result = await with_progress(
                self.runtime.reporter,
                context,
                backend.activity,
                lambda listener: backend.executor.run(request, listener),
            )
        except SandboxError as error:
            return refused(f"not run: {short_refusal(error)}", error)
        except Exception as error:  # noqa: BLE001 - the model must learn that its script is not to blame
            return faulty("the script", error)
        self.outputs.keep(result.run_id, result.stdout, result.stderr)
        if call.notes:
            result = replace(result, notes=(*call.notes, *result.notes))
        return await self._answered(result)

    async def _answered(self, result: RunResult) -> CallToolResult:
        def work() -> Presented:
            return present(
                result,
                show_chars=self.settings.show_chars,
                can_install=self.settings.can_install,
            )

        if self.settings.max_output_bytes <= INLINE_OUTPUT_BYTES:
            presented = work()
        else:
            presented = await anyio.to_thread.run_sync(work, limiter=self._presenting)
        return answer(
            presented.text,
            meta(result),
            is_error=presented.is_error,
            structured=self.settings.structured_output,
        )


def execute_python_tool(settings: Settings, runtime: Runtime, outputs: OutputStore) -> Tool:
    """The tool with all that ``tools/list`` shows of it."""
    return Tool(
        fn=ExecutePython(settings, runtime, outputs).call,
        name=TOOL_NAME,
        title=tool_title(settings),
        description=_description(settings),
        parameters=input_schema(settings),
        fn_metadata=AsSent(arg_model=ArgModelBase),
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
    network = reach_in_words(settings)
    packages = (
        "Packages beyond the standard library are installed before the run when named in dependencies or in a"
        ' "# /// script" block (PEP 723); there is no pip and no git.'
        if settings.can_install
        else "Only the standard library is there: without a network no packages can be installed."
    )
    return (
        "Run a Python script in a fresh, throwaway sandbox and return how it ended and what it printed"
        " (stdout and stderr). Print what you want to know: files are lost, and nothing is kept for the next call."
        f" Output over {settings.show_chars} characters is cut in the middle; read_output has the rest."
        f" Scripts {network}; they see no files of the user's machine. {packages}"
        f" Run time: {settings.default_timeout:g} s by default, at most {settings.max_timeout:g} s."
        f" Limits: {limits_in_words(settings)}."
        " A failed, stopped or timed out script is marked as an error and still returns its output."
        f"{fallback_words(settings)}"
    )
