"""The tool ``validate_script``: what is wrong with a script, without running it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult
from pydantic import StrictStr

from python_exec_sandbox.api.argument_shapes import Arguments, Shape
from python_exec_sandbox.api.arguments import (
    ACCEPTED_FORMS,
    ALIASES,
    MEANT,
    PythonVersion,
    Requirements,
    input_schema,
)
from python_exec_sandbox.api.present import NOT_SANDBOXED
from python_exec_sandbox.api.refusals import short_refusal
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
from python_exec_sandbox.run.records import RunRequest
from python_exec_sandbox.script.module_names import is_removed, package_of
from python_exec_sandbox.settings import Settings
from python_exec_sandbox.stream.clean import clean_text

if TYPE_CHECKING:
    from python_exec_sandbox.run.resolving import Versions
    from python_exec_sandbox.run.validation import Complaint, Import, Validation

TOOL_NAME = "validate_script"
META_KEY = f"{META_PREFIX}validation"

SHOWN_PACKAGES = 60

SHOWN_CHARACTERS = 100
"""Of the line that the compiler complains about."""

ARGUMENTS = ("script", "dependencies", "python_version")
"""Those that it has in common with ``execute_python``."""

FORMS = {"resolve": "true or false"}

NO_STORE = "packages are not installed by this server here, so nobody can tell their versions beforehand"


class ValidateArguments(Arguments):
    """What a call of ``validate_script`` may carry."""

    script: StrictStr
    dependencies: Requirements = ()
    python_version: PythonVersion = None
    resolve: bool = False


SHAPE = Shape(
    ValidateArguments,
    forms={name: ACCEPTED_FORMS[name] for name in ARGUMENTS} | FORMS,
    aliases={name: meant for name, meant in ALIASES.items() if meant in ARGUMENTS},
    meant={name: meant for name, meant in MEANT.items() if meant in ARGUMENTS},
)


@dataclass(frozen=True, slots=True)
class ValidateScript:
    """Reads the script here, and has it compiled inside a sandbox."""

    settings: Settings
    runtime: Runtime

    async def call(self, raw: Mapping[str, Any], context: Context[None, Any]) -> CallToolResult:
        """Answer one call; a script with problems is a result with ``is_error``."""
        try:
            call = SHAPE.parse(raw)
            backend = await self.runtime.backend()
            await load("run.validation")
            from python_exec_sandbox.run.resolving import Versions
            from python_exec_sandbox.run.validation import validate

            request = RunRequest(**call.arguments.model_dump(exclude={"resolve"}))
            wants_versions = call.arguments.resolve
            found = await with_progress(
                self.runtime.reporter,
                context,
                backend.activity,
                lambda listener: validate(
                    backend.executor,
                    request,
                    listener,
                    longest=self.settings.max_timeout,
                    resolver=backend.resolver if wants_versions else None,
                ),
            )
            if wants_versions and backend.resolver is None:
                found = replace(found, versions=Versions(unknown=NO_STORE))
        except SandboxError as error:
            return refused(f"not validated: {short_refusal(error)}", error, META_KEY)
        except Exception as error:  # noqa: BLE001 - the model must learn that its script is not to blame
            return faulty("the script", error, META_KEY)
        found = replace(found, notes=(*call.notes, *found.notes))
        return answer(
            text_of(found, can_install=self.settings.can_install),
            data_of(found),
            is_error=not found.is_valid,
            key=META_KEY,
            structured=self.settings.structured_output,
        )


def text_of(found: "Validation", *, can_install: bool = True) -> str:
    """The status at a glance, each problem with its place, and what the script would be run with."""
    problems = [f"- {text}" for text in found.problems]
    if found.compiled is not None and found.compiled.error is not None:
        problems.append(f"- {_place(found.compiled.error)}")
    lines = [_status(found, len(problems)), *problems]
    if found.compiled is None:
        reason = short_refusal(found.cause) if found.cause else found.unchecked
        lines.append(f"Syntax not checked: {reason.rstrip('.')}.")
    lines += [f"Warning: {_place(one)}" for one in found.compiled.warnings] if found.compiled else []
    if found.versions is not None and not found.versions.problem:
        lines.append(_about_versions(found.versions))
    if found.missing:
        lines.append(_about_missing(found, can_install=can_install))
    lines += [f"Note: {note}" for note in found.notes]
    if found.unsandboxed:
        lines.append(f"Note: {NOT_SANDBOXED}: it was compiled, and not executed. {found.unsandboxed}")
    requirements = ", ".join(found.requirements) or "none"
    lines.append(
        f"[python {found.python or 'none fits'}; requirements: {requirements}; nothing was executed]"
    )
    return clean_text("\n".join(lines))


def _status(found: "Validation", problems: int) -> str:
    if problems:
        return f"not valid: {'1 problem' if problems == 1 else f'{problems} problems'}"
    if found.compiled is None:
        return "not fully checked: no problem was found, but the syntax could not be checked"
    return f"valid: Python {found.compiled.python} compiles the script"


def _place(complaint: "Complaint") -> str:
    """Such as ``Line 3, column 7: SyntaxError: invalid syntax``, and the line itself with a mark under it."""
    where = f"Line {complaint.line}" if complaint.line else "Somewhere in the script"
    if complaint.line and complaint.column:
        where += f", column {complaint.column}"
    message = complaint.message or "the script is nested too deeply or too large for the compiler"
    said = f"{where}: {complaint.kind}: {message}"
    if not complaint.text.strip():
        return said
    bare = complaint.text.lstrip()
    at = (complaint.column or 0) - 1 - (len(complaint.text) - len(bare))
    if not 0 <= at <= len(bare):
        return f"{said}\n      {bare[:SHOWN_CHARACTERS]}"
    start = max(0, at - SHOWN_CHARACTERS // 2) if len(bare) > SHOWN_CHARACTERS else 0
    return f"{said}\n      {bare[start : start + SHOWN_CHARACTERS]}\n      {' ' * (at - start)}^"


def _about_versions(versions: "Versions") -> str:
    if versions.unknown:
        return f"Versions not resolved: {versions.unknown.rstrip('.')}."
    if not versions.packages:
        return "Versions: there is nothing to install."
    shown = ", ".join(f"{one.name} {one.version}" for one in versions.packages[:SHOWN_PACKAGES])
    more = len(versions.packages) - SHOWN_PACKAGES
    return f"Versions that would be installed: {shown}{f' and {more} more' if more > 0 else ''}."


def _about_missing(found: "Validation", *, can_install: bool) -> str:
    shown = ", ".join(f"{one.module} (line {one.line})" for one in found.missing[:10])
    if not can_install:
        return f"Hint: not part of Python, and no packages can be installed with --network none: {shown}."
    removed = [one.module for one in found.missing if is_removed(one.module)]
    packages = ", ".join(f'"{_package(one)}"' for one in found.missing[:10] if one.module not in removed)
    text = f"Hint: imported but neither part of Python nor named in dependencies: {shown}."
    if packages:
        unless = " unless another package brings them" if found.requirements else ""
        text += f" Name them{unless}: {packages}."
    if removed:
        text += f" No longer part of Python: {', '.join(removed)}."
    return text


def _package(missing: "Import") -> str:
    return package_of(missing.module) or missing.module


def data_of(found: "Validation") -> dict[str, Any]:
    """The same as data; all that the text says is in it."""
    compiled = found.compiled
    return {
        "valid": found.is_valid,
        "problems": [clean_text(text) for text in found.problems],
        "python": found.python,
        "compiled_with": clean_text(compiled.python) if compiled else None,
        "syntax_error": _cleaned(compiled.error) if compiled and compiled.error else None,
        "warnings": [_cleaned(one) for one in compiled.warnings] if compiled else [],
        "requirements": [clean_text(one) for one in found.requirements],
        "missing_modules": [
            {"module": clean_text(one.module), "line": one.line, "package": clean_text(_package(one))}
            for one in found.missing
        ],
        "versions": _versions(found.versions),
        "notes": [clean_text(note) for note in found.notes],
        "sandboxed": not found.unsandboxed,
        "syntax_not_checked": clean_text(found.unchecked),
    }


def _versions(versions: "Versions | None") -> dict[str, str] | None:
    """By the packages' names; ``None`` where they are not known."""
    if versions is None or versions.problem or versions.unknown:
        return None
    return {clean_text(one.name): clean_text(one.version) for one in versions.packages}


def _cleaned(complaint: "Complaint") -> dict[str, Any]:
    return {
        name: clean_text(value) if isinstance(value, str) else value
        for name, value in complaint.model_dump().items()
    }


def validate_script_tool(settings: Settings, runtime: Runtime) -> Tool:
    """The tool with all that ``tools/list`` shows of it."""
    schema = input_schema(settings)
    properties = {name: schema["properties"][name] for name in ARGUMENTS}
    properties["script"] = {
        "type": "string",
        "description": "Python source to check, as in a file of its own.",
    }
    properties["resolve"] = {
        "type": "boolean",
        "description": "Whether to ask the package index which versions would be installed. Default: false.",
        "default": False,
    }
    return reading_tool(
        ValidateScript(settings, runtime).call,
        name=TOOL_NAME,
        title="Check a Python script without running it",
        description=(
            "Check a Python script without running it: nothing of it is executed and no package is installed."
            ' Reports all problems at once, with line numbers: the "# /// script" block (PEP 723), the dependencies'
            " merged from block and argument, the choice of Python, the syntax under that very Python with the compiler's"
            " warnings, and imports that no named dependency seems to bring; with resolve also the versions of all packages"
            " that a run would install, or why there are none. Useful for"
            " long scripts and before long runs; for short ones execute_python is as quick and says the same."
        ),
        parameters={"type": "object", "properties": properties, "required": ["script"]},
    )
