"""The arguments of ``execute_python`` and their schema."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictStr

from python_exec_sandbox.api.argument_shapes import Arguments, ParsedCall, Shape
from python_exec_sandbox.api.lists import argument_list, requirement_list
from python_exec_sandbox.setting_values import parse_seconds
from python_exec_sandbox.settings import Settings

ALIASES = {
    "code": "script",
    "source": "script",
    "timeout": "timeout_seconds",
    "packages": "dependencies",
    "requirements": "dependencies",
}
"""Names that models use for an argument; understood without a word."""

MEANT = {
    "argv": "args",
    "arguments": "args",
    "input": "stdin",
    "python": "python_version",
    "version": "python_version",
}
"""Names that are not understood but lead to the right one, beside those that are spelled like it."""

ACCEPTED_FORMS = {
    "script": "the Python source as text",
    "dependencies": 'a list of texts such as ["requests", "numpy>=2"]',
    "timeout_seconds": "a number of seconds such as 30",
    "python_version": 'text such as "3.13"',
    "args": 'a list of texts such as ["--verbose", "in.txt"]',
    "stdin": "text",
}


def version_text(value: object) -> object:
    """A version sent as a number, as text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Requirements = Annotated[tuple[StrictStr, ...], BeforeValidator(requirement_list)]
PythonVersion = Annotated[StrictStr | None, BeforeValidator(version_text)]


class ExecuteArguments(Arguments):
    """What a call of ``execute_python`` may carry.

    ``timeout_seconds`` and ``python_version`` are ``None`` where the call leaves them to the settings.
    """

    script: StrictStr
    dependencies: Requirements = ()
    timeout_seconds: Annotated[float | None, BeforeValidator(parse_seconds)] = None
    python_version: PythonVersion = None
    args: Annotated[tuple[StrictStr, ...], BeforeValidator(argument_list)] = ()
    stdin: StrictStr = ""


# Blank lines are a fine input.
EXECUTE = Shape(ExecuteArguments, ACCEPTED_FORMS, ALIASES, MEANT, kept_blank=frozenset({"stdin"}))


def parse_call(raw: Mapping[str, Any]) -> ParsedCall[ExecuteArguments]:
    """The meaning of the arguments ``raw`` of ``execute_python``; see :meth:`Shape.parse`."""
    return EXECUTE.parse(raw)


def input_schema(settings: Settings) -> dict[str, Any]:
    """The schema that ``tools/list`` shows: one flat object, defaults and ranges in words.

    Clients drop ``default`` and bounds from schemas, so that the descriptions carry them.
    """
    texts = {"type": "array", "items": {"type": "string"}}
    packages = (
        'Packages to install first, as PEP 508 requirements such as ["requests", "numpy>=2"]. A "# /// script"'
        " block in the script works too."
        if settings.can_install
        else "Not available: the server runs with --network none, so no packages can be installed."
    )
    return {
        "type": "object",
        "properties": {
            "script": {"type": "string", "description": "Python source to run, as in a file of its own."},
            "dependencies": texts | {"description": f"{packages} Default: none.", "default": []},
            "timeout_seconds": {
                "type": "number",
                "description": f"Longest run in seconds, at least 0.1, at most {settings.max_timeout:g}; installing"
                f" does not count. Default: {settings.default_timeout:g}.",
                "default": settings.default_timeout,
            },
            "python_version": {
                "type": "string",
                "description": 'Python to run with, such as "3.14". Default: what the script\'s block asks for,'
                f" else {settings.python_version}.",
            },
            "args": texts
            | {"description": "Command line arguments: sys.argv[1:]. Default: none.", "default": []},
            "stdin": {
                "type": "string",
                "description": "Text the script reads from standard input. Default: empty.",
                "default": "",
            },
        },
        "required": ["script"],
    }
