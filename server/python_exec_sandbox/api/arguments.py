"""The arguments of ``execute_python``: their schema, and what clients make of them.

Clients send ``null`` and ``""`` for "nothing", lists as text, numbers as text, and names that don't exist.
What can be understood is; the rest gets one short error that names the argument and the accepted form.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from python_exec_sandbox.api.lists import argument_list, requirement_list
from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.setting_values import parse_seconds
from python_exec_sandbox.settings import Settings

ALIASES = {"code": "script"}

ACCEPTED_FORMS = {
    "script": "the Python source as text",
    "dependencies": 'a list of texts such as ["requests", "numpy>=2"]',
    "timeout_seconds": "a number of seconds such as 30",
    "python_version": 'text such as "3.13"',
    "args": 'a list of texts such as ["--verbose", "in.txt"]',
    "stdin": "text",
}


def _version_text(value: object) -> object:
    """A version sent as a number, as text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class ExecuteArguments(BaseModel):
    """What a call of ``execute_python`` may carry, checked for its shape only; ranges are the executor's.

    ``timeout_seconds`` and ``python_version`` are ``None`` where the call leaves them to the settings.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    script: StrictStr
    dependencies: Annotated[tuple[StrictStr, ...], BeforeValidator(requirement_list)] = ()
    timeout_seconds: Annotated[float | None, BeforeValidator(parse_seconds)] = None
    python_version: Annotated[StrictStr | None, BeforeValidator(_version_text)] = None
    args: Annotated[tuple[StrictStr, ...], BeforeValidator(argument_list)] = ()
    stdin: StrictStr = ""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call that can be carried out; ``notes`` are sentences that belong into its answer."""

    arguments: ExecuteArguments
    notes: tuple[str, ...] = ()


def parse_call(raw: Mapping[str, Any]) -> ParsedCall:
    """The meaning of the arguments ``raw`` as a client sent them.

    Raises:
        RequestError: arguments are missing or have a wrong shape; names each with its accepted form.
    """
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in raw.items():
        field = ALIASES.get(name, name)
        if field not in ExecuteArguments.model_fields or (field != name and field in raw):
            unknown.append(name)
        elif not _means_default(field, value):
            known[field] = value
    notes = tuple(_unknown_note(name) for name in unknown)
    if "script" not in known:
        missing = f"script: missing or empty; accepted: {ACCEPTED_FORMS['script']}"
        raise RequestError(" ".join((missing, *notes)))
    try:
        arguments = ExecuteArguments.model_validate(known)
    except ValidationError as error:
        raise RequestError(" ".join((_worded(error), *notes))) from None
    return ParsedCall(arguments, notes)


def input_schema(settings: Settings) -> dict[str, Any]:
    """The schema that ``tools/list`` shows: one flat object, defaults and ranges in words.

    Clients drop ``default`` and bounds from schemas, so that the descriptions carry them.
    """
    texts = {"type": "array", "items": {"type": "string"}}
    return {
        "type": "object",
        "properties": {
            "script": {"type": "string", "description": "Python source to run, as in a file of its own."},
            "dependencies": texts
            | {
                "description": "Packages to install first, as PEP 508 requirements such as "
                '["requests", "numpy>=2"]. A "# /// script" block in the script works too. Default: none.',
                "default": [],
            },
            "timeout_seconds": {
                "type": "number",
                "description": f"Longest run in seconds, above 0, at most {settings.max_timeout:g}; installing"
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


def _means_default(field: str, value: object) -> bool:
    """``null`` and empty text stand for a left-out argument; blank lines are a fine input, though."""
    return value is None or (isinstance(value, str) and not (value if field == "stdin" else value.strip()))


def _unknown_note(name: str) -> str:
    shown = ascii(name[:60])
    close = difflib.get_close_matches(name, ExecuteArguments.model_fields, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(ExecuteArguments.model_fields)}."
    return f"Ignored unknown argument {shown}; {hint}"


def _worded(error: ValidationError) -> str:
    """One sentence for each argument that is wrong, only its first problem."""
    first: dict[str, ErrorDetails] = {}
    for detail in error.errors():
        first.setdefault(str(detail["loc"][0]), detail)
    return " ".join(_problem(name, detail) for name, detail in first.items())


def _problem(name: str, detail: ErrorDetails) -> str:
    place = f"{name}[{detail['loc'][1]}]" if len(detail["loc"]) > 1 else name
    if detail["type"] == "value_error":
        return f"{place}: {detail.get('ctx', {}).get('error', detail['msg'])}."
    return f"{place}: {_json_word(detail['input'])} is not accepted. Accepted: {ACCEPTED_FORMS[name]}."


def _json_word(value: object) -> str:
    """What a client calls the kind of ``value``."""
    match value:
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"
