"""The tool ``check_environment``: what the server stands on, and what holds in its sandboxes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult

from python_exec_sandbox.api.argument_shapes import Arguments, Shape
from python_exec_sandbox.api.row import without_home
from python_exec_sandbox.api.runtime import Runtime
from python_exec_sandbox.api.tool_call import (
    META_PREFIX,
    answer,
    faulty,
    load,
    reading_tool,
    refused,
    with_progress,
)
from python_exec_sandbox.errors import SandboxError
from python_exec_sandbox.settings import Settings
from python_exec_sandbox.stream.clean import clean_text

if TYPE_CHECKING:
    from python_exec_sandbox.api.environment import Environment, Surveyor
    from python_exec_sandbox.api.row import Row, Section

TOOL_NAME = "check_environment"
META_KEY = f"{META_PREFIX}environment"

PATIENCE_SECONDS = 30.0
"""A client's own patience is a minute as a rule; an image takes longer, and can be asked about again."""


class NoArguments(Arguments):
    """The tool takes none."""


SHAPE = Shape(NoArguments, forms={})


@dataclass(slots=True)
class CheckEnvironment:
    """Looks at everything anew, but for what was measured in a sandbox of the same image."""

    settings: Settings
    runtime: Runtime
    _surveyor: "Surveyor | None" = field(default=None, init=False)

    async def call(self, raw: Mapping[str, Any], context: Context[None, Any]) -> CallToolResult:
        """Answer one call; ``is_error`` when no script can run."""
        try:
            call = SHAPE.parse(raw)
            backend = await self.runtime.backend()
            await load("api.environment", "api.environment_rows")
            from python_exec_sandbox.api.environment import Surveyor
            from python_exec_sandbox.api.environment_rows import sections

            surveyor = self._surveyor = self._surveyor or Surveyor(self.settings.max_timeout)
            found = await with_progress(
                self.runtime.reporter,
                context,
                backend.activity,
                lambda listener: surveyor.survey(backend, listener, patience=PATIENCE_SECONDS),
            )
        except SandboxError as error:
            return refused(f"no script can run: {error}", error, META_KEY)
        except Exception as error:  # noqa: BLE001 - the model must learn that it is not to blame
            return faulty("the call", error, META_KEY)
        parts = sections(self.settings, found)
        notes = [f"Note: {note}" for note in call.notes]
        return answer(
            clean_text("\n".join((text_of(parts), *notes))),
            data_of(parts, found),
            is_error=not found.can_run,
            key=META_KEY,
            structured=self.settings.structured_output,
        )


def text_of(parts: "Sequence[Section]") -> str:
    """The rows under their headings, those that are not well marked and with what to do."""
    return "\n".join(
        line for part in parts for line in (f"--- {part.title} ---", *(_line(row) for row in part.rows))
    )


def _line(row: "Row") -> str:
    mark = "! " if row.needs_care else ""
    return f"{mark}{row.name}: {row.value}{f' -> {row.fix}' if row.fix else ''}"


def data_of(parts: "Sequence[Section]", found: "Environment") -> dict[str, Any]:
    """The rows as data, and what was measured and counted as it was."""
    return {
        "can_run": found.can_run,
        "sections": {
            clean_text(part.title): [
                {name: clean_text(str(value)) for name, value in asdict(row).items() if value}
                for row in part.rows
            ]
            for part in parts
        },
        "measured": _cleaned(found.measured.model_dump()) if found.measured else None,
        "pool": _cleaned(asdict(found.stats)) if found.stats else None,
    }


def _cleaned(value: Any) -> Any:
    """``value`` with each text in it fit for JSON."""
    match value:
        case str():
            return clean_text(without_home(value))
        case dict():
            return {name: _cleaned(item) for name, item in value.items()}
        case list() | tuple():
            return [_cleaned(item) for item in value]
        case _:
            return value


def check_environment_tool(settings: Settings, runtime: Runtime) -> Tool:
    """The tool with all that ``tools/list`` shows of it."""
    return reading_tool(
        CheckEnvironment(settings, runtime).call,
        name=TOOL_NAME,
        title="Check the sandbox environment",
        description=(
            "Show what scripts are run with, and whether they can be run at all: Python versions, uv, the container"
            " engine and the image, the isolation and the limits as measured inside a sandbox (user, capabilities,"
            " system call filter, network devices, memory, processors, processes, folders and their sizes), the pool"
            " of warm sandboxes, all settings, and for those that don't apply the reason. Call it when execute_python"
            " refuses to run, or when a person asks what the sandbox allows; not before ordinary runs. Lines that"
            " begin with ! are not as they should be and say what to do. No code of yours is run."
        ),
        parameters={"type": "object", "properties": {}},
    )
