"""The tool ``read_output``: what a finished run printed, part by part."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult
from pydantic import AfterValidator, BeforeValidator, StrictStr

from python_exec_sandbox.api.argument_shapes import Arguments, Shape
from python_exec_sandbox.api.execute_python import FRAME_CHARS, INLINE_OUTPUT_BYTES
from python_exec_sandbox.api.tool_call import META_PREFIX, answer, faulty, reading_tool, refused
from python_exec_sandbox.errors import RequestError, SandboxError
from python_exec_sandbox.model.result import OutputStream
from python_exec_sandbox.run.outputs import OutputStore
from python_exec_sandbox.settings import Settings
from python_exec_sandbox.stream.capture import Captured
from python_exec_sandbox.stream.clean import clean_text
from python_exec_sandbox.stream.excerpt import Cleaned, clean_captured
from python_exec_sandbox.stream.pages import Page, page

TOOL_NAME = "read_output"
META_KEY = f"{META_PREFIX}output"

MOST_CHARACTERS = 40_000
"""Of one answer. Clients move what is longer into a file, or cut it."""

LARGEST_NUMBER = 2**53
"""Above it a JSON number no longer stands for one whole number."""


def _whole_number(value: object) -> object:
    """A whole number from what stands for one, such as ``"8,000"`` or ``8000.0``."""
    if isinstance(value, str):
        plain = value.strip().replace(",", "").replace("_", "")
        if re.fullmatch(r"[+-]?[0-9]+", plain) and len(plain) < 20:
            return int(plain)
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_NUMBER:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("is not a whole number. Accepted: such as 8000")  # noqa: TRY004  # pydantic's own
    return value


def _stream(value: object) -> object:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in {"1", "out", "stdout"}:
        return OutputStream.STDOUT
    if word in {"2", "err", "stderr"}:
        return OutputStream.STDERR
    raise ValueError('is neither "stdout" nor "stderr"')


def _bare_id(text: str) -> str:
    """The id out of what stands in an answer: ``[...; run 4556]``."""
    return text.strip().rstrip("]").removeprefix("run ").strip()


class ReadArguments(Arguments):
    """What a call of ``read_output`` may carry; ``limit`` is ``None`` where it is left to the settings."""

    run_id: Annotated[StrictStr, AfterValidator(_bare_id)]
    stream: Annotated[OutputStream, BeforeValidator(_stream)] = OutputStream.STDOUT
    offset: Annotated[int, BeforeValidator(_whole_number)] = 0
    limit: Annotated[int | None, BeforeValidator(_whole_number)] = None


SHAPE = Shape(
    ReadArguments,
    forms={
        "run_id": "the run's id as text; it stands at the end of the answer of execute_python",
        "stream": '"stdout" or "stderr"',
        "offset": "a whole number such as 8000",
        "limit": "a whole number such as 8000",
    },
    aliases={"id": "run_id", "run": "run_id", "start": "offset"},
    meant={"length": "limit", "size": "limit", "max_chars": "limit", "from": "offset"},
)


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """Answers from ``outputs``; no sandbox is needed."""

    settings: Settings
    outputs: OutputStore
    _cleaning: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    async def call(self, raw: Mapping[str, Any], context: Context[None, Any]) -> CallToolResult:
        """Answer one call; what the model can mend comes back as a result with ``is_error``."""
        try:
            call = SHAPE.parse(raw)
            asked = call.arguments
            limit, notes = self._limit(asked.limit)
            captured = self._captured(asked)
            kept = await self._cleaned(captured)
            part = _page(kept, asked, limit)
        except SandboxError as error:
            return refused(str(error), error, META_KEY)
        except Exception as error:  # noqa: BLE001 - the model must learn that it is not to blame
            return faulty("the call", error, META_KEY)
        notes = (*(clean_text(note) for note in call.notes), *notes)
        return answer(
            _text(asked, part, kept, notes),
            _data(asked, part, captured),
            is_error=False,
            key=META_KEY,
            structured=self.settings.structured_output,
        )

    def _limit(self, asked: int | None) -> tuple[int, tuple[str, ...]]:
        most = max(MOST_CHARACTERS, self.settings.show_chars)
        if asked is None:
            return self.settings.show_chars, ()
        if asked < 1:
            raise RequestError(f"limit must be at least 1, not {asked:,}.")
        if asked > most:
            return most, (f"limit {asked:,} is above the most that one answer shows: {most:,} were used.",)
        return asked, ()

    def _captured(self, asked: ReadArguments) -> Captured:
        found = self.outputs.find(asked.run_id)
        if found is None:
            raise RequestError(
                f"No output of a run {asked.run_id[:40]!a} is kept. The id is the last thing in the answer"
                ' of execute_python ("run ..."); only the latest runs are kept, and none of an earlier server.'
                " Run the script again if its output is gone."
            )
        return found.of(asked.stream)

    async def _cleaned(self, captured: Captured) -> Cleaned:
        if len(captured.head) + len(captured.tail) <= INLINE_OUTPUT_BYTES:
            return clean_captured(captured)
        return await anyio.to_thread.run_sync(clean_captured, captured, limiter=self._cleaning)


def _page(kept: Cleaned, asked: ReadArguments, limit: int) -> Page:
    try:
        return page(kept, asked.offset, limit)
    except ValueError:
        last = max(kept.characters - 1, 0)
        raise RequestError(
            f"offset {asked.offset:,} is outside of what is kept: {asked.stream} of run {asked.run_id} has"
            f" {kept.characters:,} characters, so offsets go from 0 to {last:,} (or from -{last + 1:,} to -1,"
            " counted from the end)."
        ) from None


def _text(asked: ReadArguments, part: Page, kept: Cleaned, notes: tuple[str, ...]) -> str:
    run = f"{asked.stream} of run {asked.run_id}"
    if not part.total and not kept.dropped_bytes:
        return "\n".join((f"{run}: nothing was printed there", *(f"Note: {note}" for note in notes)))
    status = f"{run}: characters {part.start:,} to {part.end:,} of {part.total:,}"
    status += "; this is the end" if part.is_last else f"; next offset={part.end}"
    lines = [status]
    if kept.dropped_bytes:
        lines.append(f"{_not_kept(kept)} at offset {len(kept.head):,}.")
    lines += [f"Note: {note}" for note in notes]
    lines.append(f"--- {asked.stream} ---")
    if part.gap is None:
        return "\n".join((*lines, part.text))
    at = part.gap - part.start
    marker = f"[... {_not_kept(kept)} ...]"
    before, after = part.text[:at].removesuffix("\n"), part.text[at:]
    return "\n".join((*lines, *((before,) if before else ()), marker, *((after,) if after else ())))


def _not_kept(kept: Cleaned) -> str:
    lines = "1 line" if kept.dropped_lines == 1 else f"{kept.dropped_lines:,} lines"
    return f"{kept.dropped_bytes:,} bytes ({lines}) were not kept"


def _data(asked: ReadArguments, part: Page, captured: Captured) -> dict[str, Any]:
    return {
        "run_id": asked.run_id,
        "stream": str(asked.stream),
        "offset": part.start,
        "next_offset": None if part.is_last else part.end,
        "total_characters": part.total,
        "gap_offset": part.gap,
        "total_bytes": captured.total_bytes,
        "dropped_bytes": captured.dropped_bytes,
        "dropped_lines": captured.dropped_lines,
    }


def read_output_tool(settings: Settings, outputs: OutputStore) -> Tool:
    """The tool with all that ``tools/list`` shows of it."""
    most = max(MOST_CHARACTERS, settings.show_chars)
    return reading_tool(
        ReadOutput(settings, outputs).call,
        name=TOOL_NAME,
        title="Read what a run printed",
        description=(
            "Read the output of a finished execute_python run, where its answer showed only the beginning and the"
            ' end. The answer\'s "left out" marker has the call that goes on from there. The first line says which'
            " part this is and the offset of the next one. Output beyond"
            f" {settings.max_output_bytes:,} bytes per stream was dropped from its middle and can't be read; the text"
            " says where. Only the latest runs are kept, in the server's memory; nothing is run."
        ),
        parameters=_schema(settings, most),
        meta={"anthropic/maxResultSizeChars": most + FRAME_CHARS},
    )


def _schema(settings: Settings, most: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "run_id": {
                "type": "string",
                "description": 'The run\'s id: the last thing in the answer of execute_python ("run ...").',
            },
            "stream": {
                "type": "string",
                "description": '"stdout" or "stderr". Default: stdout.',
                "default": "stdout",
            },
            "offset": {
                "type": "integer",
                "description": "Where to begin, in characters from 0; negative counts from the end (-2000: the last"
                " 2,000). Default: 0.",
                "default": 0,
            },
            "limit": {
                "type": "integer",
                "description": f"Most characters to return, 1 to {most}. Default: {settings.show_chars}.",
                "default": settings.show_chars,
            },
        },
        "required": ["run_id"],
    }
